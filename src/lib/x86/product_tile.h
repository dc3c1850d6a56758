/* What the products in bf16 (lib/product_bf16.h) share on every instruction set: scales, leaves, the tree.
 * After one of ops/x86/vec_*.h. */
#ifndef EK_LIB_X86_PRODUCT_TILE_H
#define EK_LIB_X86_PRODUCT_TILE_H

#include "lib/product_bf16.h"
#include "lib/x86/lib_vec.h"
#include "ops/x86/tree_vec.h"

enum { TILE = LIB_PAIR_ROWS };

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
INLINE void load_scales(const ek_linear *w, const uint8_t *group, int o, vf *s, vf *b)
{
    const uint8_t *at = group + ek_linear_code_bytes(w);
    if (w->scale_dtype == EK_BF16)
        *s = v_load_bf16((const uint16_t *)at + o), *b = v_load_bf16((const uint16_t *)at + EK_PANEL + o);
    else *s = v_load((const float *)at + o), *b = v_load((const float *)at + EK_PANEL + o);
    *b = v_fma(*s, v_set1((float)w->zero), *b);
}

/* A group's part of a block: a[r] of n rows with its sums A, whose X stand lds apart from x. */
INLINE void add_group(vf *a, const vf *sums, vf s, vf b, const float *x, ptrdiff_t lds, const int n)
{
    UNROLL for (int r = 0; r < n; r++) a[r] = v_fma(b, v_set1(x[r * lds]), v_fma(s, sums[r], a[r]));
}

#endif
