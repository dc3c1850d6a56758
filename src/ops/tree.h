/* The orders in which partial sums are added: the tree T over leaves, and the lanes of one leaf.
 *
 * T: leaf number i (from 0) is combined with the stored left siblings of levels 0, 1, … as long as
 * the low bits of i are 1 (a binary counter), then stored at the level that was reached. At the end
 * the stored nodes are added from the lowest level up. The earlier range is always the left operand.
 * The same as splitting n leaves at the largest power of two below n. docs/NUMERICS.md 2.
 *
 * ek_tree_level and ek_tree_node are that rule for nodes of any kind; this file applies it to floats
 * and to rows of floats, ops/x86/tree_vec.h to tiles of vectors. */
#ifndef EK_OPS_TREE_H
#define EK_OPS_TREE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { EK_TREE_DEPTH = 32, EK_LANES = 16 };

/* The level at which leaf number `count` is stored, after it was added to the nodes of all levels below. */
static inline int ek_tree_level(uint64_t count)
{
    return __builtin_ctzll(~count);
}

/* The lowest level at or above `from` that holds a node when `count` leaves are pushed; -1: none. */
static inline int ek_tree_node(uint64_t count, int from)
{
    count = count >> from << from;
    return count ? __builtin_ctzll(count) : -1;
}

/* ------------------------------------------------------------------ floats */

typedef struct ek_tree {
    float node[EK_TREE_DEPTH];
    unsigned count;
} ek_tree;

static inline void ek_tree_push(ek_tree *t, float leaf)
{
    const int level = ek_tree_level(t->count++);
    for (int l = 0; l < level; l++) leaf = t->node[l] + leaf;
    t->node[level] = leaf;
}

/* +0 for no leaves. */
static inline float ek_tree_sum(const ek_tree *t)
{
    int level = ek_tree_node(t->count, 0);
    if (level < 0) return 0;
    float sum = t->node[level];
    while ((level = ek_tree_node(t->count, level + 1)) >= 0) sum = t->node[level] + sum;
    return sum;
}

/* ------------------------------------------------------------------ rows of floats */

static inline void ek_tree_add_row(float *restrict to, const float *restrict left, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] = left[i] + to[i];
}

/* Element i of leaf number `count` goes to the tree of element i. Level l of n nodes lies at node + l * n;
 * the leaf is overwritten. */
static inline void ek_tree_push_row(float *node, uint64_t count, float *leaf, size_t n)
{
    const int level = ek_tree_level(count);
    for (int l = 0; l < level; l++) ek_tree_add_row(leaf, node + (size_t)l * n, n);
    memcpy(node + (size_t)level * n, leaf, n * sizeof *leaf);
}

/* The sums of `count` leaves, in place of one of the nodes; zeros for no leaves. */
static inline float *ek_tree_sum_row(float *node, uint64_t count, size_t n)
{
    int level = ek_tree_node(count, 0);
    if (level < 0) return memset(node, 0, n * sizeof *node);
    float *sum = node + (size_t)level * n;
    while ((level = ek_tree_node(count, level + 1)) >= 0) ek_tree_add_row(sum, node + (size_t)level * n, n);
    return sum;
}

/* ------------------------------------------------------------------ lanes */

/* The sum of 16 lanes, added 8, 4, 2, 1 apart; lane is overwritten. */
static inline float ek_add_lanes(float *lane)
{
    for (int apart = EK_LANES / 2; apart > 0; apart /= 2)
        for (int l = 0; l < apart; l++) lane[l] += lane[l + apart];
    return lane[0];
}

#endif
