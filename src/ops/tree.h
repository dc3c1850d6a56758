/* The tree T: the one order in which partial sums are added.
 *
 * Push leaf i; while the low bits of the leaf count are 1, combine with the stored left
 * sibling (a binary counter). At the end the remaining nodes are added from the lowest level
 * up, left + right with the earlier range on the left. The same as splitting at the largest
 * power of two below n. docs/NUMERICS.md 2. */
#ifndef EK_OPS_TREE_H
#define EK_OPS_TREE_H

enum { EK_TREE_DEPTH = 32 };

typedef struct ek_tree {
    float node[EK_TREE_DEPTH];
    unsigned count;
} ek_tree;

static inline void ek_tree_push(ek_tree *t, float leaf)
{
    int level = 0;
    for (unsigned c = t->count; c & 1; c >>= 1) leaf = t->node[level++] + leaf;
    t->node[level] = leaf;
    t->count++;
}

/* +0 for no leaves. */
static inline float ek_tree_sum(const ek_tree *t)
{
    float sum = 0;
    int any = 0;
    for (int level = 0; level < EK_TREE_DEPTH; level++)
        if (t->count >> level & 1) sum = any++ ? t->node[level] + sum : t->node[level];
    return sum;
}

#endif
