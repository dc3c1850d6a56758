// How fibers change (fiber.h).
#include "emulate/fiber.h"

#include <sys/mman.h>

#include "emulate/races.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace {
constexpr size_t STACK = 256 << 10;
}

#if defined(__x86_64__)
// void ek_emulated_switch(void **save, void *to): what a callee must keep, then the stack
extern "C" void ek_emulated_switch(void **save, void *to);
asm(R"(
    .text
    .hidden ek_emulated_switch
    .globl ek_emulated_switch
    .type ek_emulated_switch, @function
ek_emulated_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");
#endif

bool ek_fiber_prepare(ek_fiber &f, void (*start)(void))
{
    if (!f.stack) {
        void *p = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) return false;
        f.stack = (uint8_t *)p;
    }
    f.fake = nullptr;
#if defined(__SANITIZE_ADDRESS__)
    uint8_t *frames = f.stack; // that it had when it ended: they did not return
#if defined(__x86_64__)
    frames = f.top ? (uint8_t *)f.top : f.stack + STACK;
#endif
    __asan_unpoison_memory_region(frames, (size_t)(f.stack + STACK - frames));
#endif
#if defined(__x86_64__)
    void **top = (void **)(f.stack + STACK - 64);
    *--top = nullptr; // where `start` would return to
    *--top = (void *)start;
    for (int i = 0; i < 6; i++) *--top = nullptr;
    f.top = top;
#else
    getcontext(&f.context);
    f.context.uc_stack = {f.stack, 0, STACK};
    f.context.uc_link = nullptr;
    makecontext(&f.context, start, 0);
#endif
    return true;
}

void ek_fiber_started()
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

void ek_fiber_change(ek_fiber &from, ek_fiber &to, bool ends)
{
    (void)ends;
    ek_race_change(&to.race);
#if defined(__SANITIZE_ADDRESS__)
    static const void *home_bottom;
    static size_t home_size;
    __sanitizer_start_switch_fiber(ends ? nullptr : &from.fake, to.stack ? to.stack : home_bottom,
                                   to.stack ? STACK : home_size);
#endif
#if defined(__x86_64__)
    ek_emulated_switch(&from.top, to.top);
#else
    swapcontext(&from.context, &to.context);
#endif
#if defined(__SANITIZE_ADDRESS__)
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(from.fake, &bottom, &size);
    if (from.stack && !home_bottom) home_bottom = bottom, home_size = size;
#endif
}
