#include "gguf.h"

#include <string.h>

enum { U32 = 4, F32 = 6, BOOL = 7, STRING = 8, ARRAY = 9, ALIGN = 32 };

static void u32(ek_buf *b, uint32_t v)
{
    ek_buf_add(b, &v, sizeof v);
}

static void u64(ek_buf *b, uint64_t v)
{
    ek_buf_add(b, &v, sizeof v);
}

void gguf_string(ek_buf *out, const char *s, size_t n)
{
    u64(out, n);
    ek_buf_add(out, s, n);
}

static void pad(ek_buf *b)
{
    while (b->len % ALIGN) ek_buf_char(b, '\0');
}

void gguf_value(gguf_file *f, const char *key, uint32_t kind, const void *bytes, size_t n)
{
    gguf_string(&f->meta, key, strlen(key));
    u32(&f->meta, kind);
    ek_buf_add(&f->meta, bytes, n);
    f->n_values++;
}

void gguf_array(gguf_file *f, const char *key, uint32_t kind, uint64_t count, const void *bytes, size_t n)
{
    gguf_value(f, key, ARRAY, &kind, sizeof kind);
    u64(&f->meta, count);
    ek_buf_add(&f->meta, bytes, n);
}

void gguf_u32(gguf_file *f, const char *key, uint32_t v)
{
    gguf_value(f, key, U32, &v, sizeof v);
}

void gguf_f32(gguf_file *f, const char *key, float v)
{
    gguf_value(f, key, F32, &v, sizeof v);
}

void gguf_bool(gguf_file *f, const char *key, int v)
{
    uint8_t byte = v != 0;
    gguf_value(f, key, BOOL, &byte, sizeof byte);
}

void gguf_text(gguf_file *f, const char *key, const char *s)
{
    ek_buf b = {0};
    gguf_string(&b, s, strlen(s));
    gguf_value(f, key, STRING, b.data, b.len);
    ek_buf_fini(&b);
}

void gguf_tensor(gguf_file *f, const char *name, uint32_t type, int n_dims, const int64_t *dim, const void *data,
                 size_t bytes)
{
    pad(&f->data);
    gguf_string(&f->table, name, strlen(name));
    u32(&f->table, (uint32_t)n_dims);
    for (int d = 0; d < n_dims; d++) u64(&f->table, (uint64_t)dim[d]);
    u32(&f->table, type);
    u64(&f->table, f->data.len);
    ek_buf_add(&f->data, data, bytes);
    f->n_tensors++;
}

void gguf_bytes(const gguf_file *f, ek_buf *out)
{
    ek_buf_str(out, "GGUF");
    u32(out, 3);
    u64(out, f->n_tensors);
    u64(out, f->n_values);
    ek_buf_add(out, ek_buf_text(&f->meta), f->meta.len);
    ek_buf_add(out, ek_buf_text(&f->table), f->table.len);
    pad(out);
    ek_buf_add(out, ek_buf_text(&f->data), f->data.len);
    pad(out);
}

void gguf_save(gguf_file *f, const char *dir, const char *name)
{
    ek_buf b = {0};
    gguf_bytes(f, &b);
    put_file(dir, name, b.data, b.len);
    ek_buf_fini(&b);
    gguf_fini(f);
}

void gguf_fini(gguf_file *f)
{
    ek_buf_fini(&f->meta);
    ek_buf_fini(&f->table);
    ek_buf_fini(&f->data);
    *f = (gguf_file){0};
}
