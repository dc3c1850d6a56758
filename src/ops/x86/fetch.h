/* Prefetching for kernels that stream. */
#ifndef EK_OPS_X86_FETCH_H
#define EK_OPS_X86_FETCH_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/x86/inline.h"

/* Into the second-level cache: in the first one, rows 512 bytes apart would push each other out. The
 * address may lie past the end of the tensor: such a prefetch has no effect on results. */
INLINE void fetch(const uint8_t *p, ptrdiff_t ahead)
{
    _mm_prefetch((const char *)((uintptr_t)p + (uintptr_t)ahead), _MM_HINT_T1);
}

#endif
