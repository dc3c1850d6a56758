#include "ops/weights/quantised_type.h"

#include <math.h>

#include "ops/convert.h"

/* ------------------------------------------------------------------ elements and scales */

float ek_e2m1_f32(unsigned code)
{
    static const float value[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    return code & 8 ? -value[code & 7] : value[code & 7];
}

float ek_e4m3_f32(unsigned byte)
{
    unsigned e = byte >> 3 & 15, frac = byte & 7;
    float v = e ? (float)(8 + frac) * ek_bits_f32((e + 127 - 10) << 23) : (float)frac * 0x1p-9f;
    return byte & 128 ? -v : v;
}

float ek_e8m0_f32(unsigned byte)
{
    return ek_bits_f32(byte ? byte << 23 : 0x00400000u);
}

unsigned ek_f32_e2m1(float x)
{
    float a = fabsf(x);
    int code = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
    return (unsigned)code | (signbit(x) ? 8u : 0u);
}

unsigned ek_f32_e4m3(float x)
{
    unsigned sign = signbit(x) ? 0x80u : 0;
    float a = fabsf(x);
    if (!(a < 448.0f)) return sign | 0x7e;
    if (a < 0x1p-6f) return sign | (unsigned)rintf(a * 0x1p9f); /* 8 is the first normal */
    uint32_t u = ek_f32_bits(a);
    u += 0x7ffffu + (u >> 20 & 1);
    unsigned code = (u >> 20) - ((127u - 7) << 3);
    return sign | (code > 0x7e ? 0x7e : code);
}

/* No logarithm is needed: the ratio to the power of two below decides. */
unsigned ek_f32_e8m0(float x)
{
    if (!(x < (float)INFINITY)) return 255;
    if (x <= 0x1p-127f) return 0;
    int k = (int)(ek_f32_bits(x < 0x1p-126f ? x * 0x1p24f : x) >> 23) - 127;
    if (x < 0x1p-126f) k -= 24;
    float base = ek_e8m0_f32((unsigned)(k + 127 < 0 ? 0 : k + 127)), ratio = x / base; /* exact, in [1, 2) */
    k += ratio > 1.41421356f;
    return (unsigned)(k > 127 ? 254 : k < -127 ? 0 : k + 127);
}

/* ------------------------------------------------------------------ 4 bits */

static void nibbles(const ek_weight_data *w, int row, int first, int n, uint8_t *u, bool values)
{
    ek_unpack_bits(u, ek_weight_plane_row(w, 0, row) + first / 2, n, 4);
    for (int i = 0; values && i < n; i++) u[i] = (uint8_t)(ek_e2m1_doubled[u[i]] + 128);
}

/* The byte that form PLANES stores: 255 means NaN. */
static inline uint8_t e4m3_scale(uint8_t byte, bool mlx)
{
    return !mlx && (byte & 0x7f) == 0x7f ? 255 : byte;
}

static inline const uint8_t *scales_at(const ek_weight_data *w, int row, int first)
{
    return ek_weight_plane_row(w, 1, row) + first / w->type->group;
}

static inline void unpack_nvfp4(const ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, bool mlx)
{
    const uint8_t *scales = scales_at(w, row, first);
    const float d = ek_e4m3_factor(w);
    nibbles(w, row, first, n, u, s != NULL);
    for (int g = 0; s && g < n / 16; g++) {
        uint8_t sc = e4m3_scale(scales[g], mlx);
        s[g] = sc == 255 ? NAN : d * ek_e4m3_half(sc);
    }
}

static void unpack_nvfp4_torch(const ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, float *b)
{
    (void)b;
    unpack_nvfp4(w, row, first, n, u, s, false);
}

static void unpack_nvfp4_mlx(const ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, float *b)
{
    (void)b;
    unpack_nvfp4(w, row, first, n, u, s, true);
}

static void subscales_nvfp4_torch(const ek_weight_data *w, int row, int first, ek_f16 *d, uint8_t *sc, uint8_t *m)
{
    (void)d, (void)m;
    for (int g = 0; g < w->type->block / 16; g++) sc[g] = e4m3_scale(scales_at(w, row, first)[g], false);
}

static void subscales_bytes(const ek_weight_data *w, int row, int first, ek_f16 *d, uint8_t *sc, uint8_t *m)
{
    (void)d, (void)m;
    memcpy(sc, scales_at(w, row, first), (size_t)(w->type->block / w->type->group));
}

static void unpack_mxfp4(const ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, float *b)
{
    const uint8_t *scales = scales_at(w, row, first);
    (void)b;
    nibbles(w, row, first, n, u, s != NULL);
    for (int g = 0; s && g < n / 32; g++) s[g] = scales[g] == 255 ? NAN : ek_e8m0_half(scales[g]);
}

/* ------------------------------------------------------------------ 8 bits */

/* Puts the fields of the byte where binary32 has them. The exponent is then off by a constant, which an exact
 * multiplication corrects. */
static inline float e4m3(uint8_t byte, bool mlx)
{
    float v = ek_bits_f32((uint32_t)(byte & 0x80) << 24 | (uint32_t)(byte & 0x7f) << 20) * 0x1p120f;
    return !mlx && (byte & 0x7f) == 0x7f ? NAN : v;
}

static inline float e5m2(uint8_t byte)
{
    uint32_t sign = (uint32_t)(byte & 0x80) << 24, rest = byte & 0x7f;
    if (rest >= 0x7c) return ek_bits_f32(sign | 0x7f800000u | (rest & 3) << 21);
    return ek_bits_f32(sign | rest << 21) * 0x1p112f;
}

typedef enum element { E4M3, E4M3_MLX, E5M2 } element;

/* Decodes n elements with one scale. */
static inline void scaled(float *out, const uint8_t *codes, int n, float s, const element e)
{
    for (int i = 0; i < n; i++) {
        float v = e == E5M2 ? e5m2(codes[i]) : e4m3(codes[i], e == E4M3_MLX);
        out[i] = ek_bf16_f32(ek_f32_bf16(v * s));
    }
}

static inline void load_mxfp8(const ek_weight_data *w, int row, int first, int n, float *out, const element e)
{
    const uint8_t *codes = ek_weight_plane_row(w, 0, row), *scales = ek_weight_plane_row(w, 1, row);
    for (int end = first + n, i = first, next; i < end; i = next) {
        next = (i / 32 + 1) * 32 < end ? (i / 32 + 1) * 32 : end;
        const uint8_t exponent = scales[i / 32];
        scaled(out + i - first, codes + i, next - i, exponent == 255 ? NAN : ek_e8m0_f32(exponent), e);
    }
}

static inline void load_fp8(const ek_weight_data *w, int row, int first, int n, float *out, const element e)
{
    const size_t r = (size_t)(w->row + row), size = ek_dtype_size(w->type->scale_dtype);
    const int tile = w->tile_k > 0 ? w->tile_k : w->k;
    const size_t columns = (size_t)((w->k + tile - 1) / tile), tile_row = w->tile_rows ? r / (size_t)w->tile_rows : 0;
    const uint8_t *codes = ek_weight_plane_row(w, 0, row);
    for (int end = first + n, i = first, next; i < end; i = next) {
        next = (i / tile + 1) * tile < end ? (i / tile + 1) * tile : end;
        const uint8_t *at = w->plane[1] + (tile_row * columns + (size_t)(i / tile)) * size;
        scaled(out + i - first, codes + i, next - i, ek_load_float(at, w->type->scale_dtype), e);
    }
}

#define LOAD(NAME, FN, E)                                                            \
    static void NAME(const ek_weight_data *w, int row, int first, int n, float *out) \
    {                                                                                \
        FN(w, row, first, n, out, E);                                                \
    }
LOAD(load_mxfp8_torch, load_mxfp8, E4M3)
LOAD(load_mxfp8_mlx, load_mxfp8, E4M3_MLX)
LOAD(load_mxfp8_e5m2, load_mxfp8, E5M2)
LOAD(load_fp8_e4m3, load_fp8, E4M3)
LOAD(load_fp8_e5m2, load_fp8, E5M2)

/* ------------------------------------------------------------------ the table */

#define NIBBLES(NAME, GROUP, RULE, UNPACK, SUBSCALES)                                                          \
    {                                                                                                          \
        .name = NAME, .form = EK_W_PLANES, .bits = 4, .group = (GROUP), .zero = 128, .book = ek_e2m1_doubled,  \
        .stored = EK_U8, .scale_dtype = EK_F16, .scale = EK_SCALE_##RULE, .subscales = SUBSCALES, .block = 32, \
        .block_bytes = {16, 32 / (GROUP)}, .unpack = UNPACK,                                                   \
    }
#define MXFP8(NAME, LOAD)                                                                                       \
    {                                                                                                           \
        .name = NAME, .form = EK_W_BF16, .stored = EK_U8, .scale_dtype = EK_F8_E8M0, .block = 32, .load = LOAD, \
        .block_bytes = {32, 1},                                                                                 \
    }
#define FP8(NAME, ELEMENT, SCALE, LOAD)                                                                    \
    {                                                                                                      \
        .name = NAME, .form = EK_W_BF16, .stored = EK_F8_##ELEMENT, .scale_dtype = EK_##SCALE, .block = 1, \
        .load = LOAD, .block_bytes = {1},                                                                  \
    }

const ek_weight_type ek_minifloat_types[EK_MINIFLOAT_TYPES] = {
    [EK_MINI_NVFP4] = NIBBLES("nvfp4", 16, E4M3, unpack_nvfp4_torch, subscales_nvfp4_torch),
    [EK_MINI_NVFP4_MLX] = NIBBLES("nvfp4", 16, E4M3, unpack_nvfp4_mlx, subscales_bytes),
    [EK_MINI_MXFP4] = NIBBLES("mxfp4", 32, E8M0, unpack_mxfp4, subscales_bytes),
    [EK_MINI_MXFP8] = MXFP8("mxfp8", load_mxfp8_torch),
    [EK_MINI_MXFP8_MLX] = MXFP8("mxfp8", load_mxfp8_mlx),
    [EK_MINI_MXFP8_E5M2] = MXFP8("mxfp8e5", load_mxfp8_e5m2),
    FP8("fp8", E4M3, F32, load_fp8_e4m3),
    FP8("fp8", E4M3, F16, load_fp8_e4m3),
    FP8("fp8", E4M3, BF16, load_fp8_e4m3),
    FP8("fp8e5", E5M2, F32, load_fp8_e5m2),
    FP8("fp8e5", E5M2, F16, load_fp8_e5m2),
    FP8("fp8e5", E5M2, BF16, load_fp8_e5m2),
};

const ek_weight_type *ek_weight_type_minifloat(ek_minifloat kind)
{
    return &ek_minifloat_types[kind];
}

const ek_weight_type *ek_weight_type_fp8(ek_dtype elements, ek_dtype scales)
{
    for (int i = EK_MINIFLOATS; i < EK_MINIFLOAT_TYPES; i++) {
        const ek_weight_type *t = &ek_minifloat_types[i];
        if (t->stored == elements && t->scale_dtype == scales) return t;
    }
    return NULL;
}
