/* Finds the comparisons that a model needs, and runs them. */
#include "gpu/evidence/evidence.h"
#include "ops/kv/kv.h"

/* Appends all properties that distinguish one kind of matrix from another (ek_trial_matrices). */
static void product(ek_buf *out, const ek_linear *w)
{
    ek_buf_fmt(out, "product form %d, %d inputs, %d bits, groups %d and %d, zero %d, limbs %d, biased %d", (int)w->form,
               w->k, w->bits, w->group, w->a_group, w->zero, w->limbs, w->biased);
    ek_buf_fmt(out, ", scales %d %d, block %d, codes", (int)w->scale_dtype, (int)w->scale, w->block);
    for (int i = 0; w->book && i < 1 << w->bits; i++) ek_buf_fmt(out, " %d", w->book[i]);
    ek_buf_str(out, w->book ? "\n" : " themselves\n");
}

void ek_gpu_evidence_needs(ek_buf *out, const ek_model *m)
{
    const ek_config *const c = &m->config;
    const ek_linear *all[EK_TRIAL_MATRICES];
    for (int experts = 0, n; experts < 2; experts++) {
        ek_trial_matrices(all, &n, m, experts);
        for (int i = 0; i < n; i++) product(out, all[i]);
        if (!experts)
            ek_buf_fmt(out, "%d of %d experts of %d:\n", c->top_k_experts, c->n_experts, c->moe_intermediate_size);
    }
    ek_buf_fmt(out, "rows of %d, %d and %d, cap %a\n", c->hidden_size, c->layer[0].intermediate_size, c->per_layer_size,
               (double)c->final_logit_softcapping);
    if (c->backbone_hidden_size)
        ek_buf_fmt(out, "drafts for rows of %d, %d of %d centroids, %d tokens\n", c->backbone_hidden_size,
                   c->top_k_centroids, c->n_centroids, c->vocab_size);
    for (int k = 0; k < EK_KIND_COUNT; k++)
        for (int i = 0; i < m->config.n_layers; i++) {
            const ek_layer_config *l = &m->config.layer[i];
            if ((int)l->kind != k) continue;
            ek_buf_fmt(out, "attention of %d on %d heads of %d, keys %s, values %s, for groups of %d\n",
                       m->config.n_heads, l->n_kv_heads, l->head_dim, ek_kv_format_name(m->k_format),
                       ek_kv_format_name(m->v_format), m->w.layer[i].o.a_group);
            break;
        }
}

ek_err ek_trial_all(ek_trial *t)
{
    static ek_err (*const all[])(ek_trial *) = {ek_trial_rows,    ek_trial_draws, ek_trial_products, ek_trial_attention,
                                                ek_trial_experts, ek_trial_gated, ek_trial_drafts};
    ek_gpu *const g = t->g;
    t->room = EK_TRIAL_ROOM;
    EK_TRY(ek_cuda_enter(g->c));
    EK_TRY(ek_cuda_alloc(g->c, &t->at, t->room, "comparing kernels"));
    ek_err err = EK_OK;
    for (size_t i = 0; i < sizeof all / sizeof *all && !err; i++) err = all[i](t);
    ek_cuda_free(g->c, t->at);
    return err;
}

ek_err ek_gpu_prove(ek_gpu *g, const ek_model *m, int *n)
{
    ek_trial t = {.g = g, .m = m};
    const ek_err err = ek_trial_all(&t);
    *n = t.n;
    return err;
}
