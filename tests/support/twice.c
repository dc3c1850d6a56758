#include "twice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "checkpoint.h"
#include "hashed.h"

typedef struct writer {
    st_file packed, hf;
    bool single_experts;
    pack_fn *pack;
    void *arg;
} writer;

void twice_bits(uint8_t *to, size_t bit, unsigned v, int bits)
{
    for (int b = 0; b < bits; b++, bit++) to[bit / 8] |= (uint8_t)((v >> b & 1) << bit % 8);
}

void twice_add(st_file *f, const char *module, const char *suffix, const char *type, int64_t a, int64_t b,
               const void *data, size_t bytes)
{
    char name[240];
    int64_t dim[] = {a, b};
    snprintf(name, sizeof name, "%s%s", module, suffix);
    st_add(f, name, type, b ? 2 : 1, dim, data, bytes);
}

/* gate_up_proj [experts, 2 n, k], down_proj [experts, n, k]: a module for each of the three of an expert. */
static void pack_experts(writer *t, const char *name, const int64_t *dim, float *w)
{
    static const char *const gate_up[] = {"gate_proj", "up_proj"}, *const down[] = {"down_proj"};
    const char *last = strrchr(name, '.') + 1;
    const bool two = !strcmp(last, "gate_up_proj");
    const int parts = two ? 2 : 1, rows = (int)dim[1] / parts, k = (int)dim[2];
    for (int e = 0; e < dim[0]; e++)
        for (int p = 0; p < parts; p++) {
            char module[200];
            float *at = w + ((size_t)(e * parts + p) * (size_t)rows) * (size_t)k;
            snprintf(module, sizeof module, "%.*s%d.%s", (int)(last - name), name, e, (two ? gate_up : down)[p]);
            if (t->pack(t->arg, &t->packed, module, rows, k, at)) continue;
            twice_add(&t->packed, module, ".weight", "F32", rows, k, at, (size_t)rows * (size_t)k * 4);
        }
}

static void one_tensor(void *arg, const char *name, int n_dims, const int64_t *dim)
{
    writer *t = arg;
    size_t n = 1;
    char module[200];
    for (int d = 0; d < n_dims; d++) n *= (size_t)dim[d];
    float *w = ek_alloc(n * 4);
    for (size_t i = 0; i < n; i++) w[i] = hashed_weight(name, i);
    snprintf(module, sizeof module, "%s", name);
    char *weight = strstr(module, ".weight");
    if (weight) *weight = '\0';
    /* Embeddings and routers stay floats, as they do in published files. */
    bool packs = n_dims == 2 && !strstr(name, "embed") && !strstr(name, "router");
    if (n_dims == 3 && t->single_experts) pack_experts(t, name, dim, w);
    else if (!packs || !t->pack(t->arg, &t->packed, module, (int)dim[0], (int)dim[1], w))
        st_add(&t->packed, name, "F32", n_dims, dim, w, n * 4);
    st_add(&t->hf, name, "F32", n_dims, dim, w, n * 4);
    free(w);
}

void write_twice(const char *dir, const char *hf_dir, const ek_config *c, bool single_experts, pack_fn *pack, void *arg,
                 const char *section)
{
    writer t = {.single_experts = single_experts, .pack = pack, .arg = arg};
    ek_buf text = {0};
    each_tensor(c, one_tensor, &t);
    if (c->own_head) one_tensor(&t, "lm_head.weight", 2, (int64_t[]){c->vocab_size, c->hidden_size});
    st_save(&t.packed, dir, "model.safetensors");
    st_save(&t.hf, hf_dir, "model.safetensors");
    ek_buf_char(&text, '{');
    config_fields(&text, c);
    ek_buf_char(&text, '}');
    put_text(hf_dir, "config.json", text.data);
    text.data[--text.len] = '\0';
    ek_buf_fmt(&text, ",%s}", section);
    put_text(dir, "config.json", text.data);
    ek_buf_fini(&text);
}
