/* The bytes of one GGUF file: magic, version, counts, metadata, the table of tensors, data. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "tensor/gguf_state.h"

enum {
    MAX_NAME = 128,     /* ggml's own limit for tensors is 64 bytes */
    MIN_VALUE = 13,     /* bytes of the shortest entry: the length of an empty key, a type, one byte */
    MIN_TENSOR = 24,    /* bytes of a tensor's entry: the length of an empty name, n_dims, a type, an offset */
    MAX_COUNT = 1 << 24 /* of either */
};

typedef struct reader {
    const uint8_t *start, *at, *end;
    const char *file;
} reader;

static size_t left(const reader *r)
{
    return (size_t)(r->end - r->at);
}

static ek_err cut(const reader *r, const char *what)
{
    return ek_fail(EK_EFORMAT, "%s: ends inside %s, at byte %zu", r->file, what, (size_t)(r->end - r->start));
}

static ek_err read_u32(reader *r, uint32_t *out, const char *what)
{
    *out = 0;
    if (left(r) < sizeof *out) return cut(r, what);
    memcpy(out, r->at, sizeof *out);
    r->at += sizeof *out;
    return EK_OK;
}

static ek_err read_u64(reader *r, uint64_t *out, const char *what)
{
    *out = 0;
    if (left(r) < sizeof *out) return cut(r, what);
    memcpy(out, r->at, sizeof *out);
    r->at += sizeof *out;
    return EK_OK;
}

static ek_err read_text(reader *r, const char **s, size_t *n, const char *what)
{
    uint64_t length;
    EK_TRY(read_u64(r, &length, what));
    if (length > left(r))
        return ek_fail(EK_EFORMAT, "%s: %s of %llu bytes is stated at byte %zu, %zu are left", r->file, what,
                       (unsigned long long)length, (size_t)(r->at - r->start), left(r));
    *s = (const char *)r->at;
    *n = (size_t)length;
    r->at += length;
    return EK_OK;
}

static int shown(size_t n) /* the part of a key or name that fits into the line of an error */
{
    return n < 100 ? (int)n : 100;
}

/* ------------------------------------------------------------------ metadata */

static const uint8_t kind_bytes[EK_GGUF_KINDS] = {
    [EK_GGUF_U8] = 1,  [EK_GGUF_I8] = 1,   [EK_GGUF_U16] = 2, [EK_GGUF_I16] = 2, [EK_GGUF_U32] = 4, [EK_GGUF_I32] = 4,
    [EK_GGUF_F32] = 4, [EK_GGUF_BOOL] = 1, [EK_GGUF_U64] = 8, [EK_GGUF_I64] = 8, [EK_GGUF_F64] = 8};

static ek_err read_kind(reader *r, const ek_gguf_value *v, uint32_t *kind, bool element)
{
    EK_TRY(read_u32(r, kind, "the type of a metadata value"));
    if (*kind < EK_GGUF_KINDS && (*kind != EK_GGUF_ARRAY || !element)) return EK_OK;
    return ek_fail(EK_EFORMAT, "%s: metadata %.*s has %s type %u", r->file, shown(v->n_key), v->key,
                   element ? "elements of" : "the", *kind);
}

static ek_err read_elements(reader *r, ek_gguf_value *v)
{
    v->data = r->at;
    if (v->kind == EK_GGUF_STRING) {
        if (v->count > left(r) / sizeof(uint64_t))
            return ek_fail(EK_EFORMAT, "%s: metadata %.*s states %llu strings, %zu bytes are left", r->file,
                           shown(v->n_key), v->key, (unsigned long long)v->count, left(r));
        for (uint64_t i = 0; i < v->count; i++) {
            const char *s;
            size_t n;
            EK_TRY(read_text(r, &s, &n, "a string of the metadata"));
        }
    } else {
        uint64_t bytes;
        if (__builtin_mul_overflow(v->count, (uint64_t)kind_bytes[v->kind], &bytes) || bytes > left(r))
            return ek_fail(EK_EFORMAT, "%s: metadata %.*s states %llu values of %d bytes, %zu bytes are left", r->file,
                           shown(v->n_key), v->key, (unsigned long long)v->count, kind_bytes[v->kind], left(r));
        r->at += bytes;
    }
    v->bytes = (size_t)(r->at - v->data);
    return EK_OK;
}

static ek_err read_value(reader *r, ek_gguf_value *v)
{
    uint32_t kind;
    EK_TRY(read_text(r, &v->key, &v->n_key, "a key of the metadata"));
    EK_TRY(read_kind(r, v, &kind, false));
    v->is_array = kind == EK_GGUF_ARRAY;
    v->count = 1;
    if (v->is_array) {
        EK_TRY(read_kind(r, v, &kind, true));
        EK_TRY(read_u64(r, &v->count, "the length of an array"));
    }
    v->kind = (ek_gguf_kind)kind;
    return read_elements(r, v);
}

const ek_gguf_value *ek_gguf_file_find(const ek_gguf_file *file, const char *key)
{
    for (int i = 0; i < file->n_values; i++)
        if (file->value[i].n_key == strlen(key) && memcmp(file->value[i].key, key, strlen(key)) == 0)
            return &file->value[i];
    return NULL;
}

static ek_err read_alignment(const ek_gguf_file *file, uint64_t *out)
{
    const ek_gguf_value *v = ek_gguf_file_find(file, "general.alignment");
    int64_t a;
    *out = 32;
    if (!v) return EK_OK;
    if (v->is_array || v->kind != EK_GGUF_U32 || !ek_gguf_int(v, 0, &a) || a == 0 || (a & (a - 1)))
        return ek_fail(EK_EFORMAT, "%s: general.alignment must be a power of two of type u32", file->name);
    *out = (uint64_t)a;
    return EK_OK;
}

/* ------------------------------------------------------------------ tensors */

static ek_err bytes_of(const reader *r, const ek_gguf_tensor *t, size_t *out)
{
    const ek_gguf_type *type = ek_gguf_type_of(t->type);
    uint64_t n = 1;
    *out = 0;
    for (int d = 0; d < EK_GGUF_MAX_DIMS; d++)
        if (t->dim[d] < 0 || __builtin_mul_overflow(n, (uint64_t)t->dim[d], &n) || n > INT64_MAX / 16)
            return ek_fail(EK_EFORMAT, "%s: tensor %s has more elements than a file can hold", r->file, t->name);
    if (!type) return EK_OK;
    if (t->dim[0] % type->block)
        return ek_fail(EK_EFORMAT, "%s: tensor %s has rows of %lld weights, blocks of %s have %d", r->file, t->name,
                       (long long)t->dim[0], type->name, type->block);
    *out = (size_t)(n / (uint64_t)type->block * (uint64_t)type->bytes);
    return EK_OK;
}

/* data holds the offset until the beginning of the data is known. */
static ek_err read_tensor(reader *r, ek_gguf_tensor *t, uint64_t *offset)
{
    static const char what[] = "the table of tensors";
    const char *name = "";
    size_t n = 0;
    uint32_t n_dims = 0;
    EK_TRY(read_text(r, &name, &n, "the name of a tensor"));
    if (n == 0 || n > MAX_NAME || memchr(name, 0, n))
        return ek_fail(EK_EFORMAT, "%s: a tensor has a name of %zu bytes, at byte %zu; 1 to %d without zeros can be",
                       r->file, n, (size_t)((const uint8_t *)name - r->start), MAX_NAME);
    char *copy = ek_alloc(n + 1);
    memcpy(copy, name, n);
    t->name = copy;
    EK_TRY(read_u32(r, &n_dims, what));
    if (n_dims > EK_GGUF_MAX_DIMS)
        return ek_fail(EK_EFORMAT, "%s: tensor %s has %u dimensions, at most %d can be", r->file, t->name, n_dims,
                       EK_GGUF_MAX_DIMS);
    t->n_dims = (int)n_dims;
    for (int d = 0; d < EK_GGUF_MAX_DIMS; d++) {
        uint64_t size = 1;
        if (d < t->n_dims) EK_TRY(read_u64(r, &size, what));
        t->dim[d] = size > INT64_MAX ? -1 : (int64_t)size;
    }
    EK_TRY(read_u32(r, &t->type, what));
    EK_TRY(read_u64(r, offset, what));
    return bytes_of(r, t, &t->bytes);
}

static ek_err place(const reader *r, ek_gguf_tensor *t, uint64_t offset, uint64_t alignment, uint64_t data_at)
{
    uint64_t size = (uint64_t)(r->end - r->start), room = data_at < size ? size - data_at : 0;
    if (offset % alignment)
        return ek_fail(EK_EFORMAT, "%s: tensor %s starts at byte %llu of the data, which is no multiple of %llu",
                       r->file, t->name, (unsigned long long)offset, (unsigned long long)alignment);
    if (offset > room || t->bytes > room - offset)
        return ek_fail(EK_EFORMAT,
                       "%s: tensor %s takes bytes %llu to %llu, the file has %llu: it is damaged or was not copied "
                       "whole",
                       r->file, t->name, (unsigned long long)(data_at + offset),
                       (unsigned long long)(data_at + offset + t->bytes), (unsigned long long)size);
    t->data = r->start + (room ? data_at + offset : size);
    return EK_OK;
}

static int by_place(const void *a, const void *b)
{
    const ek_gguf_tensor *x = *(const ek_gguf_tensor *const *)a, *y = *(const ek_gguf_tensor *const *)b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static ek_err check_overlap(const ek_gguf_tensor *t, int n)
{
    ek_err err = EK_OK;
    const ek_gguf_tensor **at = ek_alloc(sizeof *at * ((size_t)n + 1));
    for (int i = 0; i < n; i++) at[i] = &t[i];
    if (n) qsort(at, (size_t)n, sizeof *at, by_place);
    for (int i = 1; i < n && !err; i++)
        if (at[i - 1]->data + at[i - 1]->bytes > at[i]->data)
            err = ek_fail(EK_EFORMAT, "%s: tensors %s and %s overlap", at[i]->file, at[i - 1]->name, at[i]->name);
    free(at);
    return err;
}

static ek_gguf_tensor *new_tensor(ek_gguf *g)
{
    if (g->n_tensors == g->cap) {
        g->cap = g->cap ? 2 * g->cap : 256;
        g->tensor = ek_realloc(g->tensor, sizeof *g->tensor * (size_t)g->cap);
    }
    g->tensor[g->n_tensors] = (ek_gguf_tensor){0};
    return &g->tensor[g->n_tensors++];
}

static ek_err read_tensors(ek_gguf *g, ek_gguf_file *file, reader *r, uint64_t n)
{
    int first = g->n_tensors;
    uint64_t alignment, *offset = ek_alloc(sizeof *offset * ((size_t)n + 1));
    ek_err err = read_alignment(file, &alignment);
    for (uint64_t i = 0; i < n && !err; i++) {
        ek_gguf_tensor *t = new_tensor(g);
        t->file = file->name;
        err = read_tensor(r, t, &offset[i]);
    }
    uint64_t data_at = ((uint64_t)(r->at - r->start) + alignment - 1) / alignment * alignment;
    for (uint64_t i = 0; i < n && !err; i++) err = place(r, &g->tensor[first + (int)i], offset[i], alignment, data_at);
    free(offset);
    if (err) return err;
    file->n_tensors = (int)n;
    return check_overlap(g->tensor + first, (int)n);
}

/* ------------------------------------------------------------------ the file */

static ek_err read_head(reader *r, uint64_t *n_tensors, uint64_t *n_values)
{
    uint32_t version;
    if (left(r) < 4 || memcmp(r->at, "GGUF", 4) != 0)
        return ek_fail(EK_EFORMAT, "%s: is not a GGUF file, it does not start with GGUF", r->file);
    r->at += 4;
    EK_TRY(read_u32(r, &version, "its head"));
    if (version && !(version & 0xffff))
        return ek_fail(EK_EUNSUPPORTED, "%s: is a big-endian GGUF file; little-endian ones can be read", r->file);
    if (version < 2 || version > 3)
        return ek_fail(EK_EUNSUPPORTED, "%s: is a GGUF file of version %u; 2 and 3 can be read", r->file, version);
    EK_TRY(read_u64(r, n_tensors, "its head"));
    EK_TRY(read_u64(r, n_values, "its head"));
    if (*n_values > left(r) / MIN_VALUE || *n_values > MAX_COUNT)
        return ek_fail(EK_EFORMAT, "%s: states %llu metadata values, %zu bytes are left", r->file,
                       (unsigned long long)*n_values, left(r));
    if (*n_tensors > left(r) / MIN_TENSOR || *n_tensors > MAX_COUNT)
        return ek_fail(EK_EFORMAT, "%s: states %llu tensors, %zu bytes are left", r->file,
                       (unsigned long long)*n_tensors, left(r));
    return EK_OK;
}

ek_err ek_gguf_file_parse(ek_gguf *g, ek_gguf_file *file, const uint8_t *data, size_t size)
{
    reader r = {.start = data, .at = data, .end = data + size, .file = file->name};
    uint64_t n_tensors = 0, n_values = 0;
    EK_TRY(read_head(&r, &n_tensors, &n_values));
    file->value = ek_alloc(sizeof *file->value * ((size_t)n_values + 1));
    for (uint64_t i = 0; i < n_values; i++) {
        EK_TRY(read_value(&r, &file->value[file->n_values]));
        file->n_values++;
    }
    return read_tensors(g, file, &r, n_tensors);
}
