/* Forced inlining for kernels: a body is inlined where its sizes are constants, so that its loops unroll. */
#ifndef EK_OPS_INLINE_H
#define EK_OPS_INLINE_H

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#include <stddef.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline, unused))
#define APART  static __attribute__((noinline, unused)) /* one copy for all callers */

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#if defined(__x86_64__)
/* Computes a sum up to here, in its register. Without it gcc first adds terms of a longer chain to each other, which
 * takes more registers than there are. */
#define IN_REGISTER(v) __asm__("" : "+x"(v))

/* A prefetch into the second-level cache; in the first one, rows 512 bytes apart would evict each other. The address
 * may lie past the end of the tensor: such a prefetch has no effect on results. */
INLINE void fetch(const uint8_t *p, ptrdiff_t ahead)
{
    _mm_prefetch((const char *)((uintptr_t)p + (uintptr_t)ahead), _MM_HINT_T1);
}
#endif

#endif
