#include "gguf_edit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "gguf.h"
#include "gguf_memory.h"

enum { MAX_DATA = 1 << 20 };

unsigned gguf_take(gguf_input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

unsigned gguf_take2(gguf_input *in)
{
    unsigned low = gguf_take(in);
    return low | gguf_take(in) << 8;
}

/* Numbers that break things, or any byte. */
static int64_t number(gguf_input *in)
{
    static const int64_t odd[] = {INT32_MAX, INT32_MIN, UINT32_MAX, INT64_MAX, INT64_MIN, -1,  65535, 65536,
                                  1 << 20,   1 << 24,   1 << 28,    256,       512,       128, 64,    32};
    unsigned v = gguf_take(in);
    return v < 224 ? (int64_t)v : v < 240 ? odd[v - 224] : (int64_t)gguf_take2(in);
}

static double fraction(gguf_input *in)
{
    static const double odd[] = {0, 1, -1, NAN, INFINITY, 1e30, 1e-30, 0.25, 1e4, 30, 1e-6, 1e9, 0.5, 2, -0.0, 1e300};
    return odd[gguf_take(in) % 16];
}

/* ------------------------------------------------------------------ gguf_tables */

static void *make(gguf_tables *t, size_t n)
{
    return t->made[t->n_made++] = ek_alloc(n + 1);
}

void gguf_tables_read(gguf_tables *t, const ek_gguf *g)
{
    *t = (gguf_tables){.n_values = gguf_value_count(g), .n_tensors = ek_gguf_tensor_count(g)};
    if (t->n_values > GGUF_MAX_ROWS || t->n_tensors > GGUF_MAX_ROWS) __builtin_trap();
    for (int i = 0; i < t->n_values; i++) {
        const ek_gguf_value *v = gguf_value_at(g, i);
        t->value[i] = (gguf_row_value){
            .kind = v->kind, .is_array = v->is_array, .count = v->count, .data = v->data, .bytes = v->bytes};
        memcpy(t->value[i].key, v->key, v->n_key < GGUF_MAX_KEY ? v->n_key : GGUF_MAX_KEY - 1);
    }
    for (int i = 0; i < t->n_tensors; i++) {
        const ek_gguf_tensor *v = ek_gguf_tensor_at(g, i);
        gguf_row_tensor *to = &t->tensor[i];
        *to = (gguf_row_tensor){.type = v->type, .n_dims = v->n_dims, .data = v->data, .bytes = v->bytes};
        memcpy(to->dim, v->dim, sizeof to->dim);
        memcpy(to->name, v->name, strlen(v->name) < GGUF_MAX_KEY ? strlen(v->name) : GGUF_MAX_KEY - 1);
    }
}

/* What a tensor takes; 0 where nobody can say. */
static size_t bytes_of(const gguf_row_tensor *t)
{
    const ek_gguf_type *type = ek_gguf_type_of(t->type);
    double n = 1;
    for (int d = 0; d < t->n_dims; d++) n *= (double)(t->dim[d] < 0 ? 1e30 : (double)t->dim[d]);
    if (!type || n > MAX_DATA || (t->n_dims && t->dim[0] % type->block)) return 0;
    return (size_t)n / (size_t)type->block * (size_t)type->bytes;
}

void gguf_tables_write(const gguf_tables *t, ek_buf *out)
{
    gguf_file f = {0};
    ek_buf data = {0};
    for (int i = 0; i < t->n_values; i++) {
        const gguf_row_value *v = &t->value[i];
        if (v->is_array) gguf_array(&f, v->key, v->kind, v->count, v->data, v->bytes);
        else gguf_value(&f, v->key, v->kind, v->data, v->bytes);
    }
    for (int i = 0; i < t->n_tensors; i++) {
        const gguf_row_tensor *one = &t->tensor[i];
        size_t bytes = bytes_of(one);
        ek_buf_clear(&data);
        if (f.data.len + bytes > MAX_DATA) bytes = 0;
        while (data.len < bytes && one->bytes) {
            size_t left = bytes - data.len;
            ek_buf_add(&data, one->data, left < one->bytes ? left : one->bytes);
        }
        while (data.len < bytes) ek_buf_char(&data, (char)data.len);
        if (one->poke && data.len) data.data[one->poke_at % data.len] = (char)one->poke;
        gguf_tensor(&f, one->name, one->type, one->n_dims, one->dim, ek_buf_text(&data), data.len);
    }
    gguf_bytes(&f, out);
    gguf_fini(&f);
    ek_buf_fini(&data);
}

/* ------------------------------------------------------------------ edits */

static size_t kind_bytes(uint32_t kind)
{
    static const uint8_t size[EK_GGUF_KINDS] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return kind < EK_GGUF_KINDS ? size[kind] : 0;
}

/* A number in place of the value, or of one element of an array. */
static void set_value(gguf_tables *t, gguf_row_value *v, gguf_input *in, bool whole)
{
    size_t size = kind_bytes(v->kind), at = whole && v->count ? gguf_take(in) % v->count * size : 0;
    if (!size || v->bytes < size) return;
    uint8_t *data = make(t, v->bytes);
    memcpy(data, v->data, v->bytes);
    int64_t n = number(in);
    double d = fraction(in);
    float f = (float)d;
    if (v->kind == EK_GGUF_F32) memcpy(data + at, &f, sizeof f);
    else if (v->kind == EK_GGUF_F64) memcpy(data + at, &d, sizeof d);
    else memcpy(data + at, &n, size);
    v->data = data;
}

/* The same value in another type, array or not. */
static void retype_value(gguf_tables *t, gguf_row_value *v, gguf_input *in)
{
    const uint64_t count = gguf_take(in) % 40;
    v->kind = gguf_take(in) % (EK_GGUF_KINDS + 1), v->is_array = count > 0, v->count = count ? count : 1;
    size_t size = kind_bytes(v->kind), bytes = v->kind == EK_GGUF_STRING ? v->count * 8 : v->count * size;
    uint8_t *data = make(t, bytes);
    if (size) /* zeros are empty strings */
        for (size_t i = 0; i < bytes; i += size) data[i] = (uint8_t)gguf_take(in);
    v->data = data, v->bytes = bytes;
}

static void set_text(gguf_tables *t, gguf_row_value *v, gguf_input *in)
{
    uint64_t n = gguf_take(in) % 32;
    uint8_t *data = make(t, sizeof n + n);
    memcpy(data, &n, sizeof n);
    for (uint64_t i = 0; i < n; i++) data[sizeof n + i] = (uint8_t)gguf_take(in);
    v->kind = EK_GGUF_STRING, v->is_array = false, v->count = 1, v->data = data, v->bytes = sizeof n + n;
}

static void rename_tensor(gguf_row_tensor *t, gguf_input *in, const gguf_edit_words *words)
{
    snprintf(t->name, sizeof t->name, "%s", words->name[gguf_take(in) % 16]);
}

static void edit_tensor(gguf_tables *t, gguf_row_tensor *one, unsigned how, gguf_input *in,
                        const gguf_edit_words *words)
{
    gguf_row_tensor *other = &t->tensor[gguf_take2(in) % (unsigned)t->n_tensors], kept = *one;
    const int d = (int)(gguf_take(in) % EK_GGUF_MAX_DIMS);
    switch (how) {
    case 0: *one = t->tensor[--t->n_tensors]; break;
    case 1: one->type = gguf_take(in) % 48; break;
    case 2: one->dim[d] = number(in); break;
    case 3: one->n_dims = d + 1; break;
    case 4:
        memcpy(one->name, other->name, GGUF_MAX_KEY);
        memcpy(other->name, kept.name, GGUF_MAX_KEY);
        break;
    case 5: rename_tensor(one, in, words); break;
    case 6:
        if (t->n_tensors == GGUF_MAX_ROWS) break;
        t->tensor[t->n_tensors] = kept;
        rename_tensor(&t->tensor[t->n_tensors++], in, words);
        break;
    case 7: one->poke_at = gguf_take2(in), one->poke = (uint8_t)gguf_take(in); break;
    case 8:
        one->dim[d] = one->dim[(d + 1) % EK_GGUF_MAX_DIMS], one->dim[(d + 1) % EK_GGUF_MAX_DIMS] = kept.dim[d];
        break;
    default: { /* all matrices of blocks */
        const uint32_t type = gguf_take(in) % 48;
        for (int i = 0; i < t->n_tensors; i++)
            if (t->tensor[i].n_dims > 1) t->tensor[i].type = type;
    }
    }
}

static void edit_value(gguf_tables *t, gguf_row_value *v, unsigned how, gguf_input *in, const gguf_edit_words *words)
{
    const gguf_row_value kept = *v, *other = &t->value[gguf_take(in) % (unsigned)t->n_values];
    switch (how) {
    case 0: *v = t->value[--t->n_values]; break;
    case 1: set_value(t, v, in, false); break;
    case 2: set_value(t, v, in, true); break;
    case 3: retype_value(t, v, in); break;
    case 4: set_text(t, v, in); break;
    case 5: /* the value of another key */
        *v = *other;
        memcpy(v->key, kept.key, GGUF_MAX_KEY);
        break;
    default: /* one more key of the architecture */
        if (t->n_values == GGUF_MAX_ROWS) break;
        t->value[t->n_values] = kept;
        snprintf(t->value[t->n_values++].key, GGUF_MAX_KEY, "%s", words->key[gguf_take(in) % 8]);
    }
}

void gguf_tables_edit(gguf_tables *t, gguf_input *in, const gguf_edit_words *words)
{
    for (int i = 0; i < GGUF_MAX_EDITS && in->at < in->end && t->n_values && t->n_tensors; i++) {
        const unsigned how = gguf_take(in) % 17, at = gguf_take2(in);
        if (how < 10) edit_tensor(t, &t->tensor[at % (unsigned)t->n_tensors], how, in, words);
        else edit_value(t, &t->value[at % (unsigned)t->n_values], how - 10, in, words);
    }
}

void gguf_tables_fini(gguf_tables *t)
{
    for (int i = 0; i < t->n_made; i++) free(t->made[i]);
    t->n_made = 0;
}
