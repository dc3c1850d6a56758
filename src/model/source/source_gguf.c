/* A model in a GGUF file, or in the files of a split model: its weights. Dimensions are innermost first there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "model/source/source_gguf.h"

static void take_file(ek_gguf_source *s, ek_gguf *g)
{
    s->g = g;
    s->file = ek_gguf_file_name(g, 0);
    s->used = ek_alloc((size_t)ek_gguf_tensor_count(g) + 1);
}

static ek_err open_file(ek_gguf_source *s)
{
    ek_gguf *g;
    if (s->g) return EK_OK;
    EK_TRY(ek_gguf_open(&g, s->source.path));
    take_file(s, g);
    return EK_OK;
}

static ek_err read_config(ek_source *source, ek_config *out)
{
    ek_gguf_source *s = (ek_gguf_source *)source;
    EK_TRY(open_file(s));
    EK_TRY(ek_gguf_config(s, out));
    s->n_centroids = out->n_centroids;
    return EK_OK;
}

/* ------------------------------------------------------------------ weights */

/* full has room for names. */
static ek_err find_tensor(ek_gguf_source *s, const char *name, const ek_gguf_tensor **out)
{
    char full[160];
    *out = ek_gguf_weight_find(s->g, name, full, sizeof full);
    if (!*out) return ek_fail(EK_EFORMAT, "%s: tensor %s is missing", s->file, full);
    s->used[*out - ek_gguf_tensor_at(s->g, 0)] = true;
    return EK_OK;
}

/* Compares with dimensions in the model's order, outermost first. */
static ek_err check_shape(const ek_gguf_tensor *t, int64_t outer, int64_t n, int64_t k)
{
    if (t->dim[0] == k && t->dim[1] == n && t->dim[2] == outer && t->dim[3] == 1) return EK_OK;
    return ek_fail(EK_EFORMAT,
                   "%s: tensor %s has %lld x %lld x %lld x %lld weights, the metadata needs %lld x %lld x %lld",
                   t->file, t->name, (long long)t->dim[3], (long long)t->dim[2], (long long)t->dim[1],
                   (long long)t->dim[0], (long long)outer, (long long)n, (long long)k);
}

static ek_err type_of(const ek_gguf_tensor *t, const ek_weight_type **out)
{
    const ek_gguf_type *has = ek_gguf_type_of(t->type);
    *out = has ? ek_weight_type_named(has->name) : NULL;
    if (*out) {
        EK_ASSERT((*out)->block == has->block && (*out)->block_bytes[0] == has->bytes && !(*out)->block_bytes[1]);
        return EK_OK;
    }
    if (!has)
        return ek_fail(EK_EUNSUPPORTED, "%s: tensor %s has type number %u, which is not known", t->file, t->name,
                       t->type);
    return ek_fail(EK_EUNSUPPORTED, "%s: tensor %s has type %s, which cannot be run", t->file, t->name, has->name);
}

/* "layers.3.experts.up_proj": a tensor, or the second half of each expert's rows of gate_up_proj. */
static ek_err find_expert(ek_gguf_source *s, const ek_weight_query *q, const ek_gguf_tensor **t, int *rows, int *first)
{
    char fused[128], full[160];
    const char *proj = strrchr(q->name, '.') + 1;
    *rows = q->n, *first = 0;
    snprintf(fused, sizeof fused, "%.*sgate_up_proj", (int)(proj - q->name), q->name);
    if (strcmp(proj, "down_proj") == 0 || !ek_gguf_weight_find(s->g, fused, full, sizeof full))
        return find_tensor(s, q->name, t);
    *rows = 2 * q->n, *first = strcmp(proj, "up_proj") == 0 ? q->n : 0;
    return find_tensor(s, fused, t);
}

/* Converters that multiply the experts' scales into the weights leave these scales out. */
static bool folded_scale(ek_gguf_source *s, const ek_weight_query *q, ek_weight_data *out)
{
    char full[160];
    if (!ek_ends_with(q->name, "router.per_expert_scale") || ek_gguf_weight_find(s->g, q->name, full, sizeof full))
        return false;
    if (!s->ones) {
        s->ones = ek_alloc(sizeof *s->ones * (size_t)q->k);
        for (int i = 0; i < q->k; i++) s->ones[i] = 1;
    }
    *out = (ek_weight_data){
        .type = ek_weight_type_float(EK_F32), .n = 1, .k = q->k, .plane = {(const uint8_t *)s->ones}};
    return true;
}

/* What NVFP4 weights are multiplied with beside their blocks' scales: blk.0.ffn_up.scale, one number or one per expert.
 * Those of
 * ffn_down_exps and ffn_gate_inp are router.per_expert_scale and router.scale, which the layer multiplies with. */
static ek_err read_gain(ek_gguf_source *s, const ek_gguf_tensor *w, const ek_weight_query *q, float *gain)
{
    char full[160];
    const int experts = q->shape == EK_WEIGHT_EXPERT ? q->n_experts : 1;
    snprintf(full, sizeof full, "%.*s.scale", (int)(strlen(w->name) - strlen(".weight")), w->name);
    const ek_gguf_tensor *t = ek_ends_with(w->name, ".weight") ? ek_gguf_tensor_find(s->g, full) : NULL;
    if (!t || strstr(full, "ffn_down_exps") || strstr(full, "ffn_gate_inp")) return EK_OK;
    s->used[t - ek_gguf_tensor_at(s->g, 0)] = true;
    int64_t n = t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3];
    if (t->type != 0 || (n != 1 && n != experts))
        return ek_fail(EK_EFORMAT, "%s: tensor %s has type number %u and %lld numbers, f32 and %d are needed", t->file,
                       t->name, t->type, (long long)n, experts);
    memcpy(gain, t->data + (n > 1 ? sizeof *gain * (size_t)q->expert : 0), sizeof *gain);
    if (*gain > 0x1p-100f && *gain < 0x1p100f) return EK_OK;
    return ek_fail(EK_EFORMAT, "%s: tensor %s has %g, which is no scale of weights", t->file, t->name, (double)*gain);
}

static ek_err read_weight(ek_source *source, const ek_weight_query *q, ek_weight_data *out)
{
    ek_gguf_source *s = (ek_gguf_source *)source;
    const ek_weight_type *type = NULL;
    const ek_gguf_tensor *t = NULL;
    int rows = q->n, first = 0, outer = 1;
    EK_TRY(open_file(s));
    if (folded_scale(s, q, out)) return EK_OK;
    if (q->shape == EK_WEIGHT_EXPERT) EK_TRY(find_expert(s, q, &t, &rows, &first));
    else EK_TRY(find_tensor(s, q->name, &t));
    if (q->shape == EK_WEIGHT_EXPERT) outer = q->n_experts;
    EK_TRY(check_shape(t, outer, q->shape == EK_WEIGHT_VECTOR ? 1 : rows, q->k));
    EK_TRY(type_of(t, &type));
    if (q->shape == EK_WEIGHT_VECTOR && !type->load)
        return ek_fail(EK_EFORMAT, "%s: tensor %s has type %s, a vector must be f32, f16 or bf16", t->file, t->name,
                       type->name);
    *out = (ek_weight_data){.type = type,
                            .n = q->n,
                            .k = q->k,
                            .row = q->shape == EK_WEIGHT_EXPERT ? (int64_t)q->expert * rows + first : 0,
                            .plane = {t->data}};
    return type->scale == EK_SCALE_E4M3 ? read_gain(s, t, q, &out->gain) : EK_OK;
}

static ek_err has_head(ek_source *source, bool *out)
{
    ek_gguf_source *s = (ek_gguf_source *)source;
    char full[160];
    EK_TRY(open_file(s));
    *out = ek_gguf_weight_find(s->g, "lm_head", full, sizeof full) != NULL;
    return EK_OK;
}

/* ------------------------------------------------------------------ a drafter's order of tokens by centroid */

enum { I32 = 26, I64 = 27 }; /* GGUF's numbers of these types */

static int64_t load_id(const ek_gguf_tensor *t, int i)
{
    int32_t narrow;
    int64_t wide;
    if (t->type == I64) {
        memcpy(&wide, t->data + sizeof wide * (size_t)i, sizeof wide);
        return wide;
    }
    memcpy(&narrow, t->data + sizeof narrow * (size_t)i, sizeof narrow);
    return narrow;
}

/* Some files have each token's centroid instead of the tokens ordered by centroid. They are recognised because no value
 * reaches the number of centroids, and each centroid has equally many tokens. Rewrites *out in place. */
static void order_by_centroid(int32_t *out, int n, int n_centroids)
{
    int each = n_centroids ? n / n_centroids : 0;
    if (each <= 1) return;
    int32_t *next = ek_alloc(sizeof *next * (size_t)n_centroids), *order = ek_alloc(sizeof *order * (size_t)n);
    bool centroids = true;
    for (int i = 0; i < n && centroids; i++) {
        centroids = out[i] >= 0 && out[i] < n_centroids && next[out[i]] < each;
        if (centroids) order[out[i] * each + next[out[i]]++] = i;
    }
    if (centroids) memcpy(out, order, sizeof *order * (size_t)n);
    free(next);
    free(order);
}

static ek_err read_ids(ek_source *source, const char *name, int n, int32_t *out)
{
    ek_gguf_source *s = (ek_gguf_source *)source;
    const ek_gguf_tensor *t;
    EK_TRY(open_file(s));
    EK_TRY(find_tensor(s, name, &t));
    EK_TRY(check_shape(t, 1, 1, n));
    if (t->type != I32 && t->type != I64) /* other types have fewer bytes */
        return ek_fail(EK_EFORMAT, "%s: tensor %s has type number %u, it must be i32 or i64", t->file, t->name,
                       t->type);
    for (int i = 0; i < n; i++) {
        const int64_t id = load_id(t, i);
        if (id < INT32_MIN || id > INT32_MAX)
            return ek_fail(EK_EFORMAT, "%s: tensor %s has %lld at %d", t->file, t->name, (long long)id, i);
        out[i] = (int32_t)id;
    }
    order_by_centroid(out, n, s->n_centroids);
    return EK_OK;
}

/* ------------------------------------------------------------------ unused tensors */

/* Tensors that may be ignored: towers that other programs put into the same file, frequencies that the configuration
 * has, centroids of a drafter that does not use them, and keys and values of layers that share. */
static bool ignorable(const char *name, const ek_config *c)
{
    static const char *const start[] = {"v.", "a.", "mm.", "rope_freqs."};
    static const char *const unused[] = {"attn_k.weight", "attn_v.weight", "attn_k_norm.weight", "rope_freqs.weight"};
    int layer, at = 0;
    for (size_t i = 0; i < sizeof start / sizeof *start; i++)
        if (strncmp(name, start[i], strlen(start[i])) == 0) return true;
    if (ek_ends_with(name, ".input_scale")) return true; /* scale of activations, for another arithmetic */
    if (c->backbone_hidden_size && (strstr(name, "centroids.weight") || strstr(name, "token_ordering.weight")))
        return true;
    if (sscanf(name, "blk.%d.%n", &layer, &at) != 1 || !at || layer < 0 || layer >= c->n_layers) return false;
    for (size_t i = 0; i < sizeof unused / sizeof *unused; i++)
        if (strcmp(name + at, unused[i]) == 0) return layer >= c->first_shared || i == 3;
    return false;
}

static ek_err check_unused(ek_source *source, const ek_config *c)
{
    const ek_gguf_source *s = (const ek_gguf_source *)source;
    for (int i = 0; i < ek_gguf_tensor_count(s->g); i++) {
        const ek_gguf_tensor *t = ek_gguf_tensor_at(s->g, i);
        if (s->used[i] || ignorable(t->name, c)) continue;
        return ek_fail(EK_EFORMAT, "%s: tensor %s is no part of the model that the metadata describes", t->file,
                       t->name);
    }
    return EK_OK;
}

/* ------------------------------------------------------------------ tokenizer and chat */

static ek_err find_tokenizer(ek_source *source, ek_source_tokenizer *out)
{
    ek_gguf_source *s = (ek_gguf_source *)source;
    EK_TRY(open_file(s));
    if (!s->tokenizer.len) {
        ek_err err = ek_gguf_tokenizer(s->g, &s->tokenizer);
        if (err) return ek_fail_in(err, "%s", s->file);
    }
    *out = (ek_source_tokenizer){.name = s->file, .json = s->tokenizer.data, .n = s->tokenizer.len};
    return EK_OK;
}

static ek_err find_chat(ek_source *source, ek_source_chat *out)
{
    ek_gguf_source *s = (ek_gguf_source *)source;
    EK_TRY(open_file(s));
    const ek_gguf_value *v = ek_gguf_find(s->g, "tokenizer.chat_template"),
                        *own = ek_gguf_find(s->g, "evenkeel.chat_variant"), /* of `evenkeel convert` */
                            *p = ek_gguf_find(s->g, "gemma4.embedding_length_per_layer_input");
    int64_t size = 0;
    *out = (ek_source_chat){.name = s->file};
    if (v) ek_gguf_text(v, &out->text, &out->n);
    out->small = p && !p->is_array && ek_gguf_int(p, 0, &size) && size > 0;
    if (ek_gguf_text_is(own, "small")) out->small = true;
    if (ek_gguf_text_is(own, "large")) out->small = false;
    return EK_OK;
}

static void rest_gguf(ek_source *source)
{
    ek_gguf_source *s = (ek_gguf_source *)source;
    if (s->g) ek_gguf_drop_pages(s->g);
}

static void close_gguf(ek_source *source)
{
    ek_gguf_source *s = (ek_gguf_source *)source;
    ek_gguf_close(s->g);
    ek_buf_fini(&s->tokenizer);
    free(s->ones);
    free(s->used);
    free(s->source.path);
    free(s);
}

ek_source *ek_source_gguf(const char *path)
{
    static const ek_source_ops ops = {.kind = "GGUF",
                                      .config = read_config,
                                      .weight = read_weight,
                                      .has_head = has_head,
                                      .ids = read_ids,
                                      .finish = check_unused,
                                      .tokenizer = find_tokenizer,
                                      .chat = find_chat,
                                      .rest = rest_gguf,
                                      .close = close_gguf};
    ek_gguf_source *s = ek_alloc(sizeof *s);
    s->source = (ek_source){.ops = &ops, .path = ek_strdup(path)};
    return &s->source;
}

ek_source *ek_source_gguf_of(ek_gguf *g)
{
    ek_source *source = ek_source_gguf(ek_gguf_file_name(g, 0));
    take_file((ek_gguf_source *)source, g);
    return source;
}
