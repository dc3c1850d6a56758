/* ops/inline.h, and x86-64's additions: sums in registers, prefetching. */
#ifndef EK_OPS_X86_INLINE_H
#define EK_OPS_X86_INLINE_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/inline.h"

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
