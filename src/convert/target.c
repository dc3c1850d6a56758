/* The table of formats, and the quantiser of MLX affine. */
#include "convert/target.h"

#include <math.h>
#include <string.h>

#include "ops/convert.h"

/* --- MLX affine --- */

static void put_code(uint8_t *row, size_t i, int bits, uint32_t u)
{
    size_t at = i * (size_t)bits;
    uint32_t v = u << at % 8;
    row[at / 8] |= (uint8_t)v;
    if (at % 8 + (size_t)bits > 8) row[at / 8 + 1] |= (uint8_t)(v >> 8);
}

static void store_bf16(uint8_t *to, float x)
{
    ek_bf16 h = ek_f32_bf16(x);
    memcpy(to, &h, sizeof h);
}

/* MLX affine by the rule of mx.quantize on a CPU (mlx, backend/cpu/quantized.cpp), bits 2, 3, 4, 5, 6 or 8: the edge of
 * larger magnitude is a code's value, then 0 is moved onto a code; scales and biases are rounded to BF16. */
static void put_affine(const float *x, int n, int bits, int group, uint8_t *codes, uint8_t *scales, uint8_t *biases)
{
    const float top = (float)((1 << bits) - 1);
    memset(codes, 0, (size_t)n * (size_t)bits / 8);
    for (int g = 0; g < n / group; g++) {
        const float *w = x + g * group;
        float min = w[0], max = w[0];
        for (int i = 1; i < group; i++) {
            min = w[i] < min ? w[i] : min;
            max = w[i] > max ? w[i] : max;
        }
        bool low = fabsf(min) > fabsf(max);
        float s = (max - min) / top, edge = low ? min : max, bias = 0;
        s = s > 1e-7f ? s : 1e-7f;
        s = low ? s : -s;
        float at_zero = rintf(edge / s);
        if (at_zero != 0) s = edge / at_zero, bias = edge;
        for (int i = 0; i < group; i++) {
            float q = rintf((w[i] - bias) / s);
            q = q < 0 ? 0 : q > top ? top : q;
            put_code(codes, (size_t)(g * group + i), bits, (uint32_t)q);
        }
        store_bf16(scales + 2 * g, s);
        store_bf16(biases + 2 * g, bias);
    }
}

/* --- the table --- */

static void put_floats(const float *x, int n, uint8_t *to, ek_dtype t)
{
    for (int i = 0; i < n; i++) ek_store_float(to + (size_t)i * ek_dtype_size(t), t, x[i]);
}

static void put_f32(const float *x, int n, uint8_t *const plane[EK_TARGET_PLANES], bool search)
{
    (void)search;
    memcpy(plane[0], x, sizeof *x * (size_t)n);
}

static void put_f16(const float *x, int n, uint8_t *const plane[EK_TARGET_PLANES], bool search)
{
    (void)search;
    put_floats(x, n, plane[0], EK_F16);
}

static void put_bf16(const float *x, int n, uint8_t *const plane[EK_TARGET_PLANES], bool search)
{
    (void)search;
    put_floats(x, n, plane[0], EK_BF16);
}

/* For whole numbers below 2^24, which float32 holds. */
static void put_i32(const float *x, int n, uint8_t *const plane[EK_TARGET_PLANES], bool search)
{
    (void)search;
    for (int i = 0; i < n; i++) memcpy(plane[0] + 4 * i, &(int32_t){(int32_t)x[i]}, 4);
}

static void put_i64(const float *x, int n, uint8_t *const plane[EK_TARGET_PLANES], bool search)
{
    (void)search;
    for (int i = 0; i < n; i++) memcpy(plane[0] + 8 * i, &(int64_t){(int64_t)x[i]}, 8);
}

#define AFFINE_PUT(B, G)                                                                                         \
    static void put_affine_##B##_##G(const float *x, int n, uint8_t *const plane[EK_TARGET_PLANES], bool search) \
    {                                                                                                            \
        (void)search;                                                                                            \
        put_affine(x, n, B, G, plane[0], plane[1], plane[2]);                                                    \
    }
#define AFFINE_PUTS(B) AFFINE_PUT(B, 32) AFFINE_PUT(B, 64)
AFFINE_PUTS(2)
AFFINE_PUTS(3)
AFFINE_PUTS(4)
AFFINE_PUTS(5)
AFFINE_PUTS(6)
AFFINE_PUTS(8)

#define FLOAT(NAME, T, GGML, FILE_TYPE, MAX)                                                \
    {                                                                                       \
        .name = #NAME, .dtype = {#T}, .ggml = (GGML), .file_type = (FILE_TYPE), .block = 1, \
        .bytes = {EK_##T == EK_F32 ? 4 : 2}, .max = (MAX), .put = put_##NAME                \
    }
#define BLOCKS(NAME, GGML, FILE_TYPE, BLOCK, BYTES, MAX)                                                           \
    {                                                                                                              \
        .name = #NAME, .ggml = (GGML), .file_type = (FILE_TYPE), .block = (BLOCK), .bytes = {BYTES}, .max = (MAX), \
        .put = ek_put_##NAME                                                                                       \
    }
#define AFFINE(B, G)                                                                                                  \
    {                                                                                                                 \
        .name = "q" #B "." #G, .dtype = {"U32", "BF16", "BF16"}, .ggml = -1, .bits = (B), .group = (G), .block = (G), \
        .bytes = {(B) * (G) / 8, 2, 2}, .put = put_affine_##B##_##G                                                   \
    }
#define AFFINES(B) AFFINE(B, 32), AFFINE(B, 64)

/* The numbers are those of ggml.h (types) and llama.h (file types). max: the largest value that half-precision scales
 * can hold. */
static const ek_target targets[] = {
    FLOAT(f32, F32, 0, 0, 0),
    FLOAT(f16, F16, 1, 1, 65504),
    FLOAT(bf16, BF16, 30, 32, 0),
    BLOCKS(q4_0, 2, 2, 32, 18, 65504),
    BLOCKS(q4_1, 3, 3, 32, 20, 32752),
    BLOCKS(q5_0, 6, 8, 32, 22, 65504),
    BLOCKS(q5_1, 7, 9, 32, 24, 32752),
    BLOCKS(q8_0, 8, 7, 32, 34, 65504),
    BLOCKS(q2_k, 10, 10, 256, 84, 32752),
    BLOCKS(q3_k, 11, 12, 256, 110, 65504),
    BLOCKS(q4_k, 12, 15, 256, 144, 32752),
    BLOCKS(q5_k, 13, 17, 256, 176, 32752),
    BLOCKS(q6_k, 14, 18, 256, 210, 65504),
    BLOCKS(iq4_nl, 20, 25, 32, 18, 65504),
    BLOCKS(iq4_xs, 23, 30, 256, 136, 65504),
    BLOCKS(mxfp4, 39, 38, 32, 17, 0),
    AFFINES(2),
    AFFINES(3),
    AFFINES(4),
    AFFINES(5),
    AFFINES(6),
    AFFINES(8),
    {.name = "i32", .dtype = {"I32"}, .ggml = 26, .block = 1, .bytes = {4}, .put = put_i32},
    {.name = "i64", .dtype = {"I64"}, .ggml = 27, .block = 1, .bytes = {8}, .put = put_i64},
};

const ek_target *ek_target_find(const char *name)
{
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (strcmp(targets[i].name, name) == 0) return &targets[i];
    return NULL;
}

bool ek_target_holds(const ek_target *t, const ek_weight_data *w)
{
    const ek_weight_type *type = w->type;
    if (!w->plane[0] || strcmp(type->name, t->name) != 0) return false;
    /* The name tells neither the order of the bytes nor the type of scales. */
    const ek_weight_type *own = ek_weight_type_named(t->name);
    if (t->bits && ek_weight_type_affine(&own, t->bits, t->group, EK_BF16, true)) return false;
    return own == type;
}
