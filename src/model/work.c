/* The cost of a row: bytes of weights read, and multiply-adds. */
#include "model/pass.h"

static double bytes_of(const ek_linear *w)
{
    return (double)w->bytes;
}

static double macs_of(const ek_linear *w)
{
    return (double)w->n * (double)w->k;
}

/* The sum for a row, which uses `experts` experts. */
static double sum_layer(const ek_model *m, int i, int experts, double (*of)(const ek_linear *))
{
    const ek_layer_weights *l = &m->w.layer[i];
    const ek_linear *const dense[] = {
        &l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down, &l->router, &l->per_layer_gate, &l->per_layer_proj};
    double sum = 0;
    for (size_t j = 0; j < sizeof dense / sizeof *dense; j++) sum += of(dense[j]);
    if (m->config.n_experts) sum += experts * (of(l->expert_gate) + of(l->expert_up) + of(l->expert_down));
    return sum;
}

void ek_model_count_work(ek_model *m)
{
    const ek_config *c = &m->config;
    const ek_weights *w = &m->w;
    m->bytes_per_token = bytes_of(ek_weights_head(w)) + bytes_of(&w->per_layer_head) + bytes_of(&w->per_layer_tail);
    m->macs_logit_row = macs_of(ek_weights_head(w)) + macs_of(&w->per_layer_head) + macs_of(&w->per_layer_tail);
    m->macs_prompt_row = macs_of(&w->per_layer_head);
    for (int i = 0; i < c->n_layers; i++) {
        m->bytes_per_token += sum_layer(m, i, c->top_k_experts, bytes_of);
        m->macs_logit_row += sum_layer(m, i, c->top_k_experts, macs_of);
        if (i < ek_prompt_layers(c)) m->macs_prompt_row += sum_layer(m, i, c->top_k_experts, macs_of);
        if (i == ek_prompt_layers(c)) m->macs_prompt_row += macs_of(&w->layer[i].k) + macs_of(&w->layer[i].v);
    }
}

double ek_model_layer_bytes(const ek_model *m, int i)
{
    return sum_layer(m, i, m->config.n_experts, bytes_of);
}

double ek_model_experts_bytes(const ek_model *m, int i, int experts)
{
    const ek_layer_weights *l = &m->w.layer[i];
    if (!m->config.n_experts) return 0;
    return bytes_of(&l->router) +
           experts * (bytes_of(l->expert_gate) + bytes_of(l->expert_up) + bytes_of(l->expert_down));
}

double ek_model_common_bytes(const ek_model *m, bool embed)
{
    return (embed ? bytes_of(&m->w.embed) + bytes_of(&m->w.head) : 0) + bytes_of(&m->w.per_layer_head) +
           bytes_of(&m->w.per_layer_tail);
}
