/* Shared code of the Form B kernels (ops/linear/linear_b.h) for every instruction set: scales, leaves, the tree.
 * After one of ops/x86/vec_*.h. */
#ifndef EK_OPS_X86_LINEAR_B_TILE_H
#define EK_OPS_X86_LINEAR_B_TILE_H

#include "ops/linear/linear_b.h"
#include "ops/linear/x86/group_vec.h"
#include "ops/x86/tree_vec.h"

enum { TILE = EK_LINEAR_B_ROWS };

typedef struct tree {
    vf node[EK_LINEAR_LEVELS][TILE];
    unsigned count;
} tree;

INLINE void tree_push(tree *t, vf *leaf, const int n)
{
    v_tree_push(t->node[0], TILE, t->count++, leaf, n);
}

INLINE vf tree_sum(const tree *t, int r)
{
    return v_tree_sum(t->node[0], TILE, t->count, r);
}

/* Outputs from o of a group: s and b' = fma(s, zero, b). */
INLINE void load_centred(const ek_linear *w, const uint8_t *group, int o, vf *s, vf *b)
{
    load_scales(w, group, o, s, b);
    *b = v_fma(*s, v_set1((float)w->zero), *b);
}

/* A group's part of a block: a[r] of n rows with its sums A, whose X stand lds apart from x. */
INLINE void add_group(vf *a, const vf *sums, vf s, vf b, const float *x, ptrdiff_t lds, const int n)
{
    UNROLL for (int r = 0; r < n; r++) a[r] = v_fma(b, v_set1(x[r * lds]), v_fma(s, sums[r], a[r]));
}

#endif
