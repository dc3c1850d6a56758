#include "packed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "hashed.h"
#include "twice.h"
#include "tensor/dtype.h"

typedef struct writer {
    const packed_opts *o;
    st_file *packed;
} writer;

/* A module of rows x k: codes, zero points and scales as numbers, before they are packed. */
typedef struct numbers {
    int rows, k, groups, group; /* groups of a row */
    uint8_t *code, *zero;       /* [rows][k], [rows][groups] */
    float *scale;
} numbers;

static bool across(const packed_opts *o)
{
    return o->packing >= EK_PACK_GPTQ;
}

static void invent(numbers *x, const packed_opts *o, const char *name)
{
    const unsigned top = (1u << o->bits) - 1;
    const size_t n = (size_t)x->rows * (size_t)x->k, n_groups = (size_t)x->rows * (size_t)x->groups;
    x->code = ek_alloc(n), x->zero = ek_alloc(n_groups), x->scale = ek_alloc(n_groups * 4);
    for (size_t i = 0; i < n; i++) x->code[i] = (uint8_t)(hashed_bits(name, i) >> 20 & top);
    for (size_t i = 0; i < n_groups; i++) {
        uint64_t h = hashed_bits(name, (1ull << 40) + (o->group < 0 ? 0 : i));
        float s = ldexpf(1.0f + (float)(h & 127) / 128.0f, o->bits == 4 ? -5 : -9);
        x->scale[i] = s; /* eight bits: exact in all types */
        x->zero[i] = (uint8_t)(o->zeros ? h >> 30 & top : 1u << (o->bits - 1));
    }
}

/* What the format says a weight is. */
static void values(const numbers *x, float *w)
{
    for (int r = 0; r < x->rows; r++)
        for (int i = 0; i < x->k; i++) {
            size_t g = (size_t)r * (size_t)x->groups + (size_t)(i / x->group);
            int d = (int)x->code[(size_t)r * (size_t)x->k + (size_t)i] - x->zero[g];
            w[(size_t)r * (size_t)x->k + (size_t)i] = (float)((double)x->scale[g] * d);
        }
}

static void add(writer *t, const char *module, const char *suffix, const char *type, int64_t a, int64_t b,
                const void *data, size_t bytes)
{
    twice_add(t->packed, module, suffix, type, a, b, data, bytes);
}

static void add_scales(writer *t, const char *module, const char *suffix, const numbers *x)
{
    const char *type = t->o->scale_type;
    const bool wide = !strcmp(type, "F32"), bf16 = type[0] == 'B';
    size_t n = (size_t)x->rows * (size_t)x->groups;
    uint8_t *out = ek_alloc(n * 4);
    for (size_t r = 0; r < (size_t)x->rows; r++)
        for (size_t g = 0; g < (size_t)x->groups; g++) {
            float s = x->scale[r * (size_t)x->groups + g];
            size_t at = across(t->o) ? g * (size_t)x->rows + r : r * (size_t)x->groups + g;
            uint16_t half = bf16 ? ek_f32_bf16(s) : ek_f32_f16(s);
            if (wide) memcpy(out + 4 * at, &s, 4);
            else memcpy(out + 2 * at, &half, 2);
        }
    if (t->o->group < 0) n = 1;
    int64_t rows = t->o->group < 0 ? 1 : x->rows;
    if (across(t->o)) add(t, module, suffix, type, x->groups, x->rows, out, n * (wide ? 4 : 2));
    else add(t, module, suffix, type, rows, x->groups, out, n * (wide ? 4 : 2));
    free(out);
}

static void add_order(writer *t, const char *module, const char *suffix, const numbers *x)
{
    int32_t *order = ek_alloc((size_t)x->k * 4);
    for (int i = 0; i < x->k; i++) order[i] = (t->o->ordered ? (i * 7) % x->k : i) / x->group;
    if (t->o->order || t->o->ordered) add(t, module, suffix, "I32", x->k, 0, order, (size_t)x->k * 4);
    free(order);
}

static void add_rows(writer *t, const char *module, const numbers *x)
{
    const int bits = t->o->bits;
    size_t n = (size_t)x->rows * (size_t)x->k;
    uint8_t *codes = ek_alloc(n);
    int64_t shape[] = {x->rows, x->k};
    if (t->o->packing == EK_PACK_BYTES) {
        for (size_t i = 0; i < n; i++) codes[i] = (uint8_t)(int8_t)((int)x->code[i] - 128);
        add(t, module, ".weight", "I8", x->rows, x->k, codes, n);
    } else {
        for (size_t i = 0; i < n; i++) twice_bits(codes, i * (size_t)bits, x->code[i], bits);
        add(t, module, ".weight_packed", "I32", x->rows, (int64_t)x->k * bits / 32, codes, n * (size_t)bits / 8);
        add(t, module, ".weight_shape", "I64", 2, 0, shape, sizeof shape);
    }
    add_scales(t, module, ".weight_scale", x);
    add_order(t, module, ".weight_g_idx", x);
    if (t->o->zeros) { /* along the rows: word r bits / 32 of a column */
        int64_t words = ((int64_t)x->rows * bits + 31) / 32;
        uint8_t *zeros = ek_alloc((size_t)(words * x->groups) * 4);
        for (int r = 0; r < x->rows; r++)
            for (int g = 0; g < x->groups; g++) {
                size_t word = (size_t)(r * bits / 32 * x->groups + g);
                twice_bits(zeros, word * 32 + (size_t)(r * bits % 32), x->zero[r * x->groups + g], bits);
            }
        add(t, module, ".weight_zero_point", "I32", words, x->groups, zeros, (size_t)(words * x->groups) * 4);
        free(zeros);
    }
    free(codes);
}

static void add_across(writer *t, const char *module, const numbers *x)
{
    static const int nibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    const packed_opts *o = t->o;
    const bool awq = o->packing == EK_PACK_AWQ;
    const int bits = o->bits, words = x->rows * bits / 32;
    const unsigned top = (1u << bits) - 1;
    size_t n = (size_t)x->rows * (size_t)x->k;
    uint8_t *codes = ek_alloc(n), *zeros = ek_alloc((size_t)(x->groups * words) * 4);
    for (int r = 0; r < x->rows; r++) {
        size_t in_word = awq ? (size_t)(4 * nibble[r % 8]) : (size_t)(r * bits % 32);
        for (int i = 0; i < x->k; i++) {
            size_t word = awq ? (size_t)(i * words + r / 8) : (size_t)(i * bits / 32 * x->rows + r);
            twice_bits(codes, word * 32 + (awq ? in_word : (size_t)(i * bits % 32)),
                       x->code[(size_t)r * (size_t)x->k + (size_t)i], bits);
        }
        for (int g = 0; g < x->groups; g++) {
            unsigned z = x->zero[r * x->groups + g];
            if (o->packing == EK_PACK_GPTQ) z = (z - 1) & top;
            twice_bits(zeros, (size_t)(g * words + r * bits / 32) * 32 + in_word, z, bits);
        }
    }
    if (awq) add(t, module, ".qweight", "I32", x->k, words, codes, n * (size_t)bits / 8);
    else add(t, module, ".qweight", "I32", x->k * bits / 32, x->rows, codes, n * (size_t)bits / 8);
    add(t, module, ".qzeros", "I32", x->groups, words, zeros, (size_t)(x->groups * words) * 4);
    add_scales(t, module, ".scales", x);
    add_order(t, module, ".g_idx", x);
    free(codes), free(zeros);
}

/* Packs rows x k and replaces w by what the codes stand for; false where the shape does not allow it. */
static bool pack(void *arg, st_file *out, const char *module, int rows, int k, float *w)
{
    writer own = {.o = arg, .packed = out}, *t = &own;
    const packed_opts *o = t->o;
    int group = o->group > 0 ? o->group : k;
    if (k % group || k % 32 || rows % 32) return false;
    numbers x = {.rows = rows, .k = k, .groups = k / group, .group = group};
    invent(&x, o, module);
    values(&x, w);
    if (across(o)) add_across(t, module, &x);
    else add_rows(t, module, &x);
    free(x.code), free(x.zero), free(x.scale);
    return true;
}

void write_packed(const char *dir, const char *hf_dir, const ek_config *c, const packed_opts *o)
{
    static const char *const method[] = {"compressed-tensors\",\"format\":\"pack-quantized",
                                         "compressed-tensors\",\"format\":\"int-quantized", "gptq",
                                         "gptq\",\"checkpoint_format\":\"gptq_v2", "awq\",\"version\":\"gemm"};
    ek_buf text = {0};
    ek_buf_fmt(&text, "\"quantization_config\":{\"quant_method\":\"%s\",\"bits\":%d,\"group_size\":%d}",
               method[o->packing], o->bits, o->group);
    write_twice(dir, hf_dir, c, o->single_experts, pack, (void *)(uintptr_t)o, text.data);
    ek_buf_fini(&text);
}
