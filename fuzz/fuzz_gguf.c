/* A GGUF file from bytes. Properties: what is accepted, written again value by value and tensor by tensor, gives the
 * same bytes up to the data; every tensor lies in the file; and a file cut inside its tables is refused. A
 * configuration read from it keeps the rules between its fields. */
#include <stdlib.h>
#include <string.h>

#include "../tests/support/gguf_memory.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "model/source/source_gguf.h"
#include "tensor/gguf.h"

static void u32(ek_buf *b, uint32_t v)
{
    ek_buf_add(b, &v, sizeof v);
}

static void u64(ek_buf *b, uint64_t v)
{
    ek_buf_add(b, &v, sizeof v);
}

static void write_value(ek_buf *b, const ek_gguf_value *v)
{
    u64(b, v->n_key);
    ek_buf_add(b, v->key, v->n_key);
    if (v->is_array) u32(b, EK_GGUF_ARRAY);
    u32(b, v->kind);
    if (v->is_array) u64(b, v->count);
    ek_buf_add(b, v->data, v->bytes);
}

/* The offset is known up to what the alignment adds before the data. */
static void write_tensor(ek_buf *b, const ek_gguf_tensor *t, const uint8_t *data_at)
{
    u64(b, strlen(t->name));
    ek_buf_str(b, t->name);
    u32(b, (uint32_t)t->n_dims);
    for (int d = 0; d < t->n_dims; d++) u64(b, (uint64_t)t->dim[d]);
    u32(b, t->type);
    u64(b, (uint64_t)(t->data - data_at));
}

static void walk_texts(const ek_gguf_value *v)
{
    const uint8_t *at = v->data;
    const char *s;
    size_t n;
    uint64_t count = 0;
    if (v->kind != EK_GGUF_STRING) return;
    while (ek_gguf_next_text(v, &at, &s, &n)) {
        if ((const uint8_t *)s < v->data || (const uint8_t *)s + n > v->data + v->bytes) __builtin_trap();
        count++;
    }
    if (count != v->count || at != v->data + v->bytes) __builtin_trap();
}

/* Length of the tables, written anew. */
static size_t rewrite(const ek_gguf *g, const uint8_t *data, size_t n)
{
    ek_buf b = {0};
    int64_t align = 32;
    ek_buf_add(&b, data, 24);
    for (int i = 0; i < gguf_value_count(g); i++) {
        write_value(&b, gguf_value_at(g, i));
        walk_texts(gguf_value_at(g, i));
    }
    size_t table = b.len;
    const ek_gguf_value *a = ek_gguf_find(g, "general.alignment");
    if (a && !ek_gguf_int(a, 0, &align)) __builtin_trap();
    for (int pass = 0; pass < 2; pass++) { /* the first finds where the data begins */
        size_t data_at = (b.len + (size_t)align - 1) / (size_t)align * (size_t)align;
        if (pass) b.len = table;
        for (int i = 0; i < ek_gguf_tensor_count(g); i++) {
            const ek_gguf_tensor *t = ek_gguf_tensor_at(g, i);
            if (t->data < data || t->data > data + n || t->bytes > (size_t)(data + n - t->data)) __builtin_trap();
            if (ek_gguf_tensor_find(g, t->name) != t) __builtin_trap();
            write_tensor(&b, t, data_at < n ? data + data_at : data + n);
        }
    }
    if (b.len > n || memcmp(b.data, data, b.len) != 0) __builtin_trap();
    size_t used = b.len;
    ek_buf_fini(&b);
    return used;
}

static void check_config(ek_gguf *g)
{
    static ek_config c, again;
    ek_gguf_source s = {.g = g, .file = "f"};
    if (ek_gguf_config(&s, &c) != EK_OK) {
        if (strchr(ek_err_text(), '\n')) __builtin_trap();
        return;
    }
    again = c;
    if (ek_config_finish(&again) != EK_OK || memcmp(&c, &again, sizeof c) != 0) __builtin_trap();
    if (c.n_layers < 1 || c.vocab_size < 1 || c.n_stop > EK_MAX_STOP) __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    ek_gguf *g, *cut;
    if (gguf_of_memory(&g, data, n, "f") != EK_OK) {
        if (g || strchr(ek_err_text(), '\n')) __builtin_trap();
        return 0;
    }
    size_t used = rewrite(g, data, n);
    uint8_t *part = ek_alloc(used); /* exactly as long, so that a read behind it is seen */
    memcpy(part, data, used - 1);
    if (gguf_of_memory(&cut, part, used - 1, "f") == EK_OK) __builtin_trap();
    free(part);
    check_config(g);
    ek_gguf_close(g);
    return 0;
}
