#include "shapes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/kv/kv_codec.h"
#include "ops/rows/rows.h"

static const ek_weight_type *type_of(const char *name, int k)
{
    const ek_weight_type *t = NULL;
    int bits, group;
    if (sscanf(name, "q%d.%d", &bits, &group) == 2) {
        if (k % group == 0) assert_int_equal(ek_weight_type_affine(&t, bits, group, EK_BF16, true), EK_OK);
    } else {
        t = ek_weight_type_named(name);
        assert_non_null(t);
        if (t->block && k % t->block) t = NULL;
    }
    return t ? t : ek_weight_type_float(EK_BF16);
}

static bool is_kv(ek_matrix_role role)
{
    return role == EK_ROLE_K || role == EK_ROLE_V;
}

static void bind(ek_model *m, const gpu_shape *s)
{
    static float vector[4];
    static uint8_t codes[64];
    ek_items list;
    const ek_pack_opts o = {.cpu = m->cpu};
    ek_items_invent(&list, &m->w, &m->config, 4);
    for (int i = 0; i < list.n; i++) {
        ek_item *it = &list.item[i];
        if (it->matrix) it->data.type = type_of(s->heads && is_kv(it->role) ? s->heads : s->type, it->data.k);
    }
    assert_int_equal(ek_items_plan(&list, &m->w, &o), EK_OK);
    m->w.block = codes; /* there, as far as a model with weights is asked for */
    for (int i = 0; i < list.n; i++) {
        ek_item *it = &list.item[i];
        if (it->matrix) it->matrix->data = codes;
        if (it->vector) *it->vector = vector;
        if (it->table) *it->table = (ek_embedding_table){it->data, 77};
    }
    ek_items_fini(&list);
}

static size_t block_bytes(const ek_model *m, const ek_layer_config *l, bool start)
{
    const ek_kv_format k = start ? ek_kv_start_format(m->k_format) : m->k_format;
    return (ek_kv_block_bytes(k, k, l->n_kv_heads, l->head_dim) + 63) / 64 * 64;
}

static void lay_out_pages(ek_model *m)
{
    const ek_config *c = &m->config;
    for (int i = 0; i < c->n_layers; i++) {
        const ek_layer_config *l = &c->layer[i];
        size_t *bytes = m->layout.page_bytes;
        m->kv_offset[i] = l->owns_kv ? bytes[l->kind] : m->kv_offset[l->donor];
        m->kv_start_offset[i] = l->owns_kv ? bytes[ek_kv_start_kind(l->kind)] : m->kv_start_offset[l->donor];
        if (l->owns_kv) bytes[l->kind] += block_bytes(m, l, false), m->last[l->kind] = i;
        if (l->owns_kv && m->kv_start) bytes[ek_kv_start_kind(l->kind)] += block_bytes(m, l, true);
        if (m->rope[l->kind]) continue;
        m->rope[l->kind] = calloc((size_t)l->head_dim, sizeof(float));
        m->n_rotated[l->kind] = ek_rope_frequencies(m->rope[l->kind], l->head_dim, c->rope_theta[l->kind],
                                                    c->rope_partial[l->kind], c->rope_factor[l->kind]);
    }
    m->layout.sliding_window = c->sliding_window;
    m->layout.n_start = m->kv_start / EK_PAGE_TOKENS;
}

ek_model *open_shape(const gpu_shape *s)
{
    ek_model *m = calloc(1, sizeof *m);
    const bool tiny = s->model[0] < 'a' && s->model[0] > '9';
    m->k_format = m->v_format = s->kv, m->kv_start = s->kv_start;
    assert_int_equal(tiny ? ek_config_tiny(&m->config, s->model) : ek_config_published(&m->config, s->model, s->layers),
                     EK_OK);
    if (!tiny) m->config.vocab_size = m->config.vocab_size_per_layer = 2048; /* rows of logits lie on the host */
    bind(m, s);
    lay_out_pages(m);
    return m;
}

void close_shape(ek_model *m)
{
    for (int k = 0; k < EK_KIND_COUNT; k++) free(m->rope[k]);
    free(m->w.experts);
    free(m);
}
