/* ops/inline.h, and what is x86-64's: sums in registers, prefetching. */
#ifndef EK_OPS_X86_INLINE_H
#define EK_OPS_X86_INLINE_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/inline.h"

/* A sum is brought up to date here, in its register: left to itself gcc adds terms of a longer chain among each other
 * first, which takes more registers than there are. */
#define IN_REGISTER(v) __asm__("" : "+x"(v))

/* A prefetch into the second-level cache: in the first one, rows 512 bytes apart would push each other out. The
 * address may lie past the end of the tensor: such a prefetch has no effect on results. */
INLINE void fetch(const uint8_t *p, ptrdiff_t ahead)
{
    _mm_prefetch((const char *)((uintptr_t)p + (uintptr_t)ahead), _MM_HINT_T1);
}

#endif
