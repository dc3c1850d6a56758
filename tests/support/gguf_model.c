#include "gguf_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "checkpoint.h"
#include "tensor/dtype.h"

void gguf_name(char *out, size_t room, const char *name, gguf_scheme scheme)
{
    static const char *const whole[][4] = {
        {"model.embed_tokens.weight", "token_embd.weight", 0, 0},
        {"model.norm.weight", "output_norm.weight", 0, 0},
        {"model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight", 0, 0},
        {"model.per_layer_model_projection.weight", "per_layer_model_proj.weight", 0, 0},
        {"model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight", 0, 0},
        {"pre_projection.weight", "nextn.pre_projection.weight", "mtp_pre_proj.weight", "mtp.pre_projection.weight"},
        {"post_projection.weight", "nextn.post_projection.weight", "mtp_post_proj.weight",
         "mtp.post_projection.weight"},
        {"masked_embedding.centroids.weight", "nextn.centroids.weight", "mtp_centroids.weight", "mtp.centroids.weight"},
        {"masked_embedding.token_ordering", "nextn.token_ordering.weight", "mtp_token_ordering.weight",
         "mtp.token_ordering.weight"},
    };
    static const char *const part[][2] = {
        {"self_attn.q_norm.", "attn_q_norm."},
        {"self_attn.k_norm.", "attn_k_norm."},
        {"self_attn.q_proj.", "attn_q."},
        {"self_attn.k_proj.", "attn_k."},
        {"self_attn.v_proj.", "attn_v."},
        {"self_attn.o_proj.", "attn_output."},
        {"mlp.gate_proj.", "ffn_gate."},
        {"mlp.up_proj.", "ffn_up."},
        {"mlp.down_proj.", "ffn_down."},
        {"input_layernorm.", "attn_norm."},
        {"post_attention_layernorm.", "post_attention_norm."},
        {"pre_feedforward_layernorm.", "ffn_norm."},
        {"post_feedforward_layernorm.", "post_ffw_norm."},
        {"post_feedforward_layernorm_1.", "post_ffw_norm_1."},
        {"pre_feedforward_layernorm_2.", "pre_ffw_norm_2."},
        {"post_feedforward_layernorm_2.", "post_ffw_norm_2."},
        {"router.proj.", "ffn_gate_inp."},
        {"router.scale", "ffn_gate_inp.scale"},
        {"router.per_expert_scale", "ffn_down_exps.scale"},
        {"experts.gate_up_proj", "ffn_gate_up_exps.weight"},
        {"experts.down_proj", "ffn_down_exps.weight"},
        {"per_layer_input_gate.", "inp_gate."},
        {"per_layer_projection.", "proj."},
        {"post_per_layer_input_norm.", "post_norm."},
        {"layer_scalar", "layer_output_scale.weight"},
    };
    int layer, at = 0;
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (strcmp(name, whole[i][0]) == 0) {
            snprintf(out, room, "%s", whole[i][whole[i][2] ? 1 + (int)scheme : 1]);
            return;
        }
    EK_ASSERT(sscanf(name, "model.layers.%d.%n", &layer, &at) == 1 && at);
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        size_t n = strlen(part[i][0]);
        if (strncmp(name + at, part[i][0], n) != 0) continue;
        snprintf(out, room, "blk.%d.%s%s", layer, part[i][1], name + at + n);
        return;
    }
    EK_ASSERT(0 && "a tensor without a name in GGUF files");
}

/* ------------------------------------------------------------------ tensors */

typedef struct writer {
    const ek_config *c;
    const gguf_opts *o;
    gguf_file *file;
    st_file hf;
    int n;
} writer;

/* 32 values to a block, and what it stands for. The scale is a binary16 value. */
static void quantise(uint32_t type, float *v, uint8_t *block)
{
    float max = 0;
    int half = type == GGUF_Q4_0 ? 7 : 127;
    for (int i = 0; i < 32; i++) max = fmaxf(max, fabsf(v[i]));
    ek_f16 d = ek_f32_f16(max / (float)half);
    float s = ek_f16_f32(d);
    memcpy(block, &d, 2);
    for (int i = 0; i < 32; i++) {
        int q = s > 0 ? (int)lrintf(v[i] / s) : 0;
        if (q > half) q = half;
        if (q < -half) q = -half;
        v[i] = (float)q * s;
        if (type == GGUF_Q8_0) block[2 + i] = (uint8_t)q;
        else if (i < 16) block[2 + i] = (uint8_t)(q + 8);
        else block[2 + i - 16] |= (uint8_t)((q + 8) << 4);
    }
}

/* 64 values with codes by hash. */
static void quantise_nvfp4(float *v, uint8_t *block, float gain)
{
    static const float e2m1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    for (int g = 0; g < 4; g++) {
        uint32_t bits = ek_f32_bits(v[16 * g]) >> 16;
        int e = 3 + (int)(bits & 1), m = (int)(bits >> 1 & 7);
        block[g] = (uint8_t)(e << 3 | m);
        for (int i = 0; i < 16; i++) {
            float *x = &v[16 * g + i];
            unsigned c = ek_f32_bits(*x) >> 17 & 7;
            block[4 + 8 * g + i % 8] |= (uint8_t)((c | (*x < 0 ? 8u : 0)) << i / 8 * 4);
            *x = ldexpf((float)(8 + m), e - 10) * gain * (*x < 0 ? -e2m1[c] : e2m1[c]);
        }
    }
}

/* Values to bytes of a type; v becomes what they stand for. */
static size_t encode(uint32_t type, float *v, size_t n, uint8_t *out, float gain, size_t per_expert)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (type == GGUF_NVFP4) {
            float s = gain > 0 ? gain * (float)(1 + i / per_expert) : 1;
            if (i % 64 == 0) quantise_nvfp4(v + i, out + at, s), at += 36;
            continue;
        }
        if (type == GGUF_Q4_0 || type == GGUF_Q8_0) {
            if (i % 32 == 0) quantise(type, v + i, out + at), at += type == GGUF_Q4_0 ? 18 : 34;
            continue;
        }
        ek_f16 half = type == GGUF_F16 ? ek_f32_f16(v[i]) : ek_f32_bf16(v[i]);
        if (type == GGUF_F32) memcpy(out + at, &v[i], 4), at += 4;
        else {
            memcpy(out + at, &half, 2), at += 2;
            v[i] = type == GGUF_F16 ? ek_f16_f32(half) : ek_bf16_f32(half);
        }
    }
    return at;
}

size_t gguf_encode(uint32_t type, float *v, size_t n, uint8_t *out)
{
    return encode(type, v, n, out, 0, 1);
}

static void put(writer *w, const char *name, uint32_t type, int n_dims, const int64_t *dim, const void *data, size_t n)
{
    int64_t inner[4];
    if (w->o->skip && strcmp(name, w->o->skip) == 0) return;
    for (int d = 0; d < n_dims; d++) inner[d] = dim[n_dims - 1 - d];
    gguf_tensor(&w->file[w->o->parts > 1 ? w->n++ % w->o->parts : 0], name, type, n_dims, inner, data, n);
}

/* The rows of one half of every expert. */
static void put_half(writer *w, int layer, const char *name, uint32_t type, const int64_t *dim, const uint8_t *data,
                     size_t n, int half)
{
    char full[64];
    int64_t part[3] = {dim[0], dim[1] / 2, dim[2]};
    size_t each = n / (size_t)dim[0] / 2;
    uint8_t *out = ek_alloc(n / 2);
    for (int64_t e = 0; e < dim[0]; e++)
        memcpy(out + (size_t)e * each, data + (2 * (size_t)e + (size_t)half) * each, each);
    snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    put(w, full, type, 3, part, out, n / 2);
    free(out);
}

/* Beside blk.0.ffn_up.weight, blk.0.ffn_up.scale. */
static void put_gains(writer *w, const char *weight, int n, float gain)
{
    char name[96];
    float v[64];
    const int64_t dim = n;
    for (int i = 0; i < n; i++) v[i] = gain * (float)(1 + i);
    snprintf(name, sizeof name, "%.*s.scale", (int)(strlen(weight) - strlen(".weight")), weight);
    put(w, name, GGUF_F32, 1, &dim, v, sizeof *v * (size_t)n);
    snprintf(name, sizeof name, "%.*s.input_scale", (int)(strlen(weight) - strlen(".weight")), weight);
    put(w, name, GGUF_F32, 1, &dim, v, sizeof *v * (size_t)n);
}

static void one(void *arg, const char *name, int n_dims, const int64_t *dim)
{
    writer *w = arg;
    char full[96];
    size_t n = 1;
    int layer = 0;
    const int block = w->o->type == GGUF_NVFP4 ? 64 : 32;
    bool blocks = w->o->type == GGUF_Q4_0 || w->o->type == GGUF_Q8_0 || block == 64,
         scale = strstr(name, "per_expert_scale");
    for (int d = 0; d < n_dims; d++) n *= (size_t)dim[d];
    const bool floats = n_dims == 1 || strstr(name, "router.proj"); /* as the files of other programs have them */
    uint32_t type = floats || (blocks && dim[n_dims - 1] % block) ? GGUF_F32 : w->o->type;
    float *v = ek_alloc(n * sizeof *v);
    uint8_t *bytes = ek_alloc(n * sizeof *v + 64);
    for (size_t i = 0; i < n; i++) v[i] = scale && w->o->no_expert_scale ? 1 : hashed_weight(name, i);
    const bool other = strstr(name, "experts.down_proj"); /* that name is taken */
    const float gain = other ? 0 : w->o->gain;
    size_t size = encode(type, v, n, bytes, gain, n / (size_t)(n_dims == 3 ? dim[0] : 1));
    st_add(&w->hf, name, "F32", n_dims, dim, v, n * sizeof *v);
    gguf_name(full, sizeof full, name, w->o->scheme);
    sscanf(full, "blk.%d.", &layer);
    if (type == GGUF_NVFP4 && gain > 0) put_gains(w, full, n_dims == 3 ? (int)dim[0] : 1, gain);
    if (strstr(full, "ffn_gate_up_exps") && w->o->split_experts) {
        put_half(w, layer, "ffn_gate_exps.weight", type, dim, bytes, size, 0);
        put_half(w, layer, "ffn_up_exps.weight", type, dim, bytes, size, 1);
    } else if (!(scale && w->o->no_expert_scale)) {
        put(w, full, type, n_dims, dim, bytes, size);
    }
    if (w->o->head && strcmp(full, "token_embd.weight") == 0) {
        if (w->o->head == 2) bytes[size / 2] ^= 1;
        put(w, "output.weight", type, n_dims, dim, bytes, size);
    }
    free(v), free(bytes);
}

/* What other programs put beside a text model. */
static void others(writer *w)
{
    static const float some[1024];
    static const char *const foreign[] = {"v.patch_embd.weight", "a.conv1d.weight", "mm.input_projection.weight"};
    const ek_config *c = w->c;
    for (size_t i = 0; i < 3 && w->o->foreign; i++) put(w, foreign[i], GGUF_F32, 1, (const int64_t[]){7}, some, 28);
    for (int i = c->first_shared; i < c->n_layers && w->o->shared; i++) {
        static const char *const name[] = {"attn_k", "attn_v", "attn_k_norm"};
        for (int j = 0; j < 3; j++) {
            char full[64];
            snprintf(full, sizeof full, "blk.%d.%s.weight", i, name[j]);
            put(w, full, GGUF_F32, 1, (const int64_t[]){5}, some, 20);
        }
    }
    if (w->o->skip && strcmp(w->o->skip, "rope_freqs.weight") == 0) return;
    for (int i = 0; i < c->n_layers; i++) {
        int dim = c->layer[i].head_dim, rotated = (int)(c->rope_partial[EK_FULL] * dim) / 2;
        float f[1024];
        if (c->layer[i].kind != EK_FULL) continue;
        for (int j = 0; j < dim / 2; j++) f[j] = j < rotated ? (float)c->rope_factor[EK_FULL] : 1e30f;
        put(w, "rope_freqs.weight", GGUF_F32, 1, (const int64_t[]){dim / 2}, f, (size_t)dim * 2);
        return;
    }
}

static void ordering(writer *w)
{
    int n = w->c->vocab_size, each = n / w->c->n_centroids;
    int32_t *id = ek_alloc(sizeof *id * (size_t)n);
    int64_t *wide = ek_alloc(sizeof *wide * (size_t)n), dim = n;
    char full[64];
    for (int i = 0; i < n; i++) {
        wide[i] = w->o->order[i];
        if (w->o->centroid_of) id[w->o->order[i]] = i / each;
        else id[i] = w->o->order[i];
    }
    gguf_name(full, sizeof full, "masked_embedding.token_ordering", w->o->scheme);
    put(w, full, 26, 1, &dim, id, sizeof *id * (size_t)n);
    st_add(&w->hf, "masked_embedding.token_ordering", "I64", 1, &dim, wide, sizeof *wide * (size_t)n);
    free(id), free(wide);
}

/* ------------------------------------------------------------------ metadata */

typedef struct keys {
    gguf_file *f;
    const gguf_opts *o;
    const ek_config *c;
    const char *arch;
} keys;

static const char *key(const keys *k, const char *name)
{
    static char full[128];
    snprintf(full, sizeof full, "%s.%s", k->arch, name);
    return k->o->skip_key && strcmp(name, k->o->skip_key) == 0 ? "skipped" : full;
}

static void whole(const keys *k, const char *name, int v)
{
    gguf_u32(k->f, key(k, name), (uint32_t)v);
}

/* One i32 per layer, or one u32 where all are the same and that is wanted. */
static void per_layer(const keys *k, const char *name, int (*of)(const ek_layer_config *l))
{
    int32_t v[EK_MAX_LAYERS];
    bool same = true;
    for (int i = 0; i < k->c->n_layers; i++) {
        v[i] = of(&k->c->layer[i]);
        same &= v[i] == v[0];
    }
    if (same && k->o->scalars) whole(k, name, v[0]);
    else gguf_array(k->f, key(k, name), 5, (uint64_t)k->c->n_layers, v, sizeof *v * (size_t)k->c->n_layers);
}

static int kv_heads(const ek_layer_config *l)
{
    return l->n_kv_heads;
}

static int width(const ek_layer_config *l)
{
    return l->intermediate_size;
}

static void kinds(const keys *k)
{
    static const char name[] = "attention.sliding_window_pattern";
    uint8_t sliding[EK_MAX_LAYERS];
    int period = 0;
    for (int i = 0; i < k->c->n_layers; i++) {
        sliding[i] = k->c->layer[i].kind == EK_SLIDING;
        if (!sliding[i] && !period) period = i + 1;
    }
    if (k->o->period) whole(k, name, period);
    else gguf_array(k->f, key(k, name), 7, (uint64_t)k->c->n_layers, sliding, (size_t)k->c->n_layers);
}

static void drafter_keys(const keys *k)
{
    static const char *const backbone[] = {"embedding_length_out", "backbone_embedding_length", "n_embd_backbone"};
    whole(k, backbone[k->o->scheme], k->c->backbone_hidden_size);
    if (!k->c->n_centroids) return;
    whole(k, k->o->scheme == GGUF_IK ? "centroid_count" : "n_centroids", k->c->n_centroids);
    whole(k, "centroid_top_k", k->c->top_k_centroids);
    gguf_bool(k->f, key(k, "use_ordered_embeddings"), 1);
}

static void metadata(const keys *k)
{
    const ek_config *c = k->c;
    const ek_layer_config *slide = NULL, *full = NULL;
    for (int i = 0; i < c->n_layers; i++) *(c->layer[i].kind == EK_FULL ? &full : &slide) = &c->layer[i];
    gguf_text(k->f, "general.architecture", k->arch);
    whole(k, "block_count", c->n_layers);
    whole(k, "embedding_length", c->hidden_size);
    whole(k, "context_length", c->max_position_embeddings);
    whole(k, "attention.head_count", c->n_heads);
    per_layer(k, "attention.head_count_kv", kv_heads);
    per_layer(k, "feed_forward_length", width);
    if (full) whole(k, "attention.key_length", full->head_dim), whole(k, "attention.value_length", full->head_dim);
    if (slide)
        whole(k, "attention.key_length_swa", slide->head_dim), whole(k, "attention.value_length_swa", slide->head_dim);
    gguf_f32(k->f, key(k, "attention.layer_norm_rms_epsilon"), c->rms_norm_eps);
    whole(k, "attention.sliding_window", c->sliding_window);
    kinds(k);
    if (!c->backbone_hidden_size) {
        whole(k, "attention.shared_kv_layers", c->n_kv_shared_layers);
        whole(k, "embedding_length_per_layer_input", c->per_layer_size);
        gguf_f32(k->f, key(k, "final_logit_softcapping"), c->final_logit_softcapping);
    } else {
        drafter_keys(k);
    }
    gguf_f32(k->f, key(k, "rope.freq_base"), (float)c->rope_theta[EK_FULL]);
    gguf_f32(k->f, key(k, "rope.freq_base_swa"), (float)c->rope_theta[EK_SLIDING]);
    if (c->n_experts) {
        whole(k, "expert_count", c->n_experts);
        whole(k, "expert_used_count", c->top_k_experts);
        whole(k, "expert_feed_forward_length", c->moe_intermediate_size);
    }
}

/* ------------------------------------------------------------------ files */

static void save_parts(writer *w, const char *dir, const char *stem, int total)
{
    for (int i = 0; i < w->o->parts; i++) {
        char name[128];
        uint16_t no = (uint16_t)i, n = (uint16_t)w->o->parts;
        gguf_value(&w->file[i], "split.no", 2, &no, sizeof no);
        gguf_value(&w->file[i], "split.count", 2, &n, sizeof n);
        gguf_value(&w->file[i], "split.tensors.count", 5, &total, sizeof total);
        snprintf(name, sizeof name, "%s-%05d-of-%05d.gguf", stem, i + 1, w->o->parts);
        gguf_save(&w->file[i], dir, name);
    }
}

static void save_hf(writer *w, const char *dir)
{
    const ek_config *c = w->c;
    ek_buf text = {0};
    st_save(&w->hf, dir, "model.safetensors");
    if (c->backbone_hidden_size)
        ek_buf_fmt(&text,
                   "{\"model_type\":\"gemma4_assistant\",\"backbone_hidden_size\":%d,\"use_ordered_embeddings\":%s,"
                   "\"num_centroids\":%d,\"centroid_intermediate_top_k\":%d,\"text_config\":",
                   c->backbone_hidden_size, c->n_centroids ? "true" : "false", c->n_centroids ? c->n_centroids : 64,
                   c->n_centroids ? c->top_k_centroids : 4);
    ek_buf_char(&text, '{');
    config_fields(&text, c);
    ek_buf_str(&text, c->backbone_hidden_size ? "}}" : "}");
    put_text(dir, "config.json", text.data);
    ek_buf_fini(&text);
}

/* Up to four files: one, or the parts of a split model. */
static void fill(writer *w)
{
    static const char *const archs[] = {"gemma4-assistant", "gemma4_mtp", "gemma4_assistant"};
    const ek_config *c = w->c;
    keys k = {.f = &w->file[0], .o = w->o, .c = c, .arch = c->backbone_hidden_size ? archs[w->o->scheme] : "gemma4"};
    EK_ASSERT(w->o->parts <= 4);
    metadata(&k);
    each_tensor(c, one, w);
    others(w);
    if (c->n_centroids) ordering(w);
    if (w->o->extra) w->o->extra(&w->file[0]);
}

void write_gguf(const char *dir, const char *name, const ek_config *c, const gguf_opts *o, const char *hf_dir)
{
    static const gguf_opts plain;
    gguf_file file[4];
    memset(file, 0, sizeof file);
    writer w = {.c = c, .o = o ? o : &plain, .file = file};
    fill(&w);
    int total = 0;
    for (int i = 0; i < 4; i++) total += (int)file[i].n_tensors;
    if (w.o->parts > 1) save_parts(&w, dir, name, total);
    else gguf_save(&file[0], dir, name);
    if (hf_dir) save_hf(&w, hf_dir);
    ek_buf_fini(&w.hf.head), ek_buf_fini(&w.hf.data);
}

void gguf_model(ek_buf *out, const ek_config *c, const gguf_opts *o)
{
    gguf_file file = {0};
    writer w = {.c = c, .o = o, .file = &file};
    fill(&w);
    gguf_bytes(&file, out);
    gguf_fini(&file);
    ek_buf_fini(&w.hf.head), ek_buf_fini(&w.hf.data);
}
