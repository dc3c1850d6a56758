// The tree T over the leaves of a query (ops/attn/attn.h); each thread computes one dim.
struct node {
    float o, l;
    int m;
};
const int NODE_LEVELS = 20;
#ifndef LEAF_FLOATS // or such that other workgroups write in the same launch
#define LEAF_FLOATS Floats
#define LEAF_INTS   Ints
#endif

node combined(node x, node y)
{
    const int m = max(x.m, y.m);
    const float fx = factor_(x.m - m), fy = factor_(y.m - m);
    return node(add_(mul_(x.o, fx), mul_(y.o, fy)), add_(mul_(x.l, fx), mul_(y.l, fy)), m);
}

node leaf_node(tile_of_queries t, int n, int leaf, int dim, int d)
{
    const int64_t number = leaf_number(t, n, leaf);
    const uint64_t at = uint64_t(number) * 4ul;
    const uint64_t o = a.leaf_o + uint64_t(number * int64_t(dim) * 4l);
    return node(LEAF_FLOATS(o).at[d], LEAF_FLOATS(a.leaf_l + at).at[0], LEAF_INTS(a.leaf_m + at).at[0]);
}

// T over up to 8 leaves from `first` on, level by level, in registers.
const int FEW_LEAVES = 8, FEW_LEVELS = 3;
node sum_of_few(tile_of_queries t, int n, int first, int leaves, int dim, int d)
{
    node x0, x1, x2, x3, x4, x5, x6, x7;
#define LEAF(i) \
    if (i < leaves) x##i = leaf_node(t, n, first + i, dim, d);
#define MEET(i, j) \
    if (j < leaves) x##i = combined(x##i, x##j);
    LEAF(0) LEAF(1) LEAF(2) LEAF(3) LEAF(4) LEAF(5) LEAF(6) LEAF(7)
    MEET(0, 1) MEET(2, 3) MEET(4, 5) MEET(6, 7)
    MEET(0, 2) MEET(4, 6)
    MEET(0, 4)
    return x0;
}

// (o + 0) / l
float joined(tile_of_queries t, int n, int dim, int d)
{
    const int leaves = (Pairs(a.rows).at[row_of(t, n)].y - 1) / SEGMENT - t.seg0 + 1;
    if (leaves <= FEW_LEAVES) {
        const node few = sum_of_few(t, n, 0, leaves, dim, d);
        return div_(plus_zero(few.o), few.l);
    }
    node stack[NODE_LEVELS], sum; // of nodes of 8 leaves each, which are asked for together
    const int eights = leaves >> FEW_LEVELS, rest = leaves & FEW_LEAVES - 1;
    for (int i = 0; i < eights; i++) {
        node up = sum_of_few(t, n, i << FEW_LEVELS, FEW_LEAVES, dim, d);
        int level = 0;
        for (; (i >> level & 1) != 0; level++) up = combined(stack[level], up);
        stack[level] = up;
    }
    bool any = rest != 0;
    if (any) sum = sum_of_few(t, n, eights << FEW_LEVELS, rest, dim, d);
    for (int level = 0; level < NODE_LEVELS; level++) {
        if ((eights >> level & 1) == 0) continue;
        sum = any ? combined(stack[level], sum) : stack[level];
        any = true;
    }
    return div_(plus_zero(sum.o), sum.l);
}
