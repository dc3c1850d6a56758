/* What the kernel files of linear layers share: compile-time tiles by forced inlining. */
#ifndef EK_OPS_X86_LINEAR_TILE_H
#define EK_OPS_X86_LINEAR_TILE_H

#include "ops/linear_layout.h"

#define INLINE static inline __attribute__((always_inline))
/* Loops over the rows of a tile: their count is a constant once the tile is inlined. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

static inline int ek_min(int a, int b)
{
    return a < b ? a : b;
}

#endif
