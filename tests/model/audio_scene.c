#include "audio_scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "../support/gguf_model.h"
#include "../support/hashed.h"
#include "tensor/dtype.h"

enum { BINS = 128 };

audio_spec audio_a1(void)
{
    return (audio_spec){.hidden = 32,
                        .layers = 2,
                        .heads = 4,
                        .channels0 = 128,
                        .channels1 = 4,
                        .taps = 5,
                        .chunk = 12,
                        .left = 13,
                        .output = 24,
                        .text = 40,
                        .cap = 50,
                        .residual = 0.5,
                        .limit = 1e10,
                        .eps = 1e-6,
                        .clips = true};
}

/* ------------------------------------------------------------------ weights */

static bool ends(const char *s, const char *with)
{
    const size_t n = strlen(s), m = strlen(with);
    return n >= m && strcmp(s + n - m, with) == 0;
}

/* Bounds that cut: of both signs, each of its own, and every third one-sided. */
static float bound(const char *name)
{
    const float v = 0.3f + 1.0f * hashed_weight("bounds.norm.weight", hashed_bits(name, 7) % 100000);
    const bool infinite = hashed_bits(name, 9) % 12 == 0;
    if (ends(name, "_min")) return infinite ? -INFINITY : -ek_bf16_f32(ek_f32_bf16(v));
    return infinite ? INFINITY : ek_bf16_f32(ek_f32_bf16(v));
}

enum { GROUP = 32 };

static bool is_matrix(const char *name)
{
    return ends(name, "_proj.weight") || ends(name, ".linear.weight") || ends(name, "_projection.weight") ||
           ends(name, "_linear.weight");
}

static unsigned code(const char *name, int64_t i)
{
    return (unsigned)(hashed_bits(name, (uint64_t)i) % 256);
}

/* Exact in bf16; the bias is -128 of it, so that a value is scale (code - 128), exactly. */
static float scale(const char *name, int64_t group)
{
    return (float)(1 + hashed_bits(name, (uint64_t)(group + 100000000)) % 8) * 0x1p-11f;
}

static float value(const char *name, int64_t i)
{
    if (ends(name, "_min") || ends(name, "_max")) return bound(name);
    float v = hashed_weight(name, (uint64_t)i);
    if (ends(name, "norm.weight") || strstr(name, "norm_")) return fabsf(v) + 0.3f;
    if (ends(name, "per_dim_scale")) return 3 * v - 1.0f;
    return v;
}

static float stored(const audio_spec *s, const char *name, int64_t i)
{
    if (s->replace && strcmp(name, s->replace) == 0) return s->with;
    if (s->codes && is_matrix(name)) return scale(name, i / GROUP) * (float)((int)code(name, i) - 128);
    const float v = value(name, i);
    return s->f32 || isinf(v) ? v : ek_bf16_f32(ek_f32_bf16(v));
}

/* ------------------------------------------------------------------ on disk */

typedef struct writer {
    const audio_spec *s;
    st_file file;
    gguf_file *gguf; /* written instead */
    bool ollama;
} writer;

/* What follows "audio_tower.layers.N." up to the last dot, and what the converters call it. */
static const char *const theirs[][3] = {
    {"feed_forward1.pre_layer_norm", "ffn_norm", "ffn_norm"},
    {"feed_forward1.post_layer_norm", "ffn_post_norm", "ffn_post_norm"},
    {"feed_forward1.ffw_layer_1", "ffn_up", "ffn_up"},
    {"feed_forward1.ffw_layer_2", "ffn_down", "ffn_down"},
    {"feed_forward2.pre_layer_norm", "ffn_norm_1", "ffn_norm_1"},
    {"feed_forward2.post_layer_norm", "ffn_post_norm_1", "ffn_post_norm_1"},
    {"feed_forward2.ffw_layer_1", "ffn_up_1", "ffn_up_1"},
    {"feed_forward2.ffw_layer_2", "ffn_down_1", "ffn_down_1"},
    {"norm_pre_attn", "attn_pre_norm", "ln1"},
    {"norm_post_attn", "attn_post_norm", "ln2"},
    {"norm_out", "ln2", "layer_pre_norm"},
    {"self_attn.q_proj", "attn_q", "attn_q"},
    {"self_attn.k_proj", "attn_k", "attn_k"},
    {"self_attn.v_proj", "attn_v", "attn_v"},
    {"self_attn.post", "attn_out", "attn_out"},
    {"self_attn.relative_k_proj", "attn_k_rel", "linear_pos"},
    {"lconv1d.pre_layer_norm", "conv_norm", "conv_norm"},
    {"lconv1d.conv_norm", "norm_conv", "norm_conv"},
    {"lconv1d.linear_start", "conv_pw1", "conv_pw1"},
    {"lconv1d.linear_end", "conv_pw2", "conv_pw2"},
    {"lconv1d.depthwise_conv1d", "conv_dw", "conv_dw"},
    {"audio_tower.subsample_conv_projection.layer0.conv", "a.conv1d.0", "a.conv1d.0"},
    {"audio_tower.subsample_conv_projection.layer1.conv", "a.conv1d.1", "a.conv1d.1"},
    {"audio_tower.subsample_conv_projection.layer0.norm", "a.conv1d.0.norm", "a.conv1d.0.norm"},
    {"audio_tower.subsample_conv_projection.layer1.norm", "a.conv1d.1.norm", "a.conv1d.1.norm"},
    {"audio_tower.subsample_conv_projection.input_proj_linear", "a.input_projection", "a.pre_encode.out"},
    {"audio_tower.output_proj", "a.pre_encode.out", "mm.a.fc"},
    {"embed_audio.embedding_projection", "mm.a.input_projection", "mm.a.input_projection"},
};

/* Matrices as BF16, all else as F32; scales behind softplus; [channels][taps] without the 1. */
static void put_gguf(const writer *w, const char *name, int n_dims, const int64_t *dim, const float *v, size_t n)
{
    char full[128], module[128];
    int layer = -1, at = 0;
    int64_t turned[4] = {1, 1, 1, 1};
    float *soft = ek_alloc(sizeof *soft * n);
    uint16_t *half = ek_alloc(sizeof *half * n);
    sscanf(name, "audio_tower.layers.%d.%n", &layer, &at);
    snprintf(module, sizeof module, "%s", name + at);
    char *last = strrchr(module, '.'), *linear = strstr(module, ".linear.");
    if (linear) *linear = '\0';
    if (last) *last = '\0';
    const char *called = "per_dim_scale",
               *end = last && !ends(name, "per_dim_scale") ? name + at + (last - module) : ".weight";
    for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++)
        if (strcmp(module, theirs[i][0]) == 0) called = theirs[i][1 + w->ollama];
    if (layer >= 0) snprintf(full, sizeof full, "a.blk.%d.%s%s", layer, called, end);
    else snprintf(full, sizeof full, "%s%s", called, end);
    for (size_t i = 0; i < n; i++) {
        soft[i] = ends(name, "per_dim_scale") ? (float)log1p(exp((double)v[i])) : v[i];
        half[i] = ek_f32_bf16(v[i]);
    }
    if (n_dims == 3) turned[0] = dim[2], turned[1] = dim[0], n_dims = 2;
    else if (n_dims == 0) n_dims = 1;
    else
        for (int d = 0; d < n_dims; d++) turned[d] = dim[n_dims - 1 - d];
    if (is_matrix(name) && w->s->gguf_type && turned[0] % 32 == 0) {
        uint8_t *bytes = ek_alloc(4 * n);
        const size_t size = gguf_encode(w->s->gguf_type, soft, n, bytes);
        gguf_tensor(w->gguf, full, w->s->gguf_type, n_dims, turned, bytes, size);
        free(bytes);
    } else if (is_matrix(name)) gguf_tensor(w->gguf, full, GGUF_BF16, n_dims, turned, half, 2 * n);
    else gguf_tensor(w->gguf, full, GGUF_F32, n_dims, turned, soft, 4 * n);
    free(soft), free(half);
}

/* MLX's three tensors of a module. */
static void put_codes(writer *w, const char *name, int64_t n, int64_t k)
{
    char full[200];
    const int stem = (int)(strlen(name) - strlen(".weight"));
    const int64_t groups = n * k / GROUP;
    uint8_t *codes = ek_alloc((size_t)(n * k));
    uint16_t *half = ek_alloc(sizeof *half * (size_t)groups);
    for (int64_t i = 0; i < n * k; i++) codes[i] = (uint8_t)code(name, i);
    st_add(&w->file, name, "U32", 2, (int64_t[]){n, k / 4}, codes, (size_t)(n * k));
    for (int b = 0; b < 2; b++) {
        for (int64_t g = 0; g < groups; g++) half[g] = ek_f32_bf16(scale(name, g) * (b ? -128.0f : 1.0f));
        snprintf(full, sizeof full, "%.*s%s", stem, name, b ? ".biases" : ".scales");
        st_add(&w->file, full, "BF16", 2, (int64_t[]){n, k / GROUP}, half, 2 * (size_t)groups);
    }
    free(codes), free(half);
}

static void put(writer *w, const char *name, int n_dims, const int64_t *dim, const int64_t *of)
{
    if (w->s->codes && w->s->mlx && n_dims == 2 && is_matrix(name) && dim[1] % GROUP == 0) {
        put_codes(w, name, dim[0], dim[1]);
        return;
    }
    int64_t count = 1;
    char full[200];
    if (w->s->skip && strcmp(name, w->s->skip) == 0) return;
    for (int d = 0; d < n_dims; d++) count *= dim[d];
    float *v = ek_alloc(sizeof *v * (size_t)count);
    uint16_t *half = ek_alloc(sizeof *half * (size_t)count);
    for (int64_t i = 0; i < count; i++) {
        v[i] = stored(w->s, name, of ? of[i] : i);
        half[i] = ek_f32_bf16(v[i]);
    }
    snprintf(full, sizeof full, "%s%s", w->s->mlx ? "" : "model.", name);
    if (w->gguf) put_gguf(w, name, n_dims, dim, v, (size_t)count);
    else if (w->s->f32) st_add(&w->file, full, "F32", n_dims, dim, v, 4 * (size_t)count);
    else st_add(&w->file, full, "BF16", n_dims, dim, half, 2 * (size_t)count);
    free(v), free(half);
}

static void put_vector(writer *w, const char *stem, const char *name, int n)
{
    char full[160];
    snprintf(full, sizeof full, "%s%s", stem, name);
    put(w, full, 1, &(int64_t){n}, NULL);
}

static void put_matrix(writer *w, const char *stem, const char *name, int n, int k)
{
    char full[160];
    snprintf(full, sizeof full, "%s%s.weight", stem, name);
    put(w, full, 2, (int64_t[]){n, k}, NULL);
}

static void put_clipped(writer *w, const char *stem, const char *name, int n, int k)
{
    static const char *const which[] = {"input_min", "input_max", "output_min", "output_max"};
    char full[160];
    snprintf(full, sizeof full, "%s%s.linear", stem, name);
    put_matrix(w, full, "", n, k);
    for (int i = 0; i < 4 && w->s->clips; i++) {
        snprintf(full, sizeof full, "%s%s.%s", stem, name, which[i]);
        put(w, full, 0, NULL, NULL);
    }
}

/* [out][in][3][3], or [out][3][3][in] */
static void put_conv(writer *w, const char *name, int out, int in)
{
    int64_t *of = ek_alloc(sizeof *of * (size_t)(out * in * 9)), at = 0;
    for (int o = 0; o < out; o++)
        for (int p = 0; p < 9; p++)
            for (int i = 0; i < in; i++) of[at++] = ((int64_t)o * in + i) * 9 + p;
    if (w->s->mlx) put(w, name, 4, (int64_t[]){out, 3, 3, in}, of);
    else put(w, name, 4, (int64_t[]){out, in, 3, 3}, NULL);
    free(of);
}

static void put_layer(writer *w, int i)
{
    const int h = w->s->hidden;
    char stem[64], name[128];
    for (int f = 1; f <= 2; f++) {
        snprintf(stem, sizeof stem, "audio_tower.layers.%d.feed_forward%d.", i, f);
        put_vector(w, stem, "pre_layer_norm.weight", h);
        put_vector(w, stem, "post_layer_norm.weight", h);
        put_clipped(w, stem, "ffw_layer_1", 4 * h, h);
        put_clipped(w, stem, "ffw_layer_2", h, 4 * h);
    }
    snprintf(stem, sizeof stem, "audio_tower.layers.%d.", i);
    put_vector(w, stem, "norm_pre_attn.weight", h);
    put_vector(w, stem, "norm_post_attn.weight", h);
    put_vector(w, stem, "norm_out.weight", h);
    put_clipped(w, stem, "self_attn.q_proj", h, h);
    put_clipped(w, stem, "self_attn.k_proj", h, h);
    put_clipped(w, stem, "self_attn.v_proj", h, h);
    put_clipped(w, stem, "self_attn.post", h, h);
    put_matrix(w, stem, "self_attn.relative_k_proj", h, h);
    put_vector(w, stem, "self_attn.per_dim_scale", h / w->s->heads);
    put_vector(w, stem, "lconv1d.pre_layer_norm.weight", h);
    put_vector(w, stem, "lconv1d.conv_norm.weight", h);
    put_clipped(w, stem, "lconv1d.linear_start", 2 * h, h);
    put_clipped(w, stem, "lconv1d.linear_end", h, h);
    snprintf(name, sizeof name, "%slconv1d.depthwise_conv1d.weight", stem);
    put(w, name, 3, w->s->mlx ? (int64_t[]){h, w->s->taps, 1} : (int64_t[]){h, 1, w->s->taps}, NULL);
}

static void put_config(const char *dir, const audio_spec *s)
{
    ek_buf b = {0};
    ek_buf_fmt(&b, "{\"model_type\": \"gemma4\", \"text_config\": {\"hidden_size\": %d, \"vocab_size\": 512},\n",
               s->text);
    if (s->codes && s->mlx) ek_buf_fmt(&b, "\"quantization\": {\"group_size\": %d, \"bits\": 8},\n", GROUP);
    ek_buf_fmt(&b,
               "\"audio_config\": {\"model_type\": \"gemma4_audio\", \"hidden_size\": %d, \"num_hidden_layers\": %d, ",
               s->hidden, s->layers);
    ek_buf_fmt(&b, "\"num_attention_heads\": %d, \"subsampling_conv_channels\": [%d, %d], \"conv_kernel_size\": %d, ",
               s->heads, s->channels0, s->channels1, s->taps);
    ek_buf_fmt(&b, "\"attention_chunk_size\": %d, \"attention_context_left\": %d, \"attention_context_right\": %d, ",
               s->chunk, s->left, s->right);
    ek_buf_fmt(&b, "\"attention_logit_cap\": %.9g, \"residual_weight\": %.9g, \"gradient_clipping\": %.9g, ", s->cap,
               s->residual, s->limit);
    ek_buf_fmt(&b, "\"rms_norm_eps\": %.9g, \"use_clipped_linears\": %s, \"output_proj_dims\": %d}}\n", s->eps,
               s->clips ? "true" : "false", s->output);
    put_text(dir, "config.json", ek_buf_text(&b));
    ek_buf_fini(&b);
}

static void put_all(writer *to)
{
    writer w = *to;
    const audio_spec *s = w.s;
    static const char stem[] = "audio_tower.subsample_conv_projection.";
    put_conv(&w, "audio_tower.subsample_conv_projection.layer0.conv.weight", s->channels0, 1);
    put_vector(&w, stem, "layer0.norm.weight", s->channels0);
    put_conv(&w, "audio_tower.subsample_conv_projection.layer1.conv.weight", s->channels1, s->channels0);
    put_vector(&w, stem, "layer1.norm.weight", s->channels1);
    put_matrix(&w, stem, "input_proj_linear", s->hidden, s->channels0 / 4 * s->channels1);
    for (int i = 0; i < s->layers; i++) put_layer(&w, i);
    put_matrix(&w, "audio_tower.", "output_proj", s->output, s->hidden);
    put_vector(&w, "audio_tower.", "output_proj.bias", s->output);
    put_matrix(&w, "embed_audio.", "embedding_projection", s->text, s->output);
    *to = w;
}

void audio_write(const char *dir, const audio_spec *s)
{
    writer w = {.s = s};
    put_config(dir, s);
    put_all(&w);
    st_save(&w.file, dir, "model.safetensors");
}

void audio_put_gguf(gguf_file *f, const audio_spec *s, bool ollama)
{
    static const char *const key[] = {"block_count", "embedding_length", "attention.head_count"};
    const int value_of[] = {s->layers, s->hidden, s->heads};
    writer w = {.s = s, .gguf = f, .ollama = ollama};
    for (int i = 0; i < 3; i++) {
        char full[80];
        snprintf(full, sizeof full, "%s.audio.%s", ollama ? "gemma4" : "clip", key[i]);
        gguf_u32(f, full, (uint32_t)value_of[i]);
    }
    gguf_f32(f, ollama ? "gemma4.audio.attention.layer_norm_epsilon" : "clip.audio.attention.layer_norm_epsilon",
             1e-5f);
    put_all(&w);
}

/* ------------------------------------------------------------------ the program */

ek_towers *audio_open(const char *dir, unsigned cpu, ek_pool *pool)
{
    ek_towers *t;
    const ek_towers_opts o = {.cpu = cpu, .pool = pool};
    if (ek_towers_open(&t, dir, &o)) fail_msg("%s", ek_err_text());
    return t;
}

float *audio_rows(ek_towers *t, const ek_sound *s, double max_macs, int *n)
{
    ek_tower_work *w;
    bool done = false;
    if (ek_tower_begin_sound(&w, t, s)) fail_msg("%s", ek_err_text());
    double left = ek_tower_left(w);
    while (!done) {
        ek_tower_advance(w, max_macs, &done);
        assert_true(done || ek_tower_left(w) < left);
        left = ek_tower_left(w);
    }
    const float *rows = ek_tower_rows(w, n);
    const size_t bytes = sizeof *rows * (size_t)*n * (size_t)ek_towers_get(t)->hidden;
    float *out = ek_alloc(bytes);
    memcpy(out, rows, bytes);
    ek_tower_free(w);
    return out;
}

ek_sound audio_clip(int samples, uint64_t seed)
{
    ek_sound s = {samples, ek_alloc(sizeof(float) * (size_t)samples)};
    const double f = 200.0 + (double)(hashed_bits("clip", seed) % 3000);
    for (int i = 0; i < samples; i++) {
        const double loud = 0.5 + 0.5 * sin(i * 6.283 * 3 / 16000);
        s.v[i] = (float)(0.4 * loud * sin(i * 6.2831853 * f / 16000) +
                         0.1 * hashed_weight("noise", seed * 1000003 + (uint64_t)i));
    }
    return s;
}

/* ------------------------------------------------------------------ float64, as transformers computes it */

typedef struct exact {
    const audio_spec *s;
    int n;
    double cut, seen;
} exact;

static double weight(const exact *e, const char *stem, const char *name, int64_t i)
{
    char full[320];
    snprintf(full, sizeof full, "%s%s", stem, name);
    return (double)stored(e->s, full, i);
}

static void clamp(exact *e, double *x, int n, double lo, double hi)
{
    for (int i = 0; i < n; i++) {
        e->seen++;
        e->cut += x[i] < lo || x[i] > hi;
        x[i] = x[i] < lo ? lo : x[i] > hi ? hi : x[i];
    }
}

static void limit(const exact *e, double *x)
{
    for (int i = 0; i < e->n * e->s->hidden; i++) x[i] = fmin(fmax(x[i], -e->s->limit), e->s->limit);
}

static double *copy(const double *x, int n)
{
    double *y = ek_alloc(sizeof *y * (size_t)n);
    memcpy(y, x, sizeof *y * (size_t)n);
    return y;
}

static double *linear(const exact *e, const double *x, int rows, const char *stem, const char *name, int n, int k)
{
    double *w = ek_alloc(sizeof *w * (size_t)n * (size_t)k), *y = ek_alloc(sizeof *y * (size_t)rows * (size_t)n);
    for (int i = 0; i < n * k; i++) w[i] = weight(e, stem, name, i);
    for (int r = 0; r < rows; r++)
        for (int o = 0; o < n; o++)
            for (int i = 0; i < k; i++) y[r * n + o] += x[r * k + i] * w[o * k + i];
    free(w);
    return y;
}

static double *clipped(exact *e, const double *x, const char *stem, const char *name, int n, int k)
{
    char full[160];
    double *in = copy(x, e->n * k);
    snprintf(full, sizeof full, "%s%s.", stem, name);
    if (e->s->clips) clamp(e, in, e->n * k, weight(e, full, "input_min", 0), weight(e, full, "input_max", 0));
    double *y = linear(e, in, e->n, full, "linear.weight", n, k);
    if (e->s->clips) clamp(e, y, e->n * n, weight(e, full, "output_min", 0), weight(e, full, "output_max", 0));
    free(in);
    return y;
}

/* name NULL: without weight */
static void rms(const exact *e, double *x, int rows, int n, const char *stem, const char *name, double eps)
{
    for (int r = 0; r < rows; r++) {
        double ss = 0;
        for (int i = 0; i < n; i++) ss += x[r * n + i] * x[r * n + i];
        for (int i = 0; i < n; i++) x[r * n + i] *= (name ? weight(e, stem, name, i) : 1) * pow(ss / n + eps, -0.5);
    }
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* in: channels maps of rows x cols; out likewise, of half the size */
static double *convolve(const exact *e, const double *in, int channels, int rows, int cols, const char *stem, int out)
{
    const int to_rows = (rows + 1) / 2, to_cols = cols / 2;
    double *y = ek_alloc(sizeof *y * (size_t)(out * to_rows * to_cols)),
           *w = ek_alloc(sizeof *w * (size_t)(out * channels * 9));
    for (int i = 0; i < out * channels * 9; i++) w[i] = weight(e, stem, "conv.weight", i);
    for (int o = 0; o < out; o++)
        for (int t = 0; t < to_rows; t++)
            for (int f = 0; f < to_cols; f++)
                for (int c = 0; c < channels; c++)
                    for (int p = 0; p < 9; p++) {
                        const int r = 2 * t - 1 + p / 3, q = 2 * f - 1 + p % 3;
                        if (r < 0 || r >= rows || q < 0 || q >= cols) continue;
                        y[(o * to_rows + t) * to_cols + f] += in[(c * rows + r) * cols + q] *
                                                              w[(o * channels + c) * 9 + p];
                    }
    const int plane = to_rows * to_cols;
    for (int at = 0; at < plane; at++) {
        double mean = 0, var = 0;
        for (int o = 0; o < out; o++) mean += y[o * plane + at] / out;
        for (int o = 0; o < out; o++) var += (y[o * plane + at] - mean) * (y[o * plane + at] - mean) / out;
        for (int o = 0; o < out; o++) {
            const double v = (y[o * plane + at] - mean) / sqrt(var + e->s->eps) * weight(e, stem, "norm.weight", o);
            y[o * plane + at] = v > 0 ? v : 0;
        }
    }
    free(w);
    return y;
}

static double *subsample(const exact *e, const float *mel, int frames)
{
    const int c0 = e->s->channels0, c1 = e->s->channels1, half = (frames + 1) / 2, bands = BINS / 4, flat = bands * c1;
    double *in = ek_alloc(sizeof *in * (size_t)(frames * BINS)), *rows = ek_alloc(sizeof *rows * (size_t)(e->n * flat));
    for (int i = 0; i < frames * BINS; i++) in[i] = (double)mel[i];
    double *a = convolve(e, in, 1, frames, BINS, "audio_tower.subsample_conv_projection.layer0.", c0);
    double *b = convolve(e, a, c0, half, BINS / 2, "audio_tower.subsample_conv_projection.layer1.", c1);
    for (int t = 0; t < e->n; t++)
        for (int f = 0; f < bands; f++)
            for (int c = 0; c < c1; c++) rows[t * flat + f * c1 + c] = b[(c * e->n + t) * bands + f];
    double *x = linear(e, rows, e->n, "audio_tower.subsample_conv_projection.", "input_proj_linear.weight",
                       e->s->hidden, flat);
    free(in), free(a), free(b), free(rows);
    return x;
}

static void feed_forward(exact *e, double *x, const char *layer, int which)
{
    const int h = e->s->hidden;
    char stem[80];
    snprintf(stem, sizeof stem, "%sfeed_forward%d.", layer, which);
    double *y = copy(x, e->n * h);
    limit(e, y);
    rms(e, y, e->n, h, stem, "pre_layer_norm.weight", 1e-6);
    double *up = clipped(e, y, stem, "ffw_layer_1", 4 * h, h);
    for (int i = 0; i < e->n * 4 * h; i++) up[i] *= sigmoid(up[i]);
    double *down = clipped(e, up, stem, "ffw_layer_2", h, 4 * h);
    limit(e, down);
    rms(e, down, e->n, h, stem, "post_layer_norm.weight", 1e-6);
    for (int i = 0; i < e->n * h; i++) x[i] += down[i] * e->s->residual;
    free(y), free(up), free(down);
}

/* One head of one block of `chunk` queries; context: the keys from `past` before its first query on. */
static void attend_block(const exact *e, double *o, const double *q, const double *k, const double *v,
                         const double *rel, int block, int at)
{
    const int h = e->s->hidden, hd = h / e->s->heads, chunk = e->s->chunk, past = e->s->left - 1,
              context = chunk + past;
    const int lengths = context / 2 + 1; /* of rel: distances context / 2 .. 0 */
    double bd[64 * 65] = {0}, shifted[64 * 65];
    assert_true(chunk * (context + 1) <= 64 * 65);
    for (int i = 0; i < chunk && block * chunk + i < e->n; i++)
        for (int p = 0; p < lengths; p++)
            for (int d = 0; d < hd; d++) /* rows of context + 1, the rest zeros */
                bd[i * (context + 1) + p] += q[(block * chunk + i) * h + at + d] * rel[p * h + at + d];
    memcpy(shifted, bd, sizeof shifted); /* cut after chunk x context and read as rows of context */
    for (int i = 0; i < chunk; i++) {
        const int row = block * chunk + i;
        double w[64], total = 0;
        if (row >= e->n) break;
        for (int c = 0; c < context; c++) {
            const int key = block * chunk - past + c;
            double s = 0;
            w[c] = 0;
            if (key < 0 || key > row || row - key >= e->s->left - 1) continue;
            for (int d = 0; d < hd; d++) s += q[row * h + at + d] * k[key * h + at + d];
            w[c] = exp(e->s->cap * tanh((s + shifted[i * context + c]) / e->s->cap));
            total += w[c];
        }
        for (int d = 0; d < hd; d++) {
            o[row * h + at + d] = 0;
            for (int c = 0; c < context; c++)
                if (w[c] > 0) o[row * h + at + d] += w[c] / total * v[(block * chunk - past + c) * h + at + d];
        }
    }
}

static void attention(exact *e, double *x, const char *stem)
{
    const int h = e->s->hidden, hd = h / e->s->heads, chunk = e->s->chunk, lengths = (chunk + e->s->left - 1) / 2 + 1;
    double *y = copy(x, e->n * h), *pos = ek_alloc(sizeof *pos * (size_t)(lengths * h));
    limit(e, y);
    rms(e, y, e->n, h, stem, "norm_pre_attn.weight", 1e-6);
    double *q = clipped(e, y, stem, "self_attn.q_proj", h, h), *k = clipped(e, y, stem, "self_attn.k_proj", h, h);
    double *v = clipped(e, y, stem, "self_attn.v_proj", h, h), *o = ek_alloc(sizeof *o * (size_t)(e->n * h));
    for (int i = 0; i < e->n * h; i++) {
        q[i] *= 1 / sqrt(hd) / log(2) * log1p(exp(weight(e, stem, "self_attn.per_dim_scale", i % hd)));
        k[i] *= log(1 + exp(1)) / log(2);
    }
    for (int p = 0; p < lengths; p++)
        for (int i = 0; i < h / 2; i++) {
            const double a = (lengths - 1 - p) * exp(-i * log(10000) / fmax(h / 2 - 1, 1));
            pos[p * h + i] = sin(a), pos[p * h + h / 2 + i] = cos(a);
        }
    double *rel = linear(e, pos, lengths, stem, "self_attn.relative_k_proj.weight", h, h);
    for (int b = 0; b * chunk < e->n; b++)
        for (int at = 0; at < h; at += hd) attend_block(e, o, q, k, v, rel, b, at);
    double *a = clipped(e, o, stem, "self_attn.post", h, h);
    limit(e, a);
    rms(e, a, e->n, h, stem, "norm_post_attn.weight", 1e-6);
    for (int i = 0; i < e->n * h; i++) x[i] += a[i];
    free(y), free(pos), free(q), free(k), free(v), free(o), free(rel), free(a);
}

static void light_conv(exact *e, double *x, const char *layer)
{
    const int h = e->s->hidden, taps = e->s->taps;
    char stem[80];
    snprintf(stem, sizeof stem, "%slconv1d.", layer);
    double *y = copy(x, e->n * h), *d = ek_alloc(sizeof *d * (size_t)(e->n * h));
    rms(e, y, e->n, h, stem, "pre_layer_norm.weight", e->s->eps);
    double *u = clipped(e, y, stem, "linear_start", 2 * h, h);
    for (int t = 0; t < e->n; t++)
        for (int i = 0; i < h; i++) y[t * h + i] = u[t * 2 * h + i] * sigmoid(u[t * 2 * h + h + i]);
    for (int t = 0; t < e->n; t++)
        for (int i = 0; i < h; i++)
            for (int j = 0; j < taps; j++)
                if (t - taps + 1 + j >= 0)
                    d[t * h + i] += weight(e, stem, "depthwise_conv1d.weight", i * taps + j) *
                                    y[(t - taps + 1 + j) * h + i];
    limit(e, d);
    rms(e, d, e->n, h, stem, "conv_norm.weight", e->s->eps);
    for (int i = 0; i < e->n * h; i++) d[i] *= sigmoid(d[i]);
    double *end = clipped(e, d, stem, "linear_end", h, h);
    for (int i = 0; i < e->n * h; i++) x[i] += end[i];
    free(y), free(d), free(u), free(end);
}

double *audio_exact(const audio_spec *s, const ek_sound *sound, int *n, double *cut)
{
    const int frames = ek_mel_frames(sound->samples), h = s->hidden;
    float *mel = ek_alloc(sizeof *mel * (size_t)frames * BINS);
    exact e = {.s = s, .n = (frames + 3) / 4};
    ek_mel_rows(mel, sound);
    double *x = subsample(&e, mel, frames);
    for (int l = 0; l < s->layers; l++) {
        char stem[64];
        snprintf(stem, sizeof stem, "audio_tower.layers.%d.", l);
        feed_forward(&e, x, stem, 1);
        attention(&e, x, stem);
        light_conv(&e, x, stem);
        feed_forward(&e, x, stem, 2);
        limit(&e, x);
        rms(&e, x, e.n, h, stem, "norm_out.weight", 1e-6);
    }
    double *out = linear(&e, x, e.n, "audio_tower.", "output_proj.weight", s->output, h);
    for (int i = 0; i < e.n * s->output; i++) out[i] += weight(&e, "audio_tower.", "output_proj.bias", i % s->output);
    rms(&e, out, e.n, s->output, "", NULL, s->eps);
    double *rows = linear(&e, out, e.n, "embed_audio.", "embedding_projection.weight", s->text, s->output);
    free(mel), free(x), free(out);
    *n = e.n;
    *cut = e.seen > 0 ? e.cut / e.seen : 0;
    return rows;
}
