// T over the leaves of a row (ops/tree.h), of exp(z - largest) of every token: neighbours, level by level. Overwrites
// weight[0 .. leaves); by all 256 threads.
float total_of_leaves(int row)
{
    const int thread = int(gl_LocalInvocationID.x), n = leaves_of_row();
    Floats leaf = leaves_of(row);
    for (int i = thread; i < n; i += 256) weight[i] = leaf.at[i];
    barrier();
    for (int apart = 1; apart < n; apart *= 2) {
        for (int i = thread * 2 * apart; i + apart < n; i += 256 * 2 * apart) weight[i] = add_(weight[i], weight[i + apart]);
        barrier();
    }
    const float total = weight[0];
    barrier();
    return total;
}
