/* The definitions of the library's inner loops, plain. kernels.c instantiates them for any
 * machine; the files of x86/ instantiate them again for the compiler to vectorise (loops over
 * independent outputs only) and put hand-written ones over those that matter. */
#ifndef EK_LIB_PLAIN_H
#define EK_LIB_PLAIN_H

#include <math.h>
#include <string.h>

#include "lib/kernels.h"
#include "tensor/dtype.h"

#define PLAIN static inline __attribute__((always_inline, unused))

PLAIN float plain_one(const uint8_t *from, ek_type t)
{
    uint32_t u;
    uint16_t h;
    if (t == EK_TYPE_F32) {
        memcpy(&u, from, 4);
        return ek_bits_f32(u);
    }
    memcpy(&h, from, 2);
    return t == EK_TYPE_BF16 ? ek_bf16_f32(h) : ek_f16_f32(h);
}

PLAIN void plain_widen(float *to, const uint8_t *from, ek_type t, int64_t n)
{
    if (t == EK_TYPE_F32) memcpy(to, from, (size_t)n * 4);
    else if (t == EK_TYPE_BF16)
        for (int64_t i = 0; i < n; i++) to[i] = plain_one(from + 2 * i, EK_TYPE_BF16);
    else
        for (int64_t i = 0; i < n; i++) to[i] = plain_one(from + 2 * i, EK_TYPE_F16);
}

PLAIN void plain_narrow(uint8_t *to, ek_type t, const float *from, int64_t n)
{
    if (t == EK_TYPE_F32) {
        memcpy(to, from, (size_t)n * 4);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        uint16_t h = t == EK_TYPE_BF16 ? ek_f32_bf16(from[i]) : ek_f32_f16(from[i]);
        memcpy(to + 2 * i, &h, 2);
    }
}

PLAIN void plain_affine(float *to, const uint8_t *codes, int n, int bits, float s, float b)
{
    uint64_t mask = (1u << bits) - 1;
    for (int i = 0; i < n; i += 8, codes += bits) {
        uint64_t word = 0;
        memcpy(&word, codes, (size_t)bits); /* little-endian: 8 codes are `bits` bytes */
        for (int j = 0; j < 8; j++) to[i + j] = fmaf(s, (float)(int)(word >> (j * bits) & mask), b);
    }
}

PLAIN void plain_turn(float *panel, const float *rows)
{
    for (int k = 0; k < LIB_DEPTH; k++)
        for (int i = 0; i < EK_PANEL; i++) panel[k * LIB_COLS + i] = rows[i * LIB_DEPTH + k];
}

PLAIN void plain_madd(float *acc, const float *const *x, int64_t at, int rows, const float *panel, int depth)
{
    for (int r = 0; r < rows; r++)
        for (int k = 0; k < depth; k++) {
            float xk = x[r][at + k];
            for (int n = 0; n < LIB_COLS; n++)
                acc[r * LIB_COLS + n] = fmaf(xk, panel[k * LIB_COLS + n], acc[r * LIB_COLS + n]);
        }
}

/* The value of output o at input i of a group (linear_layout.h), as fma(s, u, b) of the unsigned
 * code u, or s * c where the format is symmetric. */
PLAIN void plain_unpack(float *panel, const ek_linear *w, int p0, int k0, int depth)
{
    size_t group_bytes = ek_linear_group_bytes(w), code_bytes = ek_linear_code_bytes(w);
    int shift = ek_linear_stored_zero(w) - w->zero;
    for (int p = 0; p < LIB_COLS / EK_PANEL && p0 + p < w->n_panels; p++)
        for (int i = 0; i < depth; i++) {
            int k = k0 + i, in = k % w->group;
            const uint8_t *g = w->data + (size_t)(p0 + p) * w->panel_bytes + (size_t)(k / w->group) * group_bytes;
            for (int o = 0; o < EK_PANEL; o++) {
                int byte = o * 4 + in % 4, quad = in / 4;
                int u = w->form == EK_W_Q8 ? g[quad * 64 + byte] : g[quad / 2 * 64 + byte] >> (quad & 1) * 4 & 15;
                const uint8_t *at = g + code_bytes;
                float s, b = 0;
                if (w->scale_dtype == EK_BF16) {
                    s = ek_bf16_f32(((const ek_bf16 *)at)[o]);
                    if (w->biased) b = ek_bf16_f32(((const ek_bf16 *)at)[EK_PANEL + o]);
                } else {
                    s = ((const float *)at)[o];
                    if (w->biased) b = ((const float *)at)[EK_PANEL + o];
                }
                u -= shift;
                panel[i * LIB_COLS + p * EK_PANEL + o] = w->biased ? fmaf(s, (float)u, b) : s * (float)(u - w->zero);
            }
        }
}

PLAIN void plain_scores(const lib_score_block *b)
{
    size_t size = b->type == EK_TYPE_F32 ? 4 : 2;
    for (int i = 0; i < b->n_q; i++)
        for (int j = 0; j < LIB_KEYS; j++) {
            const float *q = b->q + i * EK_Q_STRIDE;
            float s = 0;
            for (int d0 = 0; d0 < b->dim; d0 += EK_CHAIN) {
                float chain = 0;
                for (int d = d0; d < b->dim && d < d0 + EK_CHAIN; d++)
                    chain = fmaf(q[d], plain_one(b->key[j] + (size_t)d * size, b->type), chain);
                s = d0 ? s + chain : chain;
            }
            b->e[i * EK_SEGMENT + j] = s;
        }
}

PLAIN void plain_values(const lib_value_run *r)
{
    size_t size = r->type == EK_TYPE_F32 ? 4 : 2;
    for (int i = 0; i < r->n_q; i++)
        for (int j = 0; j < r->n_keys; j++) {
            const uint8_t *v = r->v + j * r->stride;
            float e = r->e[i * EK_SEGMENT + j], *o = r->o + i * r->ldo;
            for (int d = 0; d < r->dim; d++) o[d] = fmaf(e, plain_one(v + (size_t)d * size, r->type), o[d]);
        }
}

PLAIN void plain_combine(float *b, const float *a, float fb, float fa, int n)
{
    for (int i = 0; i < n; i++) b[i] = a[i] * fa + b[i] * fb;
}

#endif
