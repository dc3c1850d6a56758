/* Rows of an embedding table, decoded where they lie. */
#include <math.h>

#include "base/rng.h"
#include "model/weights.h"

static float widen(const uint8_t *p, ek_dtype t, size_t i)
{
    uint16_t h;
    float f;
    if (t == EK_F32) {
        memcpy(&f, p + i * 4, 4);
        return f;
    }
    memcpy(&h, p + i * 2, 2);
    return t == EK_BF16 ? ek_bf16_f32(h) : ek_f16_f32(h);
}

/* Element i of a row is bits [i b, i b + b) of the row as one little-endian string; a code of
 * at most 8 bits lies in two bytes, the second of which exists whenever the code reaches it. */
static inline unsigned code_at(const uint8_t *row, size_t i, int bits)
{
    size_t bit = i * (size_t)bits;
    unsigned v = row[bit / 8];
    if (bit % 8 + (unsigned)bits > 8) v |= (unsigned)row[bit / 8 + 1] << 8;
    return v >> bit % 8 & ((1u << bits) - 1);
}

static void invented_row(const ek_table *t, int row, int first, int n, float *out)
{
    uint64_t at = (uint64_t)row * (uint64_t)t->k + (uint64_t)first;
    for (int i = 0; i < n; i++) out[i] = (float)(ek_mix64(t->seed ^ (at + (uint64_t)i)) >> 40) * 0x1p-24f - 0.5f;
}

void ek_table_row(const ek_table *t, int row, int first, int n, float *out)
{
    size_t at = (size_t)row * (size_t)t->k + (size_t)first;
    if (!t->values) {
        invented_row(t, row, first, n, out);
    } else if (t->bits == 0) {
        for (int i = 0; i < n; i++) out[i] = widen(t->values, t->dtype, at + (size_t)i);
    } else {
        const uint8_t *codes = t->values + (size_t)row * ((size_t)t->k * (size_t)t->bits / 8);
        for (int i = 0, end; i < n; i = end) {
            int group = (first + i) / t->group;
            size_t g = (size_t)row * (size_t)(t->k / t->group) + (size_t)group;
            float s = widen(t->scales, t->dtype, g), b = widen(t->biases, t->dtype, g);
            end = (group + 1) * t->group - first < n ? (group + 1) * t->group - first : n;
            for (int j = i; j < end; j++) out[j] = fmaf(s, (float)code_at(codes, (size_t)(first + j), t->bits), b);
        }
    }
}
