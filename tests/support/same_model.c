#include "same_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "model/source/source.h"
#include "model/weights/weights.h"

void same_config(const ek_config *a, const ek_config *b)
{
    assert_string_equal(a->model_type, b->model_type);
    assert_int_equal(a->vocab_size, b->vocab_size);
    assert_int_equal(a->hidden_size, b->hidden_size);
    assert_int_equal(a->n_layers, b->n_layers);
    assert_int_equal(a->n_heads, b->n_heads);
    assert_int_equal(a->max_position_embeddings, b->max_position_embeddings);
    assert_int_equal(a->sliding_window, b->sliding_window);
    assert_int_equal(a->per_layer_size, b->per_layer_size);
    if (a->per_layer_size) assert_int_equal(a->vocab_size_per_layer, b->vocab_size_per_layer);
    assert_int_equal(a->first_shared, b->first_shared);
    assert_int_equal(a->n_experts, b->n_experts);
    assert_int_equal(a->top_k_experts, b->top_k_experts);
    assert_int_equal(a->moe_intermediate_size, b->moe_intermediate_size);
    assert_int_equal(a->backbone_hidden_size, b->backbone_hidden_size);
    assert_int_equal(a->n_centroids, b->n_centroids);
    assert_int_equal(a->top_k_centroids, b->top_k_centroids);
    assert_true(a->rms_norm_eps == b->rms_norm_eps);
    assert_true(a->final_logit_softcapping == b->final_logit_softcapping);
    for (int k = 0; k < EK_KIND_COUNT; k++) assert_true(a->rope_theta[k] == b->rope_theta[k]);
    for (int i = 0; i < a->n_layers; i++) {
        const ek_layer_config *x = &a->layer[i], *y = &b->layer[i];
        assert_true(x->kind == y->kind && x->owns_kv == y->owns_kv && x->donor == y->donor);
        assert_true(!x->owns_kv || x->k_eq_v == y->k_eq_v);
        assert_true(x->head_dim == y->head_dim && x->n_kv_heads == y->n_kv_heads);
        assert_int_equal(x->intermediate_size, y->intermediate_size);
    }
}

static void read_order(ek_source *s, int n, int32_t *ids)
{
    int32_t *own = ids ? ids : ek_alloc(sizeof *own * (size_t)n);
    if (ek_source_ids(s, "masked_embedding.token_ordering", n, own)) fail_msg("%s", ek_err_text());
    if (!ids) free(own);
}

void same_model(const char *a, const char *b, int32_t *ids)
{
    ek_source *s[2];
    ek_items list[2];
    ek_weights *w = ek_alloc(2 * sizeof *w);
    ek_config *c = ek_alloc(2 * sizeof *c);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ek_source_open(&s[i], i ? b : a), EK_OK);
        if (ek_source_config(s[i], &c[i])) fail_msg("%s", ek_err_text());
        if (c[i].n_centroids) read_order(s[i], c[i].vocab_size, i ? ids : NULL);
        if (ek_items_bind(&list[i], &w[i], &c[i], s[i])) fail_msg("%s", ek_err_text());
    }
    same_config(&c[0], &c[1]);
    assert_int_equal(list[0].n, list[1].n);
    for (int j = 0; j < list[0].n; j++) {
        const ek_weight_data *x = &list[0].item[j].data, *y = &list[1].item[j].data;
        assert_string_equal(list[0].item[j].name, list[1].item[j].name);
        assert_true(x->n == y->n && x->k == y->k && x->k <= 1024);
        for (int r = 0; r < x->n; r++) {
            float p[1024], q[1024];
            ek_weight_row(x, r, 0, x->k, p), ek_weight_row(y, r, 0, x->k, q);
            bool same = true; /* codes have no -0 */
            for (int k = 0; k < x->k; k++) same &= p[k] == q[k];
            if (!same) fail_msg("%s and %s: row %d of %s", a, b, r, list[0].item[j].name);
        }
    }
    for (int i = 0; i < 2; i++) ek_items_fini(&list[i]), ek_source_close(s[i]);
    free(w), free(c);
}
