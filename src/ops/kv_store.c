/* Writing keys and values: a token is quantised alone and once (contract: ops/kv.h). */
#include <string.h>

#include "ops/kv_layout.h"

static const float f16_most = 65504.0f;

static float clamp(float x, float least, float most)
{
    return x > least ? x < most ? x : most : least; /* NaN: least */
}

/* Keys and values are normed, so they fit; what does not is held at the largest, never infinite. */
static ek_f16 to_f16(float x)
{
    return ek_f32_f16(clamp(x, -f16_most, f16_most));
}

/* A token of a head, symmetric: s = amax / 32767, c = rne(x / s), 0 if s = 0; returns s. step is
 * between codes of one token. */
static float quantize16(const float *x, int n, int16_t *code, int step)
{
    float most = 0;
    for (int i = 0; i < n; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    float s = most / 32767.0f;
    for (int i = 0; i < n; i++) code[i * step] = s > 0 ? (int16_t)clamp(rintf(x[i] / s), -32767, 32767) : 0;
    return s;
}

/* The smallest f16 >= x >= 0, so that no code exceeds 127. */
static ek_f16 f16_up(float x)
{
    ek_f16 h = ek_f32_f16(clamp(x, 0, f16_most));
    return ek_f16_f32(h) < x && h < 0x7bff ? (ek_f16)(h + 1) : h;
}

/* n <= 32 elements, symmetric: s = amax / 127 rounded up to f16, c = rne(x / s). */
static void quantize8(const float *x, int n, int8_t *code, ek_f16 *scale)
{
    float most = 0;
    for (int i = 0; i < n; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    *scale = f16_up(most / 127.0f);
    float s = ek_f16_f32(*scale);
    for (int i = 0; i < n; i++) code[i] = s > 0 ? (int8_t)clamp(rintf(x[i] / s), -127, 127) : 0;
}

/* n <= 32 elements by MLX's affine rule: the end of larger magnitude is the bias, the other end
 * decides the scale, and the grid is moved so that 0 is on it. Codes are taken with the scale and
 * bias as stored. */
static void quantize4(const float *x, int n, uint8_t *code, ek_f16 *scale, ek_f16 *bias)
{
    float least = x[0], most = x[0];
    for (int i = 1; i < n; i++) {
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
    }
    int low = fabsf(least) > fabsf(most);
    float s = (most - least) / 15.0f, edge = low ? least : most;
    s = s > 1e-7f ? s : 1e-7f;
    s = low ? s : -s;
    float steps = rintf(edge / s);
    *scale = ek_f32_f16(clamp(steps != 0 ? edge / steps : s, -f16_most, f16_most));
    *bias = ek_f32_f16(clamp(steps != 0 ? edge : 0, -f16_most, f16_most));
    float sf = ek_f16_f32(*scale), bf = ek_f16_f32(*bias);
    for (int i = 0; i < n; i++) code[i] = (uint8_t)clamp(rintf((x[i] - bf) / sf), 0, 15);
}

static int group_size(int dim, int d)
{
    return dim - d < EK_KV_GROUP ? dim - d : EK_KV_GROUP;
}

static void store_k(ek_kv_format f, int dim, uint8_t *at, int slot, const float *k)
{
    if (f == EK_KV_F32) {
        for (int d = 0; d < dim; d++) ((float *)at)[d * EK_PAGE_TOKENS + slot] = k[d];
        return;
    }
    if (f == EK_KV_F16) {
        for (int d = 0; d < dim; d++) ((ek_f16 *)at)[d * EK_PAGE_TOKENS + slot] = to_f16(k[d]);
        return;
    }
    if (f == EK_KV_BF16) {
        for (int d = 0; d < dim; d++) ((ek_bf16 *)at)[d * EK_PAGE_TOKENS + slot] = ek_f32_bf16(k[d]);
        return;
    }
    if (f == EK_KV_I16) {
        float s = quantize16(k, dim, (int16_t *)at + slot, EK_PAGE_TOKENS);
        *(float *)ek_kv_token_scale(at, dim, slot) = s;
        return;
    }
    ek_f16 *scale = (ek_f16 *)(at + ek_kv_k_codes(f, dim)) + slot, *bias = scale + ek_kv_scales(dim) / sizeof *bias;
    for (int d = 0; d < dim; d += EK_KV_GROUP, scale += EK_PAGE_TOKENS, bias += EK_PAGE_TOKENS) {
        int n = group_size(dim, d);
        uint8_t code[EK_KV_GROUP] = {0};
        if (f == EK_KV_Q8) quantize8(k + d, n, (int8_t *)code, scale);
        else quantize4(k + d, n, code, scale, bias);
        for (int i = 0; i < n && f == EK_KV_Q8; i++) at[(d + i) * EK_PAGE_TOKENS + slot] = code[i];
        for (int i = 0; i < n && f == EK_KV_Q4; i += 2)
            at[(d + i) / 2 * EK_PAGE_TOKENS + slot] = (uint8_t)(code[i] | code[i + 1] << 4);
    }
}

static void store_v(ek_kv_format f, int dim, uint8_t *at, int slot, const float *v)
{
    if (f == EK_KV_F32) {
        memcpy((float *)at + slot * dim, v, sizeof *v * (size_t)dim);
        return;
    }
    if (f == EK_KV_F16) {
        for (int d = 0; d < dim; d++) ((ek_f16 *)at)[slot * dim + d] = to_f16(v[d]);
        return;
    }
    if (f == EK_KV_BF16) {
        for (int d = 0; d < dim; d++) ((ek_bf16 *)at)[slot * dim + d] = ek_f32_bf16(v[d]);
        return;
    }
    if (f == EK_KV_I16) {
        float s = quantize16(v, dim, (int16_t *)at + slot * dim, 1);
        *(float *)ek_kv_token_scale(at, dim, slot) = s;
        return;
    }
    size_t groups = ek_kv_groups(dim);
    ek_f16 *scale = (ek_f16 *)(at + ek_kv_v_codes(f, dim)) + (size_t)slot * groups;
    ek_f16 *bias = scale + ek_kv_scales(dim) / sizeof *bias;
    for (int d = 0; d < dim; d += EK_KV_GROUP, scale++, bias++) {
        int n = group_size(dim, d);
        if (f == EK_KV_Q8) {
            quantize8(v + d, n, (int8_t *)at + slot * dim + d, scale);
            continue;
        }
        uint8_t code[EK_KV_GROUP] = {0};
        quantize4(v + d, n, code, scale, bias);
        uint8_t *to = at + ((size_t)slot * groups + (size_t)d / EK_KV_GROUP) * EK_KV_GROUP_BYTES;
        for (int i = 0; i < EK_KV_GROUP_BYTES; i++) to[i] = (uint8_t)(code[i] | code[i + 16] << 4);
    }
}

void ek_kv_store(ek_kv_format k_format, ek_kv_format v_format, int dim, uint8_t *k_at, uint8_t *v_at, int slot,
                 const float *k, const float *v)
{
    store_k(k_format, dim, k_at, slot, k);
    store_v(v_format, dim, v_at, slot, v);
}
