#include "tensor/gguf.h"

#include <string.h>

#include "base/err.h"

/* Types of values. Source: ggml, gguf.h. */
enum { U16 = 2, U32 = 4, I32 = 5, F32 = 6, BOOL = 7, STRING = 8, ARRAY = 9 };
enum { VERSION = 3 };

static void add_u32(ek_buf *b, uint32_t v)
{
    ek_buf_add(b, &v, sizeof v);
}

static void add_u64(ek_buf *b, uint64_t v)
{
    ek_buf_add(b, &v, sizeof v);
}

static void add_text(ek_buf *b, const char *text, size_t n)
{
    add_u64(b, n);
    ek_buf_add(b, text, n);
}

static void add_key(ek_gguf_meta *m, const char *key, uint32_t type)
{
    add_text(&m->bytes, key, strlen(key));
    add_u32(&m->bytes, type);
    m->n++;
}

static void put(ek_gguf_meta *m, const char *key, uint32_t type, const void *value, size_t bytes)
{
    add_key(m, key, type);
    ek_buf_add(&m->bytes, value, bytes);
}

static void put_array(ek_gguf_meta *m, const char *key, uint32_t type, size_t n, const void *values, size_t each)
{
    add_key(m, key, ARRAY);
    add_u32(&m->bytes, type);
    add_u64(&m->bytes, n);
    if (each) ek_buf_add(&m->bytes, values, n * each);
}

void ek_gguf_meta_fini(ek_gguf_meta *m)
{
    ek_buf_fini(&m->bytes);
    m->n = 0;
}

void ek_gguf_put_u16(ek_gguf_meta *m, const char *key, uint16_t v)
{
    put(m, key, U16, &v, sizeof v);
}

void ek_gguf_put_u32(ek_gguf_meta *m, const char *key, uint32_t v)
{
    put(m, key, U32, &v, sizeof v);
}

void ek_gguf_put_i32(ek_gguf_meta *m, const char *key, int32_t v)
{
    put(m, key, I32, &v, sizeof v);
}

void ek_gguf_put_f32(ek_gguf_meta *m, const char *key, float v)
{
    put(m, key, F32, &v, sizeof v);
}

void ek_gguf_put_bool(ek_gguf_meta *m, const char *key, bool v)
{
    put(m, key, BOOL, &v, 1);
}

void ek_gguf_put_string(ek_gguf_meta *m, const char *key, const char *text, size_t n)
{
    add_key(m, key, STRING);
    add_text(&m->bytes, text, n);
}

void ek_gguf_put_i32s(ek_gguf_meta *m, const char *key, const int32_t *v, size_t n)
{
    put_array(m, key, I32, n, v, sizeof *v);
}

void ek_gguf_put_f32s(ek_gguf_meta *m, const char *key, const float *v, size_t n)
{
    put_array(m, key, F32, n, v, sizeof *v);
}

void ek_gguf_put_bools(ek_gguf_meta *m, const char *key, const bool *v, size_t n)
{
    put_array(m, key, BOOL, n, v, 1);
}

void ek_gguf_put_strings(ek_gguf_meta *m, const char *key, size_t n)
{
    put_array(m, key, STRING, n, NULL, 0);
}

void ek_gguf_add_string(ek_gguf_meta *m, const char *text, size_t n)
{
    add_text(&m->bytes, text, n);
}

static uint64_t up(uint64_t n)
{
    return (n + EK_GGUF_ALIGN - 1) / EK_GGUF_ALIGN * EK_GGUF_ALIGN;
}

void ek_gguf_head(ek_buf *out, const ek_gguf_meta *m, ek_gguf_entry *entry, int n, uint64_t *data_bytes)
{
    const size_t from = out->len;
    uint64_t at = 0;
    ek_buf_add(out, "GGUF", 4);
    add_u32(out, VERSION);
    add_u64(out, (uint64_t)n);
    add_u64(out, m->n);
    ek_buf_add(out, m->bytes.data, m->bytes.len);
    for (int i = 0; i < n; i++) {
        ek_gguf_entry *e = &entry[i];
        EK_ASSERT(strlen(e->name) < 64 && e->n_dims >= 1 && e->n_dims <= 4);
        add_text(out, e->name, strlen(e->name));
        add_u32(out, (uint32_t)e->n_dims);
        for (int d = e->n_dims - 1; d >= 0; d--) add_u64(out, (uint64_t)e->dim[d]);
        add_u32(out, e->type);
        add_u64(out, e->offset = at);
        at = up(at + e->bytes);
    }
    while ((out->len - from) % EK_GGUF_ALIGN) ek_buf_char(out, 0);
    *data_bytes = at;
}
