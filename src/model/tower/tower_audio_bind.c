/* The weights of an audio tower by transformers' names (modeling_gemma4.py, Gemma4AudioModel), and values computed from
 * them once. Files store convolutions as [out, in, rows, columns], or in mlx-vlm's order, [out, rows, columns, in]. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "model/tower/tower_audio_state.h"
#include "ops/math.h"

typedef struct namer {
    ek_tower_binder *b;
    char text[160];
    size_t stem; /* length of the constant beginning: "audio_tower.layers.3." */
} namer;

static const char *name(namer *n, const char *rest)
{
    snprintf(n->text + n->stem, sizeof n->text - n->stem, "%s", rest);
    return n->text;
}

static void stem(namer *n, const char *text)
{
    n->stem = (size_t)snprintf(n->text, sizeof n->text, "%s", text);
}

static ek_err wrong_shape(const ek_tower_tensor *t, const char *needs)
{
    return ek_fail(EK_EFORMAT, "%s: tensor %s is of another shape than audio_config needs: %s", t->file, t->name,
                   needs);
}

/* Finds a tensor of `count` numbers in any shape, which the caller checks; a synthetic tensor has no shape. */
static ek_err find(ek_tower_binder *b, const char *of, int64_t count, const char *needs, ek_tower_tensor *t)
{
    int64_t has = 1;
    if (!ek_tower_source_find(b->from, of, t))
        return ek_fail(EK_EFORMAT, "%s: tensor %.200s of the audio tower is missing", b->from->path, of);
    if (t->n_dims < 0) return EK_OK;
    for (int d = 0; d < t->n_dims; d++) has = t->dim[d] > 0 && has <= count ? has * t->dim[d] : count + 1;
    if (has != count) return wrong_shape(t, needs);
    return ek_tower_source_need(b->from, of, t->n_dims, t->dim, t); /* its type */
}

static void load(const ek_tower_tensor *t, int64_t count, float *out)
{
    const ek_weight_data data = {.type = t->type, .n = 1, .k = (int)count, .plane = {t->data}};
    for (int64_t i = 0; i < count; i += EK_UNPACK_WEIGHTS)
        ek_weight_row(&data, 0, (int)i, (int)(count - i < EK_UNPACK_WEIGHTS ? count - i : EK_UNPACK_WEIGHTS), out + i);
}

/* The numbers as stored, and memory for as many in another order; both for free. */
static ek_err read_numbers(float **as_stored, float **ours, const ek_tower_tensor *t, int64_t count, const char *of)
{
    *as_stored = malloc(sizeof(float) * (size_t)count), *ours = malloc(sizeof(float) * (size_t)count);
    if (!*as_stored || !*ours) {
        free(*as_stored), free(*ours);
        return ek_fail(EK_ENOMEM, "no memory for %lld numbers of %s", (long long)count, of);
    }
    load(t, count, *as_stored);
    return EK_OK;
}

static ek_weight_data floats(const float *v, int n, int k)
{
    return (ek_weight_data){
        .type = ek_weight_type_float(EK_F32), .n = n, .k = k, .plane = {(const uint8_t *)(const void *)v}};
}

/* A convolution of 3 x 3 as a matrix whose inputs are the windows of its picture, channel fastest. */
static ek_err bind_conv(ek_tower_binder *b, const char *of, int out, int in, ek_linear *w)
{
    ek_tower_tensor t;
    char needs[80];
    const int64_t count = (int64_t)out * in * 9;
    snprintf(needs, sizeof needs, "[%d, %d, 3, 3] or [%d, 3, 3, %d]", out, in, out, in);
    EK_TRY(find(b, of, count, needs, &t));
    if (t.n_dims < 0) {
        const ek_weight_data data = {.type = t.type, .n = out, .k = 9 * in};
        ek_tower_matrix_of(b, of, &data, w);
        return EK_OK;
    }
    if (t.n_dims != 4 || t.dim[0] != out) return wrong_shape(&t, needs);
    const bool last = t.dim[3] == in && t.dim[1] == 3 && t.dim[2] == 3;
    if (!last && (t.dim[1] != in || t.dim[2] != 3 || t.dim[3] != 3)) return wrong_shape(&t, needs);
    float *as_stored, *ours;
    EK_TRY(read_numbers(&as_stored, &ours, &t, count, of));
    for (int o = 0; o < out; o++)
        for (int at = 0; at < 9; at++)
            for (int i = 0; i < in; i++)
                ours[(o * 9 + at) * in + i] = as_stored[last ? (o * 9 + at) * in + i : (o * in + i) * 9 + at];
    free(as_stored);
    const ek_weight_data data = floats(ek_tower_own(b, ours), out, 9 * in);
    ek_tower_matrix_of(b, of, &data, w);
    return EK_OK;
}

/* [channels, 1, taps], [channels, taps, 1] or [channels, taps] have one order of values; here they are stored tap by
 * tap. */
static ek_err bind_taps(ek_tower_binder *b, const char *of, int channels, int taps, float **v)
{
    ek_tower_tensor t;
    char needs[80];
    const int64_t count = (int64_t)channels * taps;
    snprintf(needs, sizeof needs, "[%d, 1, %d] or [%d, %d, 1]", channels, taps, channels, taps);
    EK_TRY(find(b, of, count, needs, &t));
    if (t.n_dims < 0) {
        const ek_weight_data data = {.type = t.type, .n = 1, .k = (int)count};
        ek_tower_vector_of(b, of, &data, v);
        return EK_OK;
    }
    if (t.n_dims < 2 || t.dim[0] != channels || (t.dim[1] != taps && t.dim[1] != 1)) return wrong_shape(&t, needs);
    float *as_stored, *ours;
    EK_TRY(read_numbers(&as_stored, &ours, &t, count, of));
    for (int c = 0; c < channels; c++)
        for (int j = 0; j < taps; j++) ours[j * channels + c] = as_stored[c * taps + j];
    free(as_stored);
    const ek_weight_data data = floats(ek_tower_own(b, ours), 1, (int)count);
    ek_tower_vector_of(b, of, &data, v);
    return EK_OK;
}

/* A vector, whatever dimensions of 1 the container adds. */
static ek_err bind_vector(ek_tower_binder *b, const char *of, int n, float **v)
{
    ek_tower_tensor t;
    char needs[32];
    snprintf(needs, sizeof needs, "[%d]", n);
    EK_TRY(find(b, of, n, needs, &t));
    const ek_weight_data data = {.type = t.type, .n = 1, .k = n, .plane = {t.data}};
    ek_tower_vector_of(b, of, &data, v);
    return EK_OK;
}

static ek_err bind_ffw(namer *n, const char *which, const ek_audio_config *c, ek_audio_ffw *f)
{
    char text[80];
    const int h = c->hidden;
#define PART(rest) (snprintf(text, sizeof text, "%s.%s", which, rest), name(n, text))
    EK_TRY(bind_vector(n->b, PART("pre_layer_norm.weight"), h, &f->pre));
    EK_TRY(bind_vector(n->b, PART("post_layer_norm.weight"), h, &f->post));
    EK_TRY(ek_tower_clipped(n->b, PART("ffw_layer_1"), 4 * h, h, c->clips, &f->up));
    return ek_tower_clipped(n->b, PART("ffw_layer_2"), h, 4 * h, c->clips, &f->down);
#undef PART
}

static ek_err bind_layer(namer *n, const ek_audio_config *c, ek_audio_layer *l)
{
    const int h = c->hidden;
    EK_TRY(bind_ffw(n, "feed_forward1", c, &l->ffw[0]));
    EK_TRY(bind_ffw(n, "feed_forward2", c, &l->ffw[1]));
    EK_TRY(bind_vector(n->b, name(n, "norm_pre_attn.weight"), h, &l->pre_attn));
    EK_TRY(bind_vector(n->b, name(n, "norm_post_attn.weight"), h, &l->post_attn));
    EK_TRY(bind_vector(n->b, name(n, "norm_out.weight"), h, &l->out));
    EK_TRY(ek_tower_clipped(n->b, name(n, "self_attn.q_proj"), h, h, c->clips, &l->q));
    EK_TRY(ek_tower_clipped(n->b, name(n, "self_attn.k_proj"), h, h, c->clips, &l->k));
    EK_TRY(ek_tower_clipped(n->b, name(n, "self_attn.v_proj"), h, h, c->clips, &l->v));
    EK_TRY(ek_tower_clipped(n->b, name(n, "self_attn.post"), h, h, c->clips, &l->post));
    EK_TRY(ek_tower_matrix(n->b, name(n, "self_attn.relative_k_proj"), h, h, &l->rel));
    EK_TRY(bind_vector(n->b, name(n, "self_attn.per_dim_scale"), h / c->n_heads, &l->scale));
    EK_TRY(bind_vector(n->b, name(n, "lconv1d.pre_layer_norm.weight"), h, &l->conv_pre));
    EK_TRY(bind_vector(n->b, name(n, "lconv1d.conv_norm.weight"), h, &l->conv_norm));
    EK_TRY(ek_tower_clipped(n->b, name(n, "lconv1d.linear_start"), 2 * h, h, c->clips, &l->start));
    EK_TRY(ek_tower_clipped(n->b, name(n, "lconv1d.linear_end"), h, h, c->clips, &l->end));
    return bind_taps(n->b, name(n, "lconv1d.depthwise_conv1d.weight"), h, c->taps, &l->tap);
}

ek_err ek_audio_bind(ek_audio *a, ek_tower_binder *b)
{
    const ek_audio_config *c = &a->c;
    namer n = {.b = b};
    a->scaled = b->from->gguf;
    for (int i = 0; i < 2; i++) {
        char text[64];
        snprintf(text, sizeof text, "audio_tower.subsample_conv_projection.layer%d.", i);
        stem(&n, text);
        EK_TRY(bind_conv(b, name(&n, "conv.weight"), c->channels[i], i ? c->channels[0] : 1, &a->conv[i]));
        EK_TRY(bind_vector(b, name(&n, "norm.weight"), c->channels[i], &a->conv_norm[i]));
    }
    EK_TRY(ek_tower_matrix(b, "audio_tower.subsample_conv_projection.input_proj_linear", c->hidden,
                           ek_audio_bands(c) * c->channels[1], &a->input));
    for (int i = 0; i < c->n_layers; i++) {
        char text[64];
        snprintf(text, sizeof text, "audio_tower.layers.%d.", i);
        stem(&n, text);
        EK_TRY(bind_layer(&n, c, &a->layer[i]));
    }
    EK_TRY(ek_tower_matrix(b, "audio_tower.output_proj", c->output, c->hidden, &a->output));
    EK_TRY(bind_vector(b, "audio_tower.output_proj.bias", c->output, &a->bias));
    return ek_tower_matrix(b, "embed_audio.embedding_projection", c->text, c->output, &a->embed);
}

/* ------------------------------------------------------------------ values computed once */

/* ln(1 + exp(x)) in float64, rounded once, to equal the values in a GGUF file: with e = exp(-|x|) and t = e / (2 + e),
 * at most 1/3, ln(1 + e) = 2 (t + t^3 / 3 + t^5 / 5 + …). */
static float softplus(float x)
{
    const double a = fabs((double)x), e = ek_pow(2.718281828459045, a < 80 ? -a : -80), t = e / (2 + e), z = t * t;
    double sum = 0;
    for (int k = 17; k >= 0; k--) sum = sum * z + 1.0 / (2 * k + 1);
    return (float)((x > 0 ? (double)x : 0) + 2 * t * sum);
}

/* sin(d t_i), then cos(d t_i), for rows at distance d; t_i = 10000^(-i / (n - 1)), in the steps of transformers, each
 * rounded to float32. */
static void encode_distance(float *row, int hidden, int d)
{
    const int n = hidden / 2;
    for (int i = 0; i < n; i++) {
        double c, s;
        const float t = (float)ek_pow(10000.0, n > 1 ? -(double)i / (n - 1) : 0);
        ek_cos_sin((double)((float)d * t), &c, &s);
        row[i] = (float)s, row[n + i] = (float)c;
    }
}

/* hd^-0.5 / ln 2 x softplus(per_dim_scale), of every head alike. */
static void make_scale(const ek_audio *a, ek_audio_layer *l)
{
    const int hd = a->c.hidden / a->c.n_heads;
    const float factor = (float)(1.0 / (sqrt((double)hd) * 0.6931471805599453));
    for (int i = 0; i < a->c.hidden; i++) {
        const float s = l->scale[i % hd];
        l->q_scale[i] = factor * (a->scaled ? s : softplus(s));
    }
}

ek_err ek_audio_ready(ek_audio *a)
{
    const ek_audio_config *c = &a->c;
    const ek_tower_ops *k = a->part.kernels;
    const size_t h = (size_t)c->hidden, span = (size_t)c->span, acts_bytes = ek_acts_bytes(c->span, c->hidden);
    a->made = malloc(sizeof(float) * h * (span + 1) * (size_t)c->n_layers);
    float *encoding = malloc(sizeof(float) * h * span);
    void *memory = ek_alloc_big(acts_bytes);
    const bool good = a->made && encoding && memory;
    for (int d = 0; good && d < c->span; d++) encode_distance(encoding + (size_t)d * h, c->hidden, d);
    for (int i = 0; good && i < c->n_layers; i++) {
        ek_audio_layer *l = &a->layer[i];
        l->q_scale = a->made + (size_t)i * h * (span + 1);
        l->rel_row = l->q_scale + h;
        make_scale(a, l);
        ek_tower_product(k, &l->rel, encoding, c->hidden, c->span, memory, l->rel_row, c->hidden);
    }
    ek_free_big(memory, acts_bytes);
    free(encoding);
    return good ? EK_OK : ek_fail(EK_ENOMEM, "no memory for the positions of an audio tower");
}
