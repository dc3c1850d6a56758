/* The tree T (ops/tree.h) over tiles of vectors, each lane for itself. Included after a vec_*.h. */
#ifndef EK_OPS_X86_TREE_VEC_H
#define EK_OPS_X86_TREE_VEC_H

#include <stdbool.h>

#include "ops/tree.h"
#include "ops/inline.h"

/* A leaf of n vectors, leaf number `count` (from 0), goes to a tree whose level l lies at node + l * tile,
 * n <= tile; n is a constant once inlined. The leaf is overwritten. */
INLINE void v_tree_push(vf *node, int tile, unsigned count, vf *leaf, const int n)
{
#ifdef EK_FREE_ORDER /* a build of tools/bench/free_order.sh */
    (void)tile;
    UNROLL for (int i = 0; i < n; i++) node[i] = count ? v_add(node[i], leaf[i]) : leaf[i];
    return;
#endif
    const int level = ek_tree_level(count);
    for (int l = 0; l < level; l++, node += tile) UNROLL for (int i = 0; i < n; i++) leaf[i] = v_add(node[i], leaf[i]);
    UNROLL for (int i = 0; i < n; i++) node[i] = leaf[i];
}

/* Whether leaf number `count` is stored as it is at the lowest level: it may then be summed there. */
INLINE bool v_tree_in_place(unsigned count)
{
#ifdef EK_FREE_ORDER
    return count == 0;
#endif
    return ek_tree_level(count) == 0;
}

/* The sum of vector i over `count` leaves, at least one. */
INLINE vf v_tree_sum(const vf *node, int tile, unsigned count, int i)
{
#ifdef EK_FREE_ORDER
    (void)tile, (void)count;
    return node[i];
#endif
    int level = ek_tree_node(count, 0);
    vf sum = node[level * tile + i];
    while ((level = ek_tree_node(count, level + 1)) >= 0) sum = v_add(node[level * tile + i], sum);
    return sum;
}

#endif
