// Fibers: stacks that one thread of the host works on in turn, known to the sanitizers.
#pragma once

#include <stdint.h>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

struct ek_fiber {
    uint8_t *stack; // none: the host's own
#if defined(__x86_64__)
    void *top; // saved stack pointer
#else
    ucontext_t context;
#endif
    void *fake; // of the address sanitizer
    void *race; // of the thread sanitizer
};

// The fiber, zeroed or one that has ended, begins at `start`, which must call ek_fiber_started and not return. False:
// no memory for its stack, which stays for the next time.
bool ek_fiber_prepare(ek_fiber &f, void (*start)(void));
void ek_fiber_started();

// Leaves one for the other; ends: nobody comes back to `from`.
void ek_fiber_change(ek_fiber &from, ek_fiber &to, bool ends);
