#include "oracle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

typedef struct oracle {
    const ek_config *c;
    oracle_weights *weights;
    void *arg;
    int n, layer;
    double *h;                                   /* [n][hidden] */
    double *per_layer;                           /* [n][layers][per_layer_size] */
    double *k[EK_MAX_LAYERS], *v[EK_MAX_LAYERS]; /* of owning layers, [n][heads][dim] */
} oracle;

static double *reals(size_t n)
{
    return ek_alloc(sizeof(double) * n);
}

static const double *get(const oracle *o, const char *name)
{
    char full[160];
    if (o->layer < 0) snprintf(full, sizeof full, "model.%s", name);
    else snprintf(full, sizeof full, "model.layers.%d.%s", o->layer, name);
    return o->weights(o->arg, full);
}

static void linear(double *y, const double *w, const double *x, int out, int in)
{
    for (int i = 0; i < out; i++) {
        double sum = 0;
        for (int j = 0; j < in; j++) sum += w[(size_t)i * (size_t)in + (size_t)j] * x[j];
        y[i] = sum;
    }
}

static void norm(double *y, const double *x, const double *w, int n, double eps)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] * x[i];
    double r = 1 / sqrt(sum / n + eps);
    for (int i = 0; i < n; i++) y[i] = x[i] * r * (w ? w[i] : 1);
}

/* sqrt(n) as the published models were trained, with 8 significant bits, ties to even; whole where they ran in floats.
 */
static double root(const oracle *o, int n)
{
    int e;
    const double f = frexp(sqrt(n), &e);
    return o->c->exact_scale ? sqrt(n) : ldexp(nearbyint(ldexp(f, 8)), e - 8);
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static void softmax(double *x, int n)
{
    double top = x[0], sum = 0;
    for (int i = 1; i < n; i++) top = fmax(top, x[i]);
    for (int i = 0; i < n; i++) sum += x[i] = exp(x[i] - top);
    for (int i = 0; i < n; i++) x[i] /= sum;
}

static void rope(const oracle *o, double *x, int heads, int pos)
{
    const ek_layer_config *l = &o->c->layer[o->layer];
    int d = l->head_dim, half = d / 2, turned = l->kind == EK_FULL ? (int)(o->c->rope_partial[EK_FULL] * d / 2) : half;
    for (int j = 0; j < turned; j++) {
        double a = pos * pow(o->c->rope_theta[l->kind], -2.0 * j / d), cs = cos(a), sn = sin(a);
        for (int head = 0; head < heads; head++) {
            double *p = x + head * d, x0 = p[j], x1 = p[j + half];
            p[j] = x0 * cs - x1 * sn;
            p[j + half] = x1 * cs + x0 * sn;
        }
    }
}

static void per_layer_inputs(oracle *o, const int32_t *ids)
{
    const ek_config *c = o->c;
    int p = c->per_layer_size, all = p * c->n_layers;
    o->layer = -1;
    const double *table = get(o, "embed_tokens_per_layer.weight"), *w = get(o, "per_layer_projection_norm.weight");
    for (int t = 0; t < o->n; t++) {
        double *ctx = o->per_layer + (size_t)t * (size_t)all;
        linear(ctx, get(o, "per_layer_model_projection.weight"), o->h + t * c->hidden_size, all, c->hidden_size);
        for (int i = 0; i < all; i++) ctx[i] /= sqrt(c->hidden_size);
        for (int i = 0; i < c->n_layers; i++) norm(ctx + i * p, ctx + i * p, w, p, (double)c->rms_norm_eps);
        for (int i = 0; i < all; i++)
            ctx[i] = (ctx[i] + table[(size_t)ids[t] * (size_t)all + (size_t)i] * root(o, p)) / sqrt(2);
    }
}

static void heads(const oracle *o, double *x, int n_heads, const char *weight, int pos)
{
    const ek_layer_config *l = &o->c->layer[o->layer];
    const double *w = weight ? get(o, weight) : NULL;
    for (int j = 0; j < n_heads; j++)
        norm(x + j * l->head_dim, x + j * l->head_dim, w, l->head_dim, (double)o->c->rms_norm_eps);
    if (weight) rope(o, x, n_heads, pos);
}

static void keys_values(oracle *o, const double *a, int t)
{
    const ek_layer_config *l = &o->c->layer[o->layer];
    int width = l->n_kv_heads * l->head_dim;
    double *k = o->k[o->layer] + t * width, *v = o->v[o->layer] + t * width;
    linear(k, get(o, "self_attn.k_proj.weight"), a, width, o->c->hidden_size);
    if (l->k_eq_v) memcpy(v, k, sizeof *v * (size_t)width);
    else linear(v, get(o, "self_attn.v_proj.weight"), a, width, o->c->hidden_size);
    heads(o, k, l->n_kv_heads, "self_attn.k_norm.weight", t);
    heads(o, v, l->n_kv_heads, NULL, t);
}

static void attend(const oracle *o, double *out, const double *q, int t)
{
    const ek_layer_config *l = &o->c->layer[o->layer];
    int d = l->head_dim, kv = l->n_kv_heads, share = o->c->n_heads / kv;
    int lo = l->kind == EK_SLIDING && t >= o->c->sliding_window ? t - o->c->sliding_window + 1 : 0;
    double *s = reals((size_t)t + 1);
    for (int j = 0; j < o->c->n_heads; j++) {
        for (int at = lo; at <= t; at++) {
            const double *k = o->k[l->donor] + (at * kv + j / share) * d;
            s[at] = 0;
            for (int i = 0; i < d; i++) s[at] += q[j * d + i] * k[i];
        }
        softmax(s + lo, t - lo + 1);
        for (int i = 0; i < d; i++) {
            out[j * d + i] = 0;
            for (int at = lo; at <= t; at++) out[j * d + i] += s[at] * o->v[l->donor][(at * kv + j / share) * d + i];
        }
    }
    free(s);
}

static void gated(double *y, const double *gate, const double *up, const double *down, const double *x, int inter,
                  int n)
{
    double *g = reals((size_t)inter), *u = reals((size_t)inter);
    linear(g, gate, x, inter, n);
    linear(u, up, x, inter, n);
    for (int i = 0; i < inter; i++) g[i] = gelu(g[i]) * u[i];
    linear(y, down, g, n, inter);
    free(g);
    free(u);
}

static void experts(const oracle *o, double *m, const double *r)
{
    const ek_config *c = o->c;
    int n = c->hidden_size, inter = c->moe_intermediate_size;
    double eps = (double)c->rms_norm_eps, *x = reals((size_t)n), *y = reals((size_t)n), *sum = reals((size_t)n);
    double *prob = reals((size_t)c->n_experts), chosen = 0;
    int *id = ek_alloc(sizeof *id * (size_t)c->top_k_experts);
    norm(x, r, get(o, "router.scale"), n, eps);
    for (int i = 0; i < n; i++) x[i] /= sqrt(n);
    linear(prob, get(o, "router.proj.weight"), x, c->n_experts, n);
    softmax(prob, c->n_experts);
    for (int j = 0; j < c->top_k_experts; j++) {
        id[j] = -1;
        for (int e = 0; e < c->n_experts; e++) {
            int taken = 0;
            for (int i = 0; i < j; i++) taken |= id[i] == e;
            if (!taken && (id[j] < 0 || prob[e] > prob[id[j]])) id[j] = e;
        }
        chosen += prob[id[j]];
    }
    norm(x, r, get(o, "pre_feedforward_layernorm_2.weight"), n, eps);
    for (int j = 0; j < c->top_k_experts; j++) {
        size_t e = (size_t)id[j], size = (size_t)inter * (size_t)n;
        const double *gate_up = get(o, "experts.gate_up_proj") + e * 2 * size;
        gated(y, gate_up, gate_up + size, get(o, "experts.down_proj") + e * size, x, inter, n);
        double w = prob[e] / chosen * get(o, "router.per_expert_scale")[e];
        for (int i = 0; i < n; i++) sum[i] += w * y[i];
    }
    norm(m, m, get(o, "post_feedforward_layernorm_1.weight"), n, eps);
    norm(sum, sum, get(o, "post_feedforward_layernorm_2.weight"), n, eps);
    for (int i = 0; i < n; i++) m[i] += sum[i];
    free(x), free(y), free(sum), free(prob), free(id);
}

static void token_in_layer(oracle *o, int t)
{
    const ek_config *c = o->c;
    const ek_layer_config *l = &c->layer[o->layer];
    int n = c->hidden_size, p = c->per_layer_size;
    double eps = (double)c->rms_norm_eps, *h = o->h + t * n;
    double *a = reals((size_t)n), *m = reals((size_t)n), *g = reals((size_t)p + 1);
    double *q = reals((size_t)(c->n_heads * l->head_dim)), *att = reals((size_t)(c->n_heads * l->head_dim));
    norm(a, h, get(o, "input_layernorm.weight"), n, eps);
    if (l->owns_kv) keys_values(o, a, t);
    linear(q, get(o, "self_attn.q_proj.weight"), a, c->n_heads * l->head_dim, n);
    heads(o, q, c->n_heads, "self_attn.q_norm.weight", t);
    attend(o, att, q, t);
    linear(a, get(o, "self_attn.o_proj.weight"), att, n, c->n_heads * l->head_dim);
    norm(a, a, get(o, "post_attention_layernorm.weight"), n, eps);
    for (int i = 0; i < n; i++) h[i] += a[i];
    norm(a, h, get(o, "pre_feedforward_layernorm.weight"), n, eps);
    gated(m, get(o, "mlp.gate_proj.weight"), get(o, "mlp.up_proj.weight"), get(o, "mlp.down_proj.weight"), a,
          l->intermediate_size, n);
    if (c->n_experts) experts(o, m, h);
    norm(m, m, get(o, "post_feedforward_layernorm.weight"), n, eps);
    for (int i = 0; i < n; i++) h[i] += m[i];
    if (p) {
        linear(g, get(o, "per_layer_input_gate.weight"), h, p, n);
        for (int i = 0; i < p; i++) g[i] = gelu(g[i]) * o->per_layer[(t * c->n_layers + o->layer) * p + i];
        linear(m, get(o, "per_layer_projection.weight"), g, n, p);
        norm(m, m, get(o, "post_per_layer_input_norm.weight"), n, eps);
        for (int i = 0; i < n; i++) h[i] += m[i];
    }
    for (int i = 0; i < n; i++) h[i] *= get(o, "layer_scalar")[0];
    free(a), free(m), free(g), free(q), free(att);
}

/* Hidden states behind the final norm to o->h, keys and values to o->k and o->v. */
static void run_layers(oracle *o, const int32_t *ids)
{
    const ek_config *c = o->c;
    size_t width = (size_t)c->hidden_size;
    o->layer = -1;
    o->h = reals((size_t)o->n * width);
    o->per_layer = reals((size_t)o->n * (size_t)(c->n_layers * c->per_layer_size) + 1);
    const double *embed = get(o, "embed_tokens.weight");
    for (int t = 0; t < o->n; t++)
        for (size_t i = 0; i < width; i++)
            o->h[(size_t)t * width + i] = embed[(size_t)ids[t] * width + i] * root(o, c->hidden_size);
    if (c->per_layer_size) per_layer_inputs(o, ids);
    for (o->layer = 0; o->layer < c->n_layers; o->layer++) {
        const ek_layer_config *l = &c->layer[o->layer];
        size_t kv = (size_t)o->n * (size_t)(l->n_kv_heads * l->head_dim);
        if (l->owns_kv) o->k[o->layer] = reals(kv), o->v[o->layer] = reals(kv);
        for (int t = 0; t < o->n; t++) token_in_layer(o, t);
    }
    o->layer = -1;
    for (int t = 0; t < o->n; t++) {
        double *h = o->h + (size_t)t * width;
        norm(h, h, get(o, "norm.weight"), c->hidden_size, (double)c->rms_norm_eps);
    }
}

static void head(const oracle *o, double *z, const double *h)
{
    double cap = (double)o->c->final_logit_softcapping;
    linear(z, get(o, "embed_tokens.weight"), h, o->c->vocab_size, o->c->hidden_size);
    for (int i = 0; i < o->c->vocab_size && cap > 0; i++) z[i] = cap * tanh(z[i] / cap);
}

static void done(oracle *o)
{
    for (int i = 0; i < o->c->n_layers; i++) free(o->k[i]), free(o->v[i]);
    free(o->h), free(o->per_layer);
}

void oracle_forward(const ek_config *c, oracle_weights *weights, void *arg, const int32_t *ids, int n, double *logits)
{
    oracle o = {.c = c, .weights = weights, .arg = arg, .n = n};
    run_layers(&o, ids);
    for (int t = 0; t < n; t++)
        head(&o, logits + (size_t)t * (size_t)c->vocab_size, o.h + (size_t)t * (size_t)c->hidden_size);
    done(&o);
}

/* --- the drafter */

static int argmax(const double *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* One layer for one row, whose keys and values are the target's [0, n). */
static void draft_layer(const oracle *o, double *h, int n, int pos)
{
    const ek_config *c = o->c;
    const ek_layer_config *l = &c->layer[o->layer];
    int width = c->hidden_size, query = c->n_heads * l->head_dim;
    double eps = (double)c->rms_norm_eps, *a = reals((size_t)width), *m = reals((size_t)width);
    double *q = reals((size_t)query), *att = reals((size_t)query);
    norm(a, h, get(o, "input_layernorm.weight"), width, eps);
    linear(q, get(o, "self_attn.q_proj.weight"), a, query, width);
    heads(o, q, c->n_heads, "self_attn.q_norm.weight", pos);
    attend(o, att, q, n - 1);
    linear(a, get(o, "self_attn.o_proj.weight"), att, width, query);
    norm(a, a, get(o, "post_attention_layernorm.weight"), width, eps);
    for (int i = 0; i < width; i++) h[i] += a[i];
    norm(a, h, get(o, "pre_feedforward_layernorm.weight"), width, eps);
    gated(m, get(o, "mlp.gate_proj.weight"), get(o, "mlp.up_proj.weight"), get(o, "mlp.down_proj.weight"), a,
          l->intermediate_size, width);
    norm(m, m, get(o, "post_feedforward_layernorm.weight"), width, eps);
    for (int i = 0; i < width; i++) h[i] = (h[i] + m[i]) * get(o, "layer_scalar")[0];
    free(a), free(m), free(q), free(att);
}

/* Tokens outside the best centroids get the smallest logit of those inside, minus 1. */
static void mask_tokens(const oracle_drafter *d, const double *y, double *z)
{
    const ek_config *c = d->c;
    int per = c->vocab_size / c->n_centroids;
    double *score = reals((size_t)c->n_centroids), min = INFINITY;
    int *inside = ek_alloc(sizeof *inside * (size_t)c->vocab_size);
    linear(score, d->weights(d->arg, "masked_embedding.centroids.weight"), y, c->n_centroids, c->hidden_size);
    for (int i = 0; i < c->top_k_centroids; i++) {
        int best = argmax(score, c->n_centroids);
        score[best] = -INFINITY;
        for (int k = 0; k < per; k++) inside[d->ordering[best * per + k]] = 1;
    }
    for (int v = 0; v < c->vocab_size; v++)
        if (inside[v] && z[v] < min) min = z[v];
    for (int v = 0; v < c->vocab_size; v++)
        if (!inside[v]) z[v] = min - 1;
    free(score), free(inside);
}

void oracle_draft(const ek_config *c, oracle_weights *weights, void *arg, const oracle_drafter *d, const int32_t *ids,
                  int n, int k, int32_t *bonus, int32_t *out, double *logits)
{
    oracle t = {.c = c, .weights = weights, .arg = arg, .n = n};
    oracle o = {.c = d->c, .weights = d->weights, .arg = d->arg, .n = n};
    int wide = c->hidden_size, width = d->c->hidden_size, vocab = c->vocab_size;
    double *u = reals(2 * (size_t)wide), *h = reals((size_t)width), *all = reals((size_t)vocab);
    run_layers(&t, ids);
    head(&t, all, t.h + (size_t)(n - 1) * (size_t)wide);
    int32_t token = *bonus = argmax(all, vocab);
    memcpy(u + wide, t.h + (size_t)(n - 1) * (size_t)wide, sizeof *u * (size_t)wide);
    for (int i = 0; i < d->c->n_layers; i++)
        for (int j = 0; j < c->first_shared; j++)
            if (c->layer[j].kind == d->c->layer[i].kind)
                o.k[d->c->layer[i].donor] = t.k[j], o.v[d->c->layer[i].donor] = t.v[j];
    for (int s = 0; s < k; s++) {
        double *z = logits + (size_t)s * (size_t)vocab;
        const double *embed = get(&t, "embed_tokens.weight") + (size_t)token * (size_t)wide;
        for (int i = 0; i < wide; i++) u[i] = embed[i] * root(&t, wide);
        linear(h, d->weights(d->arg, "pre_projection.weight"), u, width, 2 * wide);
        for (o.layer = 0; o.layer < d->c->n_layers; o.layer++) draft_layer(&o, h, n, n - d->back);
        o.layer = -1;
        norm(h, h, get(&o, "norm.weight"), width, (double)d->c->rms_norm_eps);
        linear(u + wide, d->weights(d->arg, "post_projection.weight"), h, wide, width);
        head(&o, z, h);
        if (d->ordering) mask_tokens(d, h, z);
        out[s] = token = argmax(z, vocab);
    }
    done(&t);
    free(u), free(h), free(all);
}
