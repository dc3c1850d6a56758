/* Random weights: element i of NAME is a function of (seed, NAME, i), so two processes make the same model, in any
 * order of filling. */
#include <math.h>

#include "base/hash/rng.h"
#include "model/weights/weights.h"

static uint64_t key_of(const ek_item *it, uint64_t seed)
{
    return ek_mix64(seed) ^ ek_fnv1a64(it->name);
}

static uint64_t draw(uint64_t key, uint64_t i)
{
    return ek_mix64(key + i * 0x9e3779b97f4a7c15u);
}

static float unit(uint64_t bits) /* [0, 1) */
{
    return (float)(bits >> 40) * 0x1p-24f;
}

/* Norm weights, scales of router and layer: near 1, but no test can mistake them for 1. */
void ek_invent_floats(float *out, const ek_item *it, uint64_t seed, int64_t first, int64_t n)
{
    uint64_t key = key_of(it, seed);
    for (int64_t i = 0; i < n; i++) out[i] = 0.5f + unit(draw(key, (uint64_t)(first + i)));
}

/* Uniform with variance 1 / k, so that a layer's output is as large as its input. */
static void invent_bf16(ek_bf16 *out, const ek_item *it, uint64_t seed, int row, int n_rows)
{
    const int k = it->data.k;
    uint64_t key = key_of(it, seed), at = (uint64_t)row * (uint64_t)k;
    float span = sqrtf(12.0f / (float)k);
    int64_t n = (int64_t)n_rows * k;
    for (int64_t i = 0; i < n; i++) out[i] = ek_f32_bf16((unit(draw(key, at + (uint64_t)i)) - 0.5f) * span);
}

static void invent_affine(uint32_t *codes, ek_bf16 *scales, ek_bf16 *biases, const ek_item *it, uint64_t seed, int row,
                          int n_rows)
{
    const ek_weight_type *t = it->data.type;
    const int k = it->data.k;
    uint64_t key = key_of(it, seed);
    int words = k * t->bits / 32, groups = k / t->group;
    float step = sqrtf(12.0f / (float)k) / (float)(1 << t->bits);
    for (int r = 0; r < n_rows; r++) {
        uint64_t of_row = ek_mix64(key ^ (uint64_t)(row + r));
        uint32_t *word = codes + (size_t)r * (size_t)words;
        for (int i = 0; i + 1 < words; i += 2) {
            uint64_t two = draw(of_row, (uint64_t)i);
            word[i] = (uint32_t)two, word[i + 1] = (uint32_t)(two >> 32);
        }
        if (words & 1) word[words - 1] = (uint32_t)draw(of_row, (uint64_t)words);
        for (int g = 0; g < groups; g++) {
            uint64_t bits = draw(~of_row, (uint64_t)g);
            float s = step * (0.75f + 0.5f * unit(bits)) * (bits & 1 ? 1.0f : -1.0f);
            size_t at = (size_t)r * (size_t)groups + (size_t)g;
            scales[at] = ek_f32_bf16(s);
            biases[at] = ek_f32_bf16(-s * ((float)(1 << t->bits >> 1) - 0.5f));
        }
    }
}

/* A type's planes lie one after the other, each at a multiple of 64 bytes. */
static size_t plane_bytes(const ek_item *it, int plane, int n)
{
    const ek_weight_type *t = it->data.type;
    return ((size_t)n * (size_t)(it->data.k / t->block) * t->block_bytes[plane] + 63) / 64 * 64;
}

size_t ek_invent_bytes(const ek_item *it, int n)
{
    return plane_bytes(it, 0, n) + plane_bytes(it, 1, n) + plane_bytes(it, 2, n);
}

ek_weight_data ek_invent_rows(const ek_item *it, uint64_t seed, int row, int n, void *temp)
{
    uint8_t *codes = temp, *scales = codes + plane_bytes(it, 0, n), *biases = scales + plane_bytes(it, 1, n);
    if (!it->data.type->block_bytes[1]) invent_bf16(temp, it, seed, row, n);
    else invent_affine((uint32_t *)codes, (ek_bf16 *)scales, (ek_bf16 *)biases, it, seed, row, n);
    return (ek_weight_data){.type = it->data.type, .n = n, .k = it->data.k, .plane = {codes, scales, biases}};
}
