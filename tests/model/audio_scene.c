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

float audio_stored(const audio_spec *s, const char *name, int64_t i)
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
        v[i] = audio_stored(w->s, name, of ? of[i] : i);
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
