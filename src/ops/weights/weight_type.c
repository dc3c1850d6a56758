/* The table of weight types and the functions that read them. */
#include "ops/weights/weight_type.h"

#include <string.h>

#include "ops/convert.h"
#include "ops/weights/quantised_type.h"

static inline float load_element(const uint8_t *p, size_t i, ek_dtype t)
{
    return ek_load_float(p + i * (t == EK_F32 ? 4 : 2), t);
}

/* ------------------------------------------------------------------ floats */

static void load_floats(const ek_weight_data *w, int row, int first, int n, float *out)
{
    const uint8_t *at = ek_weight_plane_row(w, 0, row) + (size_t)first * ek_dtype_size(w->type->stored);
    for (int i = 0; i < n; i++) out[i] = load_element(at, (size_t)i, w->type->stored);
}

/* ------------------------------------------------------------------ MLX affine */

/* Moves eight codes of `bits` bits, adjacent in the low bits of v, into a byte each: halves are moved apart three
 * times. */
static inline uint64_t spread(uint64_t v, const int bits)
{
    const uint64_t four = (1ull << 4 * bits) - 1, two = ((1ull << 2 * bits) - 1) * 0x0000000100000001u;
    const uint64_t one = ((1ull << bits) - 1) * 0x0001000100010001u;
    v = (v & four) | (v >> 4 * bits & four) << 32;
    v = (v & two) | (v >> 2 * bits & two) << 16;
    return (v & one) | (v >> bits & one) << 8;
}

/* Loads n <= 8 bytes, n constant, by whole words; memcpy of 3, 5 and 6 bytes would go through memory. */
static inline uint64_t load_bytes(const uint8_t *p, const int n)
{
    uint64_t eight = 0;
    uint32_t four = 0;
    uint16_t two = 0;
    if (n == 8) {
        memcpy(&eight, p, 8);
        return eight;
    }
    if (n & 4) memcpy(&four, p, 4);
    if (n & 2) memcpy(&two, p + (n & 4), 2);
    uint64_t one = n & 1 ? p[n - 1] : 0;
    return four | (uint64_t)two << 8 * (n & 4) | one << 8 * (n & 6);
}

/* Element i of a row is bits [i b, i b + b) of the row as one little-endian string: eight codes are
 * b whole bytes. */
static inline void unpack_bits(uint8_t *u, const uint8_t *src, int n, const int bits)
{
    for (int i = 0; i < n; i += 8, src += bits) {
        uint64_t v = spread(load_bytes(src, bits), bits);
        memcpy(u + i, &v, 8);
    }
}

void ek_unpack_bits(uint8_t *u, const uint8_t *src, int n, int bits)
{
    switch (bits) { /* with a constant each */
    case 2: unpack_bits(u, src, n, 2); break;
    case 3: unpack_bits(u, src, n, 3); break;
    case 4: unpack_bits(u, src, n, 4); break;
    case 5: unpack_bits(u, src, n, 5); break;
    case 6: unpack_bits(u, src, n, 6); break;
    case 8: unpack_bits(u, src, n, 8); break;
    default: EK_ASSERT(0 && "a width without an unpack function");
    }
}

static void unpack_affine(const ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, float *b)
{
    const ek_weight_type *t = w->type;
    const uint8_t *codes = ek_weight_plane_row(w, 0, row) + (size_t)(first / 8) * (size_t)t->bits;
    ek_unpack_bits(u, codes, n, t->bits);
    size_t group = (size_t)(first / t->group), groups = (size_t)(n / t->group);
    const uint8_t *scales = ek_weight_plane_row(w, 1, row);
    for (size_t g = 0; g < groups; g++) s[g] = load_element(scales, group + g, t->stored);
    if (!t->biased) return;
    const uint8_t *biases = ek_weight_plane_row(w, 2, row);
    for (size_t g = 0; g < groups; g++) b[g] = load_element(biases, group + g, t->stored);
}

/* ------------------------------------------------------------------ the table */

enum { F32_BYTES = 4, F16_BYTES = 2, BF16_BYTES = 2 };

#define FLOAT(NAME, T)                                                                       \
    {                                                                                        \
        .name = NAME, .form = EK_W_##T, .stored = EK_##T, .scale_dtype = EK_F32, .block = 1, \
        .block_bytes = {T##_BYTES}, .load = load_floats,                                     \
    }

#define AFFINE(B, G, T, BIASED)                                                                                       \
    {                                                                                                                 \
        .name = "q" #B "." #G, .form = (B) <= 4 ? EK_W_Q4 : EK_W_Q8, .bits = (B), .group = (G), .zero = 1 << ((B)-1), \
        .biased = (BIASED), .stored = EK_##T, .scale_dtype = EK_##T == EK_BF16 ? EK_BF16 : EK_F32, .block = (G),      \
        .block_bytes = {(G) / 8 * (B), T##_BYTES, (BIASED) ? T##_BYTES : 0}, .unpack = unpack_affine,                 \
    }
#define AFFINE_GROUP(B, G)                                                                                \
    AFFINE(B, G, F32, true), AFFINE(B, G, F32, false), AFFINE(B, G, F16, true), AFFINE(B, G, F16, false), \
        AFFINE(B, G, BF16, true), AFFINE(B, G, BF16, false)
#define AFFINE_BITS(B) AFFINE_GROUP(B, 32), AFFINE_GROUP(B, 64), AFFINE_GROUP(B, 128)

/* GGUF's: one plane of blocks, packed as planes of bits. */
#define BLOCKS_OF(NAME, BITS, GROUP, BLOCK, BYTES)                                                                 \
    .name = #NAME, .form = EK_W_PLANES, .bits = (BITS), .group = (GROUP), .stored = EK_F16, .scale_dtype = EK_F16, \
    .block = (BLOCK), .block_bytes = {(BYTES)}, .unpack = ek_unpack_##NAME
#define BLOCKS(NAME, BITS, GROUP, BIASED, BLOCK, BYTES) \
    BLOCKS_OF(NAME, BITS, GROUP, BLOCK, BYTES), .zero = 1 << ((BITS)-1), .biased = (BIASED)
#define BLOCKS_BOOK(NAME, BOOK, BLOCK, BYTES) BLOCKS_OF(NAME, 4, 32, BLOCK, BYTES), .zero = 128, .book = (BOOK)
#define SUBSCALES(RULE, NAME)                 .scale = EK_SCALE_##RULE, .subscales = ek_subscales_##NAME

static const ek_weight_type types[] = {
    FLOAT("f32", F32),
    FLOAT("f16", F16),
    FLOAT("bf16", BF16),
    AFFINE_BITS(2),
    AFFINE_BITS(3),
    AFFINE_BITS(4),
    AFFINE_BITS(5),
    AFFINE_BITS(6),
    AFFINE_BITS(8),
    {BLOCKS(q4_0, 4, 32, false, 32, 18), SUBSCALES(PLAIN, 32)},
    {BLOCKS(q4_1, 4, 32, true, 32, 20), SUBSCALES(PLAIN, 32)},
    {BLOCKS(q5_0, 5, 32, false, 32, 22), SUBSCALES(PLAIN, 32)},
    {BLOCKS(q5_1, 5, 32, true, 32, 24), SUBSCALES(PLAIN, 32)},
    {BLOCKS(q8_0, 8, 32, false, 32, 34), SUBSCALES(PLAIN, 32)},
    {BLOCKS(q2_k, 2, 16, true, 256, 84), SUBSCALES(U4, q2_k)},
    {BLOCKS(q3_k, 3, 16, false, 256, 110), SUBSCALES(I8, q3_k)},
    {BLOCKS(q4_k, 4, 32, true, 256, 144), SUBSCALES(U8, q45_k)},
    {BLOCKS(q5_k, 5, 32, true, 256, 176), SUBSCALES(U8, q45_k)},
    {BLOCKS(q6_k, 6, 16, false, 256, 210), SUBSCALES(I8, q6_k)},
    {BLOCKS_BOOK(iq4_nl, ek_iq4_values, 32, 18), SUBSCALES(PLAIN, 32)},
    {BLOCKS_BOOK(iq4_xs, ek_iq4_values, 256, 136), SUBSCALES(I8, iq4_xs)},
    {BLOCKS_BOOK(mxfp4, ek_e2m1_doubled, 32, 17), SUBSCALES(E8M0, mxfp4)},
    {BLOCKS_OF(nvfp4, 4, 16, 64, 36), .zero = 128, .book = ek_e2m1_doubled, SUBSCALES(E4M3, nvfp4)},
};
enum { N_TYPES = sizeof types / sizeof *types };

const ek_weight_type *ek_weight_types(int *count)
{
    *count = N_TYPES;
    return types;
}

const ek_weight_type *ek_weight_type_named(const char *name)
{
    for (int i = 0; i < N_TYPES; i++)
        if (strcmp(types[i].name, name) == 0) return &types[i];
    return NULL;
}

const ek_weight_type *ek_weight_type_float(ek_dtype t)
{
    for (int i = 0; i < N_TYPES; i++)
        if (types[i].load && types[i].stored == t) return &types[i];
    return NULL;
}

ek_err ek_weight_type_affine(const ek_weight_type **out, int bits, int group, ek_dtype scales, bool biased)
{
    bool has_bits = false, has_group = false;
    for (int i = 0; i < N_TYPES; i++) {
        const ek_weight_type *t = &types[i];
        if (t->unpack != unpack_affine) continue;
        has_bits |= t->bits == bits;
        has_group |= t->group == group;
        if (t->bits != bits || t->group != group || t->stored != scales || t->biased != biased) continue;
        *out = t;
        return EK_OK;
    }
    if (!has_bits) return ek_fail(EK_EINVAL, "%d-bit weights; 2, 3, 4, 5, 6 and 8 are possible", bits);
    if (!has_group) return ek_fail(EK_EINVAL, "weights in groups of %d; 32, 64 and 128 are possible", group);
    return ek_fail(EK_EINVAL, "%s scales of weights; F32, F16 and BF16 are possible", ek_dtype_name(scales));
}

size_t ek_weight_row_bytes(const ek_weight_type *t, int k)
{
    size_t block = 0;
    for (int p = 0; p < EK_WEIGHT_PLANES; p++) block += t->block_bytes[p];
    return (size_t)(k / t->block) * block;
}

/* ------------------------------------------------------------------ any type */

void ek_weight_row(const ek_weight_data *w, int row, int first, int n, float *out)
{
    const ek_weight_type *t = w->type;
    uint8_t u[EK_UNPACK_WEIGHTS + 8];
    float s[EK_UNPACK_WEIGHTS], b[EK_UNPACK_WEIGHTS];
    for (int end = first + n, next; first < end; first = next) {
        int start = first / EK_UNPACK_WEIGHTS * EK_UNPACK_WEIGHTS, stop = start + EK_UNPACK_WEIGHTS;
        next = stop < end ? stop : end;
        if (t->load) {
            t->load(w, row, first, next - first, out);
            out += next - first;
            continue;
        }
        start = first / t->block * t->block;
        stop = (next + t->block - 1) / t->block * t->block;
        t->unpack(w, row, start, stop - start, u, s, b);
        for (int i = first; i < next; i++) {
            int g = (i - start) / t->group;
            *out++ = ek_weight_value(u[i - start], t->zero, s[g], t->biased, t->biased ? b[g] : 0);
        }
    }
}
