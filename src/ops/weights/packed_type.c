#include "ops/weights/quantised_type.h"

#include <string.h>

#include "ops/convert.h"

static inline uint32_t word_at(const uint8_t *p, size_t i)
{
    uint32_t v;
    memcpy(&v, p + 4 * i, sizeof v);
    return v;
}

static inline float element_at(const uint8_t *p, size_t i, ek_dtype t)
{
    return ek_load_float(p + i * ek_dtype_size(t), t);
}

/* Field i of `bits` bits of a little-endian string of words that lie `step` words apart. */
static inline uint32_t field(const uint8_t *p, size_t base, size_t step, size_t i, int bits)
{
    size_t per_word = 32 / (size_t)bits;
    return word_at(p, base + i / per_word * step) >> (i % per_word * (size_t)bits) & ((1u << bits) - 1);
}

static inline void put_zero(float *b, float s, int z)
{
    *b = -(s * (float)z);
}

/* ------------------------------------------------------------------ rows stored one after the other */

/* The index of row r's scale for weight `first`. */
static inline size_t scale_index(const ek_weight_data *w, size_t r, int first)
{
    if (w->groups <= 1) return w->groups ? r : 0;
    return r * (size_t)w->groups + (size_t)(first / w->type->group);
}

static void row_scales(const ek_weight_data *w, size_t r, int first, int n, float *s)
{
    for (int g = 0; g * w->type->group < n; g++)
        s[g] = element_at(w->plane[1], scale_index(w, r, first + g * w->type->group), w->type->stored);
}

static void unpack_string(const ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, float *b)
{
    const ek_weight_type *t = w->type;
    size_t r = (size_t)(w->row + row), groups = w->groups > 1 ? (size_t)w->groups : 1;
    ek_unpack_bits(u, w->plane[0] + (r * (size_t)w->k + (size_t)first) / 8 * (size_t)t->bits, n, t->bits);
    row_scales(w, r, first, n, s);
    for (int g = 0; t->biased && g * t->group < n; g++) {
        size_t column = groups > 1 ? (size_t)(first / t->group + g) : 0;
        put_zero(&b[g], s[g], (int)field(w->plane[2], column, groups, r, t->bits));
    }
}

static void unpack_bytes(const ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, float *b)
{
    size_t r = (size_t)(w->row + row);
    const uint8_t *codes = w->plane[0] + r * (size_t)w->k + (size_t)first;
    (void)b;
    for (int i = 0; i < n; i++) u[i] = codes[i] ^ 0x80;
    row_scales(w, r, first, n, s);
}

/* ------------------------------------------------------------------ rows stored across words */

static inline void unpack_gptq(const ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, float *b,
                               const int bits, const int less)
{
    size_t r = (size_t)(w->row + row), rows = (size_t)w->across, words = rows * (size_t)bits / 32;
    for (int i = 0; i < n; i++) u[i] = (uint8_t)field(w->plane[0], r, rows, (size_t)(first + i), bits);
    for (int g = 0; g * w->type->group < n; g++) {
        size_t group = w->groups > 1 ? (size_t)(first / w->type->group + g) : 0;
        s[g] = element_at(w->plane[1], group * rows + r, w->type->stored);
        uint32_t z = field(w->plane[2], group * words, 1, r, bits) + (uint32_t)less;
        put_zero(&b[g], s[g], (int)(z & ((1u << bits) - 1)));
    }
}

#define GPTQ_FN(NAME, BITS, LESS)                                                                        \
    static void NAME(const ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, float *b) \
    {                                                                                                    \
        unpack_gptq(w, row, first, n, u, s, b, BITS, LESS);                                              \
    }
GPTQ_FN(unpack_gptq_4, 4, 1)
GPTQ_FN(unpack_gptq_8, 8, 1)
GPTQ_FN(unpack_gptq2_4, 4, 0)
GPTQ_FN(unpack_gptq2_8, 8, 0)

static void unpack_awq(const ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, float *b)
{
    static const int nibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    size_t r = (size_t)(w->row + row), rows = (size_t)w->across, words = rows / 8;
    int shift = 4 * nibble[r % 8];
    for (int i = 0; i < n; i++)
        u[i] = (uint8_t)(word_at(w->plane[0], (size_t)(first + i) * words + r / 8) >> shift & 15);
    for (int g = 0; g * w->type->group < n; g++) {
        size_t group = w->groups > 1 ? (size_t)(first / w->type->group + g) : 0;
        s[g] = element_at(w->plane[1], group * rows + r, w->type->stored);
        put_zero(&b[g], s[g], (int)(word_at(w->plane[2], group * words + r / 8) >> shift & 15));
    }
}

/* ------------------------------------------------------------------ the table */

typedef struct packed_row {
    ek_packing packing;
    ek_weight_type type;
} packed_row;

#define ROW(P, B, G, T, ZEROS, FN)                                                                  \
    {                                                                                               \
        P,                                                                                          \
        {                                                                                           \
            .name = "q" #B "." #G, .form = (B) <= 4 ? EK_W_Q4 : EK_W_Q8, .bits = (B), .group = (G), \
            .zero = 1 << ((B)-1), .biased = (ZEROS), .stored = EK_##T,                              \
            .scale_dtype = EK_##T == EK_BF16 && !(ZEROS) ? EK_BF16 : EK_F32, .block = (G),          \
            .block_bytes = {(G) / 8 * (B)}, .unpack = FN                                            \
        }                                                                                           \
    }
#define SCALES(P, B, G, ZEROS, FN) \
    ROW(P, B, G, F32, ZEROS, FN), ROW(P, B, G, F16, ZEROS, FN), ROW(P, B, G, BF16, ZEROS, FN)
#define GROUPS(P, B, ZEROS, FN) SCALES(P, B, 32, ZEROS, FN), SCALES(P, B, 64, ZEROS, FN), SCALES(P, B, 128, ZEROS, FN)

static const packed_row rows[] = {
    GROUPS(EK_PACK_BITS, 4, false, unpack_string),  GROUPS(EK_PACK_BITS, 4, true, unpack_string),
    GROUPS(EK_PACK_BITS, 8, false, unpack_string),  GROUPS(EK_PACK_BITS, 8, true, unpack_string),
    GROUPS(EK_PACK_BYTES, 8, false, unpack_bytes),  GROUPS(EK_PACK_GPTQ, 4, true, unpack_gptq_4),
    GROUPS(EK_PACK_GPTQ, 8, true, unpack_gptq_8),   GROUPS(EK_PACK_GPTQ2, 4, true, unpack_gptq2_4),
    GROUPS(EK_PACK_GPTQ2, 8, true, unpack_gptq2_8), GROUPS(EK_PACK_AWQ, 4, true, unpack_awq),
};

ek_err ek_weight_type_packed(const ek_weight_type **out, ek_packing packing, int bits, int group, ek_dtype scales,
                             bool zeros)
{
    bool has_bits = false, has_group = false, has_zeros = false;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const ek_weight_type *t = &rows[i].type;
        if (rows[i].packing != packing) continue;
        has_bits |= t->bits == bits, has_group |= t->group == group, has_zeros |= t->biased == zeros;
        if (t->bits != bits || t->group != group || t->stored != scales || t->biased != zeros) continue;
        *out = t;
        return EK_OK;
    }
    if (!has_bits)
        return ek_fail(EK_EINVAL, "codes of %d bits; %s", bits,
                       packing == EK_PACK_AWQ     ? "4 are possible"
                       : packing == EK_PACK_BYTES ? "8 are possible"
                                                  : "4 and 8 are possible");
    if (!has_group) return ek_fail(EK_EINVAL, "groups of %d weights; 32, 64 and 128 are possible", group);
    if (!has_zeros) return ek_fail(EK_EINVAL, "zero points %s", zeros ? "beside signed bytes" : "are missing");
    return ek_fail(EK_EINVAL, "%s scales of weights; F32, F16 and BF16 are possible", ek_dtype_name(scales));
}
