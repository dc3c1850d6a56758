#include "tower_gguf_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/gguf_model.h"
#include "base/alloc.h"
#include "tensor/dtype.h"

static const char *const ours[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                                   "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};
static const char *const theirs[] = {"attn_q", "attn_k", "attn_v", "attn_out", "ffn_gate", "ffn_up", "ffn_down"};
static const char *const bounds[] = {"input_min", "input_max", "output_min", "output_max"};

static const char *const whole[][2] = {
    {"vision_tower.patch_embedder.input_proj.weight", "v.patch_embd.weight"},
    {"vision_tower.patch_embedder.position_embedding_table", "v.position_embd.weight"},
    {"vision_tower.std_bias", "v.std_bias"},
    {"vision_tower.std_scale", "v.std_scale"},
    {"embed_vision.embedding_projection.weight", "mm.input_projection.weight"},
    {"embed_vision.multimodal_embedder.embedding_projection.weight", "mm.input_projection.weight"},
    {"embed_vision.patch_dense.weight", "v.patch_embd.weight"},
    {"embed_vision.patch_dense.bias", "v.patch_embd.bias"},
    {"embed_vision.patch_ln1.weight", "v.patch_norm.1.weight"},
    {"embed_vision.patch_ln1.bias", "v.patch_norm.1.bias"},
    {"embed_vision.patch_ln2.weight", "v.patch_norm.2.weight"},
    {"embed_vision.patch_ln2.bias", "v.patch_norm.2.bias"},
    {"embed_vision.pos_norm.weight", "v.patch_norm.3.weight"},
    {"embed_vision.pos_norm.bias", "v.patch_norm.3.bias"},
    {"embed_vision.pos_embedding", "v.position_embd.weight"},
};

static const char *const norms[][2] = {
    {"input_layernorm", "ln1"},           {"post_attention_layernorm", "attn_post_norm"},
    {"pre_feedforward_layernorm", "ln2"}, {"post_feedforward_layernorm", "ffn_post_norm"},
    {"self_attn.q_norm", "attn_q_norm"},  {"self_attn.k_norm", "attn_k_norm"}};

/* False: a bound, which is written elsewhere in some dialects. */
static bool name_of(char *out, size_t room, const char *name)
{
    int layer, at = 0;
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (strcmp(name, whole[i][0]) == 0) return snprintf(out, room, "%s", whole[i][1]) > 0;
    assert_int_equal(sscanf(name, "vision_tower.encoder.layers.%d.%n", &layer, &at), 1);
    for (int i = 0; i < 6; i++) {
        char full[64];
        snprintf(full, sizeof full, "%s.weight", norms[i][0]);
        if (strcmp(name + at, full) == 0) return snprintf(out, room, "v.blk.%d.%s.weight", layer, norms[i][1]) > 0;
    }
    for (int i = 0; i < 7; i++) {
        const size_t n = strlen(ours[i]);
        if (strncmp(name + at, ours[i], n) != 0) continue;
        const bool weight = strcmp(name + at + n, ".linear.weight") == 0;
        snprintf(out, room, "v.blk.%d.%s%s", layer, theirs[i], weight ? ".weight" : name + at + n);
        return weight;
    }
    fail_msg("no name for %s", name);
    return false;
}

static void put(gguf_file *f, const char *name, uint32_t type, int n_dims, const int64_t *outermost_first,
                const float *v, size_t n)
{
    int64_t dim[4];
    uint8_t *bytes = ek_alloc(4 * n);
    float *copy = ek_alloc(sizeof *copy * n);
    for (int d = 0; d < n_dims; d++) dim[d] = outermost_first[n_dims - 1 - d];
    memcpy(copy, v, sizeof *copy * n);
    gguf_tensor(f, name, type, n_dims, dim, bytes, gguf_encode(type, copy, n, bytes));
    free(bytes), free(copy);
}

/* Rows of [pixels][3] as [3][pixels]. */
static float *channels_first(const float *v, int64_t rows, int64_t pixels)
{
    float *to = ek_alloc(sizeof *to * (size_t)(rows * pixels * 3));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t p = 0; p < pixels; p++)
            for (int64_t c = 0; c < 3; c++) to[(r * 3 + c) * pixels + p] = v[(r * pixels + p) * 3 + c];
    return to;
}

/* [n][2][width] as [2][n][width] */
static float *tables_apart(const float *v, int64_t n, int64_t width)
{
    float *to = ek_alloc(sizeof *to * (size_t)(2 * n * width));
    for (int64_t i = 0; i < n; i++)
        for (int64_t t = 0; t < 2; t++)
            memcpy(to + (t * n + i) * width, v + (2 * i + t) * width, sizeof *to * (size_t)width);
    return to;
}

static void put_tensor(gguf_file *f, const tower_case *c, const tower_tensor *t, const char *name, tower_gguf_dialect d,
                       uint32_t matrices)
{
    const bool blocks = t->n_dims == 2 && t->dim[1] % 32 == 0 && strcmp(name, "v.patch_embd.weight");
    const uint32_t type = t->n_dims != 2 ? GGUF_F32 : blocks ? matrices : GGUF_BF16;
    const int64_t pixels = t->n_dims == 2 ? t->dim[1] / 3 : t->dim[0] / 3;
    if (strcmp(name, "v.patch_embd.weight") == 0) {
        float *v = channels_first(t->v, t->dim[0], pixels);
        const int64_t dim[] = {t->dim[0], 3, c->side, c->side};
        if (c->unified) put(f, name, type, 2, t->dim, v, t->n);
        else put(f, name, d == TOWER_OLLAMA ? GGUF_F16 : GGUF_F32, 4, dim, v, t->n);
        free(v);
    } else if (strstr(name, "v.patch_norm.1.")) {
        float *v = channels_first(t->v, 1, pixels);
        put(f, name, GGUF_F32, 1, t->dim, v, t->n);
        free(v);
    } else if (c->unified && strcmp(name, "v.position_embd.weight") == 0) {
        float *v = tables_apart(t->v, t->dim[0], t->dim[2]);
        const int64_t dim[] = {2, t->dim[0], t->dim[2]};
        put(f, name, GGUF_F32, 3, dim, v, t->n);
        free(v);
    } else {
        put(f, name, type, t->n_dims, t->dim, t->v, t->n);
    }
}

/* All bounds in one tensor; of a linear with none of them zeros, and four more for the projector. */
static void put_clamps(gguf_file *f, const tower_case *c)
{
    const int64_t n = (c->layers * 7 + 1) * 4;
    float *v = ek_alloc(sizeof *v * (size_t)n);
    for (int l = 0; l < c->layers; l++)
        for (int i = 0; i < 7 * 4; i++) {
            char name[128];
            snprintf(name, sizeof name, "vision_tower.encoder.layers.%d.%s.%s", l, ours[i / 4], bounds[i % 4]);
            const float b = *tower_find(c, name)->v;
            v[l * 28 + i] = isinf(b) ? 0 : b;
        }
    put(f, "v.clamp_data", GGUF_F32, 1, &n, v, (size_t)n);
    free(v);
}

static void put_key(gguf_file *f, const char *owner, const char *key, int v)
{
    char full[96];
    snprintf(full, sizeof full, "%s.vision.%s", owner, key);
    gguf_u32(f, full, (uint32_t)v);
}

void tower_put_gguf(gguf_file *f, const tower_case *c, tower_gguf_dialect d, const char *skip)
{
    tower_put_gguf_as(f, c, d, skip, GGUF_BF16);
}

void tower_put_gguf_as(gguf_file *f, const tower_case *c, tower_gguf_dialect d, const char *skip, uint32_t type)
{
    const char *const owner = d == TOWER_OLLAMA ? "gemma4" : "clip";
    char key[96];
    put_key(f, owner, "block_count", c->layers);
    put_key(f, owner, "embedding_length", c->width);
    put_key(f, owner, "feed_forward_length", c->inner);
    put_key(f, owner, "attention.head_count", c->heads);
    put_key(f, owner, "patch_size", c->side);
    if (c->pool != 3 || d == TOWER_OLLAMA) put_key(f, owner, "projector.scale_factor", c->pool);
    snprintf(key, sizeof key, "%s.vision.attention.layer_norm_epsilon", owner);
    gguf_f32(f, key, 1e-6f);
    if (d == TOWER_LLAMA) gguf_text(f, "clip.vision.projector_type", c->unified ? "gemma4uv" : "gemma4v");
    for (int i = 0; i < c->n_tensors; i++) {
        const tower_tensor *t = &c->tensor[i];
        char name[128];
        const bool bound = !name_of(name, sizeof name, t->name);
        if (skip && strcmp(name, skip) == 0) continue;
        if (!bound) put_tensor(f, c, t, name, d, type);
        else if (d == TOWER_LLAMA) put(f, name, GGUF_F32, 1, &(int64_t){1}, t->v, 1);
    }
    if (c->clips && d == TOWER_OLLAMA && !(skip && strcmp(skip, "v.clamp_data") == 0)) put_clamps(f, c);
}
