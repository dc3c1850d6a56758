/* Rows of an embedding table, decoded from the file's bytes. */
#include "base/hash/rng.h"
#include "model/weights/weights.h"

static void invented_row(const ek_embedding_table *t, int row, int first, int n, float *out)
{
    uint64_t at = (uint64_t)row * (uint64_t)t->data.k + (uint64_t)first;
    for (int i = 0; i < n; i++) out[i] = (float)(ek_mix64(t->seed ^ (at + (uint64_t)i)) >> 40) * 0x1p-24f - 0.5f;
}

void ek_embedding_row(const ek_embedding_table *t, int row, int first, int n, float *out)
{
    if (t->data.plane[0]) ek_weight_row(&t->data, row, first, n, out);
    else invented_row(t, row, first, n, out);
}
