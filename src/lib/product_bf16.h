/* Products of quantised weights in bf16: EK_BFLOAT16 for affine, transposed matrices.
 *
 * Codes of up to 8 bits are exact in bf16, so a group is summed in steps of Form B (lib/bf16.h) over
 * the codes themselves, and scale and bias meet the sum once.
 *
 * row     x' = x rounded to bf16, to nearest even. X of a group of G inputs: 16 lanes; lane i takes
 *         the pair (32 n + 2 i, 32 n + 2 i + 1) of the group for n = 0, 1, … with factors 1, from +0; the
 *         lanes are added 8, 4, 2, 1 apart
 * group   A, from +0: for every four inputs in ascending k first the pair (k, k + 2), then (k + 1, k + 3),
 *         as they lie in a packed matrix; each with the centred codes c = u - 2^(bits - 1)
 * block   of 256 inputs, from +0, groups ascending: a = fma(s, A, a), then a = fma(b', X, a), where
 *         b' = fma(s, 2^(bits - 1), b): the value of a weight is s u + b = s c + b'
 * output  blocks added by the tree T
 *
 * Flushing to zero is part of the steps only, not of the fma of blocks nor of the additions. */
#ifndef EK_LIB_PRODUCT_BF16_H
#define EK_LIB_PRODUCT_BF16_H

#include "lib/bf16.h"
#include "ops/tree.h"

/* x gets x' in f32, in the order of k. */
PLAIN void plain_pair_row(void *to, float *sum, const float *from, int k, int group)
{
    float *x = to;
    for (int i = 0; i < k; i++) x[i] = ek_bf16_f32(ek_f32_bf16(from[i]));
    for (int g = 0; g < k / group; g++, x += group) {
        float lane[16] = {0};
        for (int i = 0; i < group; i += 2) lane[i / 2 % 16] = plain_pair(lane[i / 2 % 16], x[i], 1, x[i + 1], 1);
        sum[g] = ek_add_lanes(lane);
    }
}

/* Centred code of output o at input i of a group. */
PLAIN float plain_code(const ek_linear *w, const uint8_t *group, int o, int i)
{
    int byte = o * 4 + i % 4, quad = i / 4;
    int u = w->form == EK_W_Q8 ? group[quad * 64 + byte] : group[quad / 2 * 64 + byte] >> (quad & 1) * 4 & 15;
    return (float)(u - ek_linear_stored_zero(w));
}

PLAIN float plain_scale(const ek_linear *w, const uint8_t *group, int i)
{
    const uint8_t *at = group + ek_linear_code_bytes(w);
    return w->scale_dtype == EK_BF16 ? ek_bf16_f32(((const ek_bf16 *)at)[i]) : ((const float *)at)[i];
}

PLAIN float plain_pair_group(const float *x, const ek_linear *w, const uint8_t *group, int o)
{
    float a = 0;
    for (int k = 0; k < w->group; k += 4)
        for (int i = k; i < k + 2; i++)
            a = plain_pair(a, x[i], plain_code(w, group, o, i), x[i + 2], plain_code(w, group, o, i + 2));
    return a;
}

PLAIN void plain_pair_panel(float *y, ptrdiff_t ldy, const lib_pair_rows *rows, int r0, int n, const ek_linear *w,
                            int p, bool fetch)
{
    (void)fetch;
    const int groups = w->k / w->group, block = EK_KBLOCK / w->group;
    for (int r = 0; r < n; r++)
        for (int o = 0; o < EK_PANEL; o++) {
            const float *x = (const float *)(rows->x + (r0 + r) * rows->ldx), *sum = rows->sum + (r0 + r) * rows->lds;
            const uint8_t *at = w->data + (size_t)p * w->panel_bytes;
            ek_tree t = {.count = 0};
            for (int g = 0; g < groups;) {
                float a = 0;
                for (int end = g + block < groups ? g + block : groups; g < end; g++, at += ek_linear_group_bytes(w)) {
                    float s = plain_scale(w, at, o), b = fmaf(s, (float)w->zero, plain_scale(w, at, EK_PANEL + o));
                    a = fmaf(s, plain_pair_group(x + g * w->group, w, at, o), a);
                    a = fmaf(b, sum[g], a);
                }
                ek_tree_push(&t, a);
            }
            y[r * ldy + o] = ek_tree_sum(&t);
        }
}

#endif
