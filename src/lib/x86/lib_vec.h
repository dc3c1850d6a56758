/* What every file of the library's inner loops uses. After one of ops/x86/vec_*.h. */
#ifndef EK_LIB_X86_LIB_VEC_H
#define EK_LIB_X86_LIB_VEC_H

#include <stddef.h>

#include "ops/x86/inline.h"

/* Into the second-level cache: in the first one, rows 512 bytes apart would push each other out. The
 * address may lie behind the tensor: a prefetch of it does nothing. */
INLINE void fetch(const uint8_t *p, ptrdiff_t ahead)
{
    _mm_prefetch((const char *)((uintptr_t)p + (uintptr_t)ahead), _MM_HINT_T1);
}

/* Zeros for what is below 2^-126, as Form B (lib/bf16.h) has them, come from the processor's flush-to-zero
 * and denormals-are-zero modes. They are on for the steps only, and steps stand in functions of their
 * own (noinline), so that nothing moves across the switch. */
enum { FLUSH = 0x8040 };

#endif
