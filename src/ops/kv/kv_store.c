/* Storing keys and values: each token is quantised alone and once (contract: ops/kv/kv.h). */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "ops/kv/kv_codec.h"

static const float f16_max = 65504.0f;

static float clamp(float x, float min, float max)
{
    return x > min ? x < max ? x : max : min; /* NaN: min */
}

/* Keys and values are normed, so they fit; larger values become the largest finite one. */
static ek_f16 to_f16(float x)
{
    return ek_f32_f16(clamp(x, -f16_max, f16_max));
}

/* The largest |x|; NaN is skipped; n is a multiple of 4. */
static float max_abs(const float *x, int n)
{
    float max[4] = {0};
    for (int i = 0; i < n; i += 4)
        for (int l = 0; l < 4; l++) max[l] = fabsf(x[i + l]) > max[l] ? fabsf(x[i + l]) : max[l];
    for (int l = 1; l < 4; l++) max[0] = max[l] > max[0] ? max[l] : max[0];
    return max[0];
}

/* rne(x) limited to [min, max], integers of at most 22 bits; NaN: min. Without a call per element. */
static int code_of(float x, float min, float max)
{
    const float whole = 0x1.8p23f;
    return (int)(clamp(x, min, max) + whole - whole);
}

/* x = R x. */
static void rotate(float *x, int dim)
{
    const int n = ek_attn_block(dim);
    for (int h = 1; h < n; h *= 2)
        for (int i = 0; i < dim; i += 2 * h)
            for (int j = i; j < i + h; j++) {
                const float a = x[j], b = x[j + h];
                x[j] = a + b, x[j + h] = a - b;
            }
}

void ek_attn_rotate_back(float *x, int dim)
{
    const float by = 1.0f / (float)ek_attn_block(dim);
    rotate(x, dim);
    for (int d = 0; d < dim; d++) x[d] *= by;
}

float ek_attn_encode(float *x, int dim, int max_code, int16_t *code)
{
    const float c = (float)max_code;
    float t = 0;
    for (int d = 0; d < dim; d++) x[d] = clamp(x[d], -0x1p96f, 0x1p96f);
    rotate(x, dim);
    for (int d = 0; d < dim; d++) t = fabsf(x[d]) > t ? fabsf(x[d]) : t;
    const bool none = t < 0x1p-100f;
    const float by = none ? 0 : c / t;
    for (int d = 0; d < dim; d++) code[d] = (int16_t)code_of(x[d] * by, -c, c);
    return none ? 0 : t / c;
}

/* The largest code of a symmetric format. */
static float max_code(ek_kv_format f)
{
    return (float)((1 << (ek_kv_codecs[f].bits - 1)) - 1);
}

/* c = rne(x / s), 0 if s = 0. */
static void symmetric_codes(ek_kv_format f, const float *x, int n, float s, int *code)
{
    const float max = max_code(f);
    for (int i = 0; i < n; i++) code[i] = s > 0 ? code_of(x[i] / s, -max, max) : 0;
}

/* The smallest f16 >= x >= 0, so that no code exceeds 127. */
static ek_f16 f16_up(float x)
{
    ek_f16 h = ek_f32_f16(clamp(x, 0, f16_max));
    return ek_f16_f32(h) < x && h < 0x7bff ? (ek_f16)(h + 1) : h;
}

/* Codes of a group by MLX's affine rule: the end with the larger magnitude is the bias, the other end decides the
 * scale, and the grid is moved so that it contains 0. Codes are computed with the scale and bias as stored. */
static void affine_codes(ek_kv_format f, const float *x, int n, ek_f16 *scale, ek_f16 *bias, int *code)
{
    float lane_min[4] = {x[0], x[1], x[2], x[3]}, lane_max[4] = {x[0], x[1], x[2], x[3]};
    for (int i = 4; i < n; i += 4)
        for (int l = 0; l < 4; l++) {
            lane_min[l] = x[i + l] < lane_min[l] ? x[i + l] : lane_min[l];
            lane_max[l] = x[i + l] > lane_max[l] ? x[i + l] : lane_max[l];
        }
    float min = lane_min[0], max = lane_max[0], codes = (float)((1 << ek_kv_codecs[f].bits) - 1);
    for (int l = 1; l < 4; l++) {
        min = lane_min[l] < min ? lane_min[l] : min;
        max = lane_max[l] > max ? lane_max[l] : max;
    }
    int low = fabsf(min) > fabsf(max);
    float s = (max - min) / codes, edge = low ? min : max;
    s = s > 1e-7f ? s : 1e-7f;
    s = low ? s : -s;
    float steps = rintf(edge / s);
    *scale = ek_f32_f16(clamp(steps != 0 ? edge / steps : s, -f16_max, f16_max));
    *bias = ek_f32_f16(clamp(steps != 0 ? edge : 0, -f16_max, f16_max));
    float sf = ek_f16_f32(*scale), bf = ek_f16_f32(*bias);
    for (int i = 0; i < n; i++) code[i] = code_of((x[i] - bf) / sf, 0, codes);
}

/* Turns a token, or a group of one, into codes; writes its scale (f32 for EK_KV_TOKEN, else f16) and its bias, if
 * any. */
static void quantise(ek_kv_format f, const float *x, int n, void *scale, int dim, int *code)
{
    ek_f16 *half = scale;
    float s;
    switch (ek_kv_codecs[f].rule) {
    case EK_KV_TOKEN:
        *(float *)scale = s = max_abs(x, n) / max_code(f);
        symmetric_codes(f, x, n, s, code);
        break;
    case EK_KV_SYMMETRIC: /* rounded up, so that no code exceeds the largest */
        *half = f16_up(max_abs(x, n) / max_code(f));
        symmetric_codes(f, x, n, ek_f16_f32(*half), code);
        break;
    default: affine_codes(f, x, n, half, half + ek_kv_scales(f, dim) / sizeof *half, code);
    }
}

/* Writes a number of at least 8 bits: an element, or its code. */
static void put(ek_kv_format f, uint8_t *part, size_t at, float x, int code)
{
    switch (ek_kv_codecs[f].rule) {
    case EK_KV_FLOAT: ((float *)part)[at] = x; break;
    case EK_KV_HALF: ((ek_f16 *)part)[at] = to_f16(x); break;
    case EK_KV_BFLOAT: ((ek_bf16 *)part)[at] = ek_f32_bf16(x); break;
    case EK_KV_TOKEN: ((int16_t *)part)[at] = (int16_t)code; break;
    default: ((int8_t *)part)[at] = (int8_t)code;
    }
}

/* The number of dims from d on that share a scale: a group, or the whole token. */
static int scale_dims(ek_kv_format f, int dim, int d)
{
    int group = ek_kv_codecs[f].group;
    return group && group < dim - d ? group : dim - d;
}

/* f is a constant, so that no element checks the format. */
#define ALWAYS static inline __attribute__((always_inline))

ALWAYS void store_k(const ek_kv_format f, int dim, uint8_t *part, int slot, const float *k)
{
    const bool codes = ek_kv_codecs[f].rule == EK_KV_TOKEN;
    int code[EK_MAX_HEAD_DIM];
    if (codes) quantise(f, k, dim, (void *)ek_kv_token_scale(f, part, dim, slot), dim, code);
    for (int d = 0; d < dim; d++) put(f, part, (size_t)d * EK_PAGE_TOKENS + (size_t)slot, k[d], codes ? code[d] : 0);
}

ALWAYS void store_v(const ek_kv_format f, int dim, uint8_t *part, int slot, const float *v)
{
    const bool codes = ek_kv_codecs[f].rule == EK_KV_TOKEN;
    int code[EK_MAX_HEAD_DIM];
    if (codes) quantise(f, v, dim, (void *)ek_kv_token_scale(f, part, dim, slot), dim, code);
    for (int d = 0; d < dim; d++) put(f, part, (size_t)slot * (size_t)dim + (size_t)d, v[d], codes ? code[d] : 0);
}

/* The bits of n codes that lie in a plane, as one byte; stride: the distance between codes. */
static uint8_t plane_byte(const int *code, int stride, int n, int at, int plane)
{
    int byte = 0;
    for (int i = 0; i < n; i++) byte |= (code[i * stride] >> at & ((1 << plane) - 1)) << (i * plane);
    return (uint8_t)byte;
}

/* For formats with groups; code[dim] and later elements are zeros, which pad the last byte. */
static void store_k_groups(ek_kv_format f, int dim, uint8_t *part, int slot, const float *k)
{
    int code[EK_MAX_HEAD_DIM + 8] = {0}, bits = ek_kv_codecs[f].bits, at = 0;
    for (int d = 0; d < dim; d += ek_kv_codecs[f].group)
        quantise(f, k + d, scale_dims(f, dim, d), (void *)ek_kv_k_scale(f, part, dim, d, slot), dim, code + d);
    for (int d = 0; bits == 8 && d < dim; d++) put(f, part, (size_t)d * EK_PAGE_TOKENS + (size_t)slot, k[d], code[d]);
    for (int plane = EK_KV_MAX_PLANE; plane && bits < 8; plane /= 2) {
        if (!(bits & plane)) continue;
        for (int d = 0; d < dim; d += 8 / plane)
            part[ek_kv_k_place(plane, d, slot).byte] = plane_byte(code + d, 1, 8 / plane, at, plane);
        part += ek_kv_k_plane(plane, dim), at += plane;
    }
}

static void store_v_groups(ek_kv_format f, int dim, uint8_t *part, int slot, const float *v)
{
    int code[EK_MAX_HEAD_DIM] = {0}, bits = ek_kv_codecs[f].bits, at = 0, padded = (int)ek_kv_padded(dim);
    for (int d = 0; d < dim; d += ek_kv_codecs[f].group)
        quantise(f, v + d, scale_dims(f, dim, d), (void *)ek_kv_v_scale(f, part, dim, slot, d), dim, code + d);
    for (int d = 0; bits == 8 && d < dim; d++) put(f, part, (size_t)slot * (size_t)dim + (size_t)d, v[d], code[d]);
    for (int plane = EK_KV_MAX_PLANE; plane && bits < 8; plane /= 2) {
        if (!(bits & plane)) continue;
        const int stride = plane == 4 ? 16 : 1; /* the distance between the codes of a byte */
        for (int i = 0; i < padded * plane / 8; i++) {
            const int d = plane == 4 ? i / 16 * 32 + i % 16 : i * 8 / plane; /* the dim of its first code */
            part[ek_kv_v_place(plane, dim, slot, d).byte] = plane_byte(code + d, stride, 8 / plane, at, plane);
        }
        part += ek_kv_v_plane(plane, dim), at += plane;
    }
}

/* Stores the codes of the rotated token (ops/attn/attn_int.h). */
static void store_rotated(ek_kv_format f, int dim, uint8_t *part, int slot, const float *x, bool key)
{
    float y[EK_MAX_HEAD_DIM];
    int16_t code[EK_MAX_HEAD_DIM];
    memcpy(y, x, sizeof *y * (size_t)dim);
    *(float *)(uintptr_t)ek_kv_token_scale(f, part, dim, slot) = ek_attn_encode(y, dim, ek_kv_int_max(f), code);
    for (int d = 0; d < dim; d++) {
        const size_t at = key ? ek_kv_int_key_at(f, d, slot) : ek_kv_int_value_at(f, dim, slot, d);
        if (ek_kv_codecs[f].bits == 16) ((int16_t *)part)[at] = code[d];
        else ((int8_t *)part)[at] = (int8_t)code[d];
    }
}

#define STORE_K(id, name, rule, bits, group)                                            \
    case EK_KV_##id:                                                                    \
        if (rule == EK_KV_ROTATED) store_rotated(EK_KV_##id, dim, k_at, slot, k, true); \
        else if (group) store_k_groups(EK_KV_##id, dim, k_at, slot, k);                 \
        else store_k(EK_KV_##id, dim, k_at, slot, k);                                   \
        break;
#define STORE_V(id, name, rule, bits, group)                                             \
    case EK_KV_##id:                                                                     \
        if (rule == EK_KV_ROTATED) store_rotated(EK_KV_##id, dim, v_at, slot, v, false); \
        else if (group) store_v_groups(EK_KV_##id, dim, v_at, slot, v);                  \
        else store_v(EK_KV_##id, dim, v_at, slot, v);                                    \
        break;

void ek_kv_store(ek_kv_format k_format, ek_kv_format v_format, int dim, uint8_t *k_at, uint8_t *v_at, int slot,
                 const float *k, const float *v)
{
    switch (k_format) {
        EK_KV_FORMATS(STORE_K)
    default: EK_ASSERT(k_format < EK_KV_FORMAT_COUNT);
    }
    switch (v_format) {
        EK_KV_FORMATS(STORE_V)
    default: EK_ASSERT(v_format < EK_KV_FORMAT_COUNT);
    }
}
