// The tree T of up to 511 leaves (ops/tree.h) for each of 16 outputs and TILE rows, by a thread each; leaves in order.
const int LEVELS = 9;
shared float tree_node[LEVELS * 16 * TILE];

void push_leaf(int o, float leaf, int before) // `before` leaves were pushed earlier
{
    int level = 0;
    for (; (before >> level & 1) != 0; level++) leaf = add_(tree_node[level * 16 * TILE + o], leaf);
    tree_node[level * 16 * TILE + o] = leaf;
}

float sum_of_leaves(int o, int n)
{
    int level = findLSB(n);
    float sum = tree_node[level * 16 * TILE + o];
    for (level++; level < LEVELS; level++)
        if ((n >> level & 1) != 0) sum = add_(tree_node[level * 16 * TILE + o], sum);
    return sum;
}
