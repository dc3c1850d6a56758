/* Look-ups in open GGUF files, and the values of metadata. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "tensor/dtype.h"
#include "tensor/gguf_state.h"

/* Source: ggml.h, ggml-common.h. Types with a row of the same name in ops/weights/weight_type.c can be run. */
static const ek_gguf_type types[] = {
    [0] = {"f32", 1, 4},         [1] = {"f16", 1, 2},         [2] = {"q4_0", 32, 18},      [3] = {"q4_1", 32, 20},
    [6] = {"q5_0", 32, 22},      [7] = {"q5_1", 32, 24},      [8] = {"q8_0", 32, 34},      [9] = {"q8_1", 32, 36},
    [10] = {"q2_k", 256, 84},    [11] = {"q3_k", 256, 110},   [12] = {"q4_k", 256, 144},   [13] = {"q5_k", 256, 176},
    [14] = {"q6_k", 256, 210},   [15] = {"q8_k", 256, 292},   [16] = {"iq2_xxs", 256, 66}, [17] = {"iq2_xs", 256, 74},
    [18] = {"iq3_xxs", 256, 98}, [19] = {"iq1_s", 256, 50},   [20] = {"iq4_nl", 32, 18},   [21] = {"iq3_s", 256, 110},
    [22] = {"iq2_s", 256, 82},   [23] = {"iq4_xs", 256, 136}, [24] = {"i8", 1, 1},         [25] = {"i16", 1, 2},
    [26] = {"i32", 1, 4},        [27] = {"i64", 1, 8},        [28] = {"f64", 1, 8},        [29] = {"iq1_m", 256, 56},
    [30] = {"bf16", 1, 2},       [34] = {"tq1_0", 256, 54},   [35] = {"tq2_0", 256, 66},   [39] = {"mxfp4", 32, 17},
    [40] = {"nvfp4", 64, 36},    [41] = {"q1_0", 128, 18},    [42] = {"q2_0", 64, 18},
};

const ek_gguf_type *ek_gguf_type_of(uint32_t number)
{
    if (number >= sizeof types / sizeof *types) return NULL;
    return types[number].name ? &types[number] : NULL;
}

/* ------------------------------------------------------------------ look-up */

static int compare_keys(const char *a, size_t n, const char *b, size_t m)
{
    int c = memcmp(a, b, n < m ? n : m);
    return c ? c : n < m ? -1 : n > m;
}

static int by_key(const void *a, const void *b)
{
    const ek_gguf_value *x = *(const ek_gguf_value *const *)a, *y = *(const ek_gguf_value *const *)b;
    return compare_keys(x->key, x->n_key, y->key, y->n_key);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const ek_gguf_tensor *const *)a)->name, (*(const ek_gguf_tensor *const *)b)->name);
}

ek_err ek_gguf_index(ek_gguf *g)
{
    const ek_gguf_file *p = &g->file[0];
    g->by_key = ek_alloc(sizeof *g->by_key * ((size_t)p->n_values + 1));
    for (int i = 0; i < p->n_values; i++) g->by_key[i] = &p->value[i];
    if (p->n_values) qsort(g->by_key, (size_t)p->n_values, sizeof *g->by_key, by_key);
    for (int i = 1; i < p->n_values; i++)
        if (by_key(&g->by_key[i - 1], &g->by_key[i]) == 0)
            return ek_fail(EK_EFORMAT, "%s: metadata %.*s is there twice", p->name,
                           g->by_key[i]->n_key < 100 ? (int)g->by_key[i]->n_key : 100, g->by_key[i]->key);
    g->by_name = ek_alloc(sizeof *g->by_name * ((size_t)g->n_tensors + 1));
    for (int i = 0; i < g->n_tensors; i++) g->by_name[i] = &g->tensor[i];
    if (g->n_tensors) qsort(g->by_name, (size_t)g->n_tensors, sizeof *g->by_name, by_name);
    for (int i = 1; i < g->n_tensors; i++)
        if (by_name(&g->by_name[i - 1], &g->by_name[i]) == 0)
            return ek_fail(EK_EFORMAT, "tensor %s is in %s and again in %s", g->by_name[i]->name,
                           g->by_name[i - 1]->file, g->by_name[i]->file);
    return EK_OK;
}

const ek_gguf_value *ek_gguf_find(const ek_gguf *g, const char *key)
{
    ek_gguf_value v = {.key = key, .n_key = strlen(key)};
    const ek_gguf_value *wanted = &v;
    int n = g->file[0].n_values;
    if (!n) return NULL;
    const ek_gguf_value **found = bsearch(&wanted, g->by_key, (size_t)n, sizeof *g->by_key, by_key);
    return found ? *found : NULL;
}

int ek_gguf_tensor_count(const ek_gguf *g)
{
    return g->n_tensors;
}

const ek_gguf_tensor *ek_gguf_tensor_at(const ek_gguf *g, int i)
{
    EK_ASSERT(i >= 0 && i < g->n_tensors);
    return &g->tensor[i];
}

const ek_gguf_tensor *ek_gguf_tensor_find(const ek_gguf *g, const char *name)
{
    ek_gguf_tensor t = {.name = name};
    const ek_gguf_tensor *wanted = &t;
    if (!g->n_tensors) return NULL;
    const ek_gguf_tensor **found = bsearch(&wanted, g->by_name, (size_t)g->n_tensors, sizeof *g->by_name, by_name);
    return found ? *found : NULL;
}

/* ------------------------------------------------------------------ values */

#define LOAD(T, from, i)                                                      \
    ({                                                                        \
        T load_v;                                                             \
        memcpy(&load_v, (from) + sizeof load_v * (size_t)(i), sizeof load_v); \
        load_v;                                                               \
    })

bool ek_gguf_int(const ek_gguf_value *v, uint64_t i, int64_t *out)
{
    if (i >= v->count) return false;
    switch (v->kind) {
    case EK_GGUF_BOOL: *out = v->data[i] != 0; return true;
    case EK_GGUF_U8: *out = v->data[i]; return true;
    case EK_GGUF_I8: *out = LOAD(int8_t, v->data, i); return true;
    case EK_GGUF_U16: *out = LOAD(uint16_t, v->data, i); return true;
    case EK_GGUF_I16: *out = LOAD(int16_t, v->data, i); return true;
    case EK_GGUF_U32: *out = LOAD(uint32_t, v->data, i); return true;
    case EK_GGUF_I32: *out = LOAD(int32_t, v->data, i); return true;
    case EK_GGUF_I64: *out = LOAD(int64_t, v->data, i); return true;
    case EK_GGUF_U64: {
        uint64_t u = LOAD(uint64_t, v->data, i);
        *out = (int64_t)u;
        return u <= INT64_MAX;
    }
    default: return false;
    }
}

bool ek_gguf_float(const ek_gguf_value *v, uint64_t i, double *out)
{
    int64_t whole;
    if (i >= v->count) return false;
    if (v->kind == EK_GGUF_F32) *out = (double)LOAD(float, v->data, i);
    else if (v->kind == EK_GGUF_F64) *out = LOAD(double, v->data, i);
    else if (v->kind != EK_GGUF_BOOL && ek_gguf_int(v, i, &whole)) *out = (double)whole;
    else return false;
    return true;
}

bool ek_gguf_next_text(const ek_gguf_value *v, const uint8_t **at, const char **s, size_t *n)
{
    if (v->kind != EK_GGUF_STRING || *at == v->data + v->bytes) return false;
    *n = (size_t)LOAD(uint64_t, *at, 0);
    *s = (const char *)*at + sizeof(uint64_t);
    *at += sizeof(uint64_t) + *n;
    return true;
}

bool ek_gguf_text(const ek_gguf_value *v, const char **s, size_t *n)
{
    const uint8_t *at = v->data;
    return !v->is_array && ek_gguf_next_text(v, &at, s, n);
}

bool ek_gguf_text_is(const ek_gguf_value *v, const char *s)
{
    const char *has;
    size_t n;
    return v && ek_gguf_text(v, &has, &n) && n == strlen(s) && memcmp(has, s, n) == 0;
}
