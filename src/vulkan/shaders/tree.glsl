// The tree T of up to 511 leaves (ops/tree.h) for each of 16 outputs and TILE rows (TREE_WIDTH), by a thread each; leaves
// in order.
#ifndef TREE_WIDTH
#define TREE_WIDTH (16 * TILE)
#endif
const int LEVELS = 9;
shared float tree_node[LEVELS * TREE_WIDTH];

void push_leaf(int o, float leaf, int before) // `before` leaves were pushed earlier
{
    int level = 0;
    for (; (before >> level & 1) != 0; level++) leaf = add_(tree_node[level * TREE_WIDTH + o], leaf);
    tree_node[level * TREE_WIDTH + o] = leaf;
}

float sum_of_leaves(int o, int n)
{
    int level = findLSB(n);
    float sum = tree_node[level * TREE_WIDTH + o];
    for (level++; level < LEVELS; level++)
        if ((n >> level & 1) != 0) sum = add_(tree_node[level * TREE_WIDTH + o], sum);
    return sum;
}
