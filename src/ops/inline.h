/* Forced inlining for kernels: a body is inlined where its sizes are constants, so that its loops unroll. */
#ifndef EK_OPS_INLINE_H
#define EK_OPS_INLINE_H

#define INLINE static inline __attribute__((always_inline, unused))
#define APART  static __attribute__((noinline, unused)) /* one copy for all callers */

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#endif
