// The tree T over the leaves of a query (ops/attn/attn.h); each thread computes one dim.
struct node {
    float o, l;
    int m;
};
const int NODE_LEVELS = 20;

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
    return node(leaf_o_at(number, dim).at[d], Floats(a.leaf_l + at).at[0], Ints(a.leaf_m + at).at[0]);
}

// T over up to 8 leaves, level by level, in registers.
const int FEW_LEAVES = 8;
node sum_of_few(tile_of_queries t, int n, int leaves, int dim, int d)
{
    node x[FEW_LEAVES];
    UNROLL for (int i = 0; i < FEW_LEAVES; i++)
        if (i < leaves) x[i] = leaf_node(t, n, i, dim, d);
    UNROLL for (int apart = 1; apart < FEW_LEAVES; apart *= 2)
        UNROLL for (int i = 0; i + apart < FEW_LEAVES; i += 2 * apart)
            if (i + apart < leaves) x[i] = combined(x[i], x[i + apart]);
    return x[0];
}

// (o + 0) / l
float joined(tile_of_queries t, int n, int dim, int d)
{
    const int leaves = (Pairs(a.rows).at[row_of(t, n)].y - 1) / SEGMENT - t.seg0 + 1;
    if (leaves <= FEW_LEAVES) {
        const node few = sum_of_few(t, n, leaves, dim, d);
        return div_(plus_zero(few.o), few.l);
    }
    node stack[NODE_LEVELS], sum;
    for (int i = 0; i < leaves; i++) {
        node up = leaf_node(t, n, i, dim, d);
        int level = 0;
        for (; (i >> level & 1) != 0; level++) up = combined(stack[level], up);
        stack[level] = up;
    }
    bool any = false;
    for (int level = 0; level < NODE_LEVELS; level++) {
        if ((leaves >> level & 1) == 0) continue;
        sum = any ? combined(stack[level], sum) : stack[level];
        any = true;
    }
    return div_(plus_zero(sum.o), sum.l);
}
