/* The configuration of a Gemma 4 model from the metadata of a GGUF file. Keys are those of llama.cpp's converter
 * (conversion/gemma.py) and, for drafters, also of two other programs. A value may be one number or one per layer.
 * Values missing from the metadata are read from the shapes of tensors. */
#include <stdio.h>
#include <string.h>

#include "model/source/source_gguf.h"
#include "ops/convert.h"

typedef struct meta {
    const ek_gguf_source *s;
    const char *arch;
    bool drafter;
    int n_layers;
} meta;

/* The architecture of the file: Gemma 4 or its drafter (*drafter). NULL after EUNSUPPORTED, which names the
 * architecture, for others. */
static const char *gguf_architecture(const ek_gguf_source *s, bool *drafter)
{
    static const struct {
        const char *name;
        bool drafter;
    } known[] = {{"gemma4", false}, {"gemma4-assistant", true}, {"gemma4_mtp", true}, {"gemma4_assistant", true}};
    const ek_gguf_value *v = ek_gguf_find(s->g, "general.architecture");
    const char *has = "";
    size_t n = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!ek_gguf_text_is(v, known[i].name)) continue;
        *drafter = known[i].drafter;
        return known[i].name;
    }
    if (v) ek_gguf_text(v, &has, &n);
    if (ek_gguf_text_is(v, "clip"))
        ek_fail(EK_EUNSUPPORTED, "%s: holds the towers of a model that sees or hears (an mmproj file), not the model",
                s->file);
    else
        ek_fail(EK_EUNSUPPORTED,
                "%s: general.architecture is %.*s; gemma4 can be run, and its drafters: gemma4-assistant, gemma4_mtp, "
                "gemma4_assistant",
                s->file, n ? (n < 60 ? (int)n : 60) : 7, n ? has : "missing");
    return NULL;
}

/* ------------------------------------------------------------------ one value */

static const ek_gguf_value *find(const meta *m, const char *name)
{
    char key[128];
    snprintf(key, sizeof key, "%s.%s", m->arch, name);
    return ek_gguf_find(m->s->g, key);
}

static ek_err missing(const meta *m, const char *name)
{
    return ek_fail(EK_EFORMAT, "%s: metadata %s.%s is missing", m->s->file, m->arch, name);
}

/* The value for a layer: an array's element, or the one value for all. layer < 0: the value for the model; all elements
 * of an array must be equal. */
static ek_err number(const meta *m, const char *name, const ek_gguf_value *v, int layer, double min, double max,
                     bool whole, double *out)
{
    uint64_t i = v->is_array && layer > 0 ? (uint64_t)layer : 0;
    int64_t n = 0;
    double d = 0;
    if (v->is_array && v->count != (uint64_t)m->n_layers)
        return ek_fail(EK_EFORMAT, "%s: metadata %s.%s has %llu values for %d layers", m->s->file, m->arch, name,
                       (unsigned long long)v->count, m->n_layers);
    bool ok = whole ? ek_gguf_int(v, i, &n) : ek_gguf_float(v, i, &d);
    if (whole) d = (double)n;
    if (!ok || !(d >= min && d <= max))
        return ek_fail(EK_EFORMAT, "%s: metadata %s.%s must be a%s number from %.10g to %.10g%s", m->s->file, m->arch,
                       name, whole ? " whole" : "", min, max, v->is_array ? ", in every layer" : "");
    for (uint64_t other = 1; layer < 0 && other < v->count; other++) {
        double e = 0;
        if (!ek_gguf_float(v, other, &e) || e != d)
            return ek_fail(EK_EUNSUPPORTED, "%s: metadata %s.%s differs between layers 0 and %llu", m->s->file, m->arch,
                           name, (unsigned long long)other);
    }
    *out = d;
    return EK_OK;
}

static ek_err may_int(const meta *m, const char *name, int layer, int absent, int min, int max, int *out)
{
    const ek_gguf_value *v = find(m, name);
    double d = absent;
    if (v) EK_TRY(number(m, name, v, layer, min, max, true, &d));
    *out = (int)d;
    return EK_OK;
}

static ek_err need_int(const meta *m, const char *name, int layer, int min, int max, int *out)
{
    if (!find(m, name)) return missing(m, name);
    return may_int(m, name, layer, 0, min, max, out);
}

static ek_err plain_int(const meta *m, const char *name, int min, int max, int absent, int *out)
{
    return absent == EK_GGUF_NEEDED ? need_int(m, name, -1, min, max, out)
                                    : may_int(m, name, -1, absent, min, max, out);
}

static ek_err may_float(const meta *m, const char *name, double absent, double min, double max, double *out)
{
    const ek_gguf_value *v = find(m, name);
    *out = absent;
    return v ? number(m, name, v, -1, min, max, false, out) : EK_OK;
}

static ek_err need_float(const meta *m, const char *name, double min, double max, double *out)
{
    if (!find(m, name)) return missing(m, name);
    return may_float(m, name, 0, min, max, out);
}

/* Dimension d of a weight's tensor, innermost first; 0: there is no tensor. */
static int64_t dim_of(const meta *m, const char *weight, int d)
{
    char full[160];
    const ek_gguf_tensor *t = ek_gguf_weight_find(m->s->g, weight, full, sizeof full);
    return t ? t->dim[d] : 0;
}

static int64_t layer_dim(const meta *m, int layer, const char *weight, int d)
{
    char name[96];
    snprintf(name, sizeof name, "layers.%d.%s", layer, weight);
    return dim_of(m, name, d);
}

/* ------------------------------------------------------------------ the model */

#define READ(key, field, min, max, absent) EK_TRY(plain_int(m, key, min, max, absent, &c->field));

static ek_err read_sizes(const meta *m, ek_config *c)
{
    double eps, cap;
    int64_t vocab = dim_of(m, "embed_tokens", 1), rows = dim_of(m, "embed_tokens_per_layer", 1);
    if (vocab < 1 || vocab > EK_MAX_VOCAB)
        return ek_fail(EK_EFORMAT, "%s: tensor token_embd.weight %s, a vocabulary has 1 to %d tokens", m->s->file,
                       vocab ? "has another size" : "is missing", EK_MAX_VOCAB);
    c->vocab_size = (int)vocab;
    EK_GGUF_SIZES(READ)
    EK_TRY(need_float(m, EK_GGUF_EPSILON, 1e-12, 1, &eps));
    EK_TRY(may_float(m, EK_GGUF_SOFTCAP, m->drafter ? 0 : 30, 0, 1e6, &cap));
    c->rms_norm_eps = (float)eps;
    c->final_logit_softcapping = (float)cap;
    c->vocab_size_per_layer = c->vocab_size;
    if (!c->per_layer_size) return EK_OK;
    if (rows < vocab || rows > EK_MAX_VOCAB)
        return ek_fail(EK_EFORMAT, "%s: tensor per_layer_token_embd.weight has %lld rows for %lld tokens", m->s->file,
                       (long long)rows, (long long)vocab);
    c->vocab_size_per_layer = (int)rows;
    return EK_OK;
}

static ek_err read_experts(const meta *m, ek_config *c)
{
    EK_TRY(may_int(m, EK_GGUF_EXPERT_COUNT, -1, 0, 0, 4096, &c->n_experts));
    if (!c->n_experts) return EK_OK;
    EK_GGUF_EXPERTS(READ)
    return EK_OK;
}

#undef READ

/* Reads a bool per layer, true for a sliding one; or the period, whose last layer is full. */
static ek_err read_kinds(const meta *m, ek_config *c)
{
    static const char name[] = EK_GGUF_SLIDING;
    const ek_gguf_value *v = find(m, name);
    int one;
    if (!v) return missing(m, name);
    for (int i = 0; i < c->n_layers; i++) {
        EK_TRY(may_int(m, name, i, 0, v->is_array ? 0 : 1, v->is_array ? 1 : EK_MAX_LAYERS, &one));
        bool sliding = v->is_array ? one : (i + 1) % one != 0;
        c->layer[i].kind = sliding ? EK_SLIDING : EK_FULL;
    }
    return EK_OK;
}

/* key_length is that of full layers, key_length_swa that of sliding ones; some drafters have the norm's size only. */
static ek_err read_head_dim(const meta *m, ek_config *c, int i)
{
    const ek_layer_kind kind = c->layer[i].kind;
    int64_t of_norm = layer_dim(m, i, "self_attn.q_norm.weight", 0);
    const char *key = EK_GGUF_K(kind), *value = EK_GGUF_V(kind);
    int k, v, absent = of_norm >= 2 && of_norm <= 4096 ? (int)of_norm : 0;
    if (!find(m, key) && !absent) return missing(m, key);
    EK_TRY(may_int(m, key, i, absent, 2, 4096, &k));
    EK_TRY(may_int(m, value, i, k, 2, 4096, &v));
    if (k != v)
        return ek_fail(EK_EUNSUPPORTED, "%s: keys of layer %d have %d values, its values %d; both must be the same",
                       m->s->file, i, k, v);
    c->layer[i].head_dim = k;
    return EK_OK;
}

static ek_err read_layers(const meta *m, ek_config *c)
{
    if (m->drafter) c->n_kv_shared_layers = c->n_layers;
    else if (c->n_kv_shared_layers == c->n_layers)
        return ek_fail(EK_EFORMAT, "%s: all %d layers share keys and values, none has its own", m->s->file,
                       c->n_layers);
    c->first_shared = c->n_layers - c->n_kv_shared_layers;
    EK_TRY(read_kinds(m, c));
    for (int i = 0; i < c->n_layers; i++) {
        ek_layer_config *l = &c->layer[i];
        EK_TRY(read_head_dim(m, c, i));
        EK_TRY(need_int(m, EK_GGUF_KV_HEADS, i, 1, 4096, &l->n_kv_heads));
        EK_TRY(need_int(m, EK_GGUF_FEED_FORWARD, i, 1, EK_MAX_WIDTH, &l->intermediate_size));
        /* without attn_v.weight, values are the outputs of attn_k.weight */
        l->k_eq_v = l->kind == EK_FULL && i < c->first_shared && !layer_dim(m, i, "self_attn.v_proj", 0);
    }
    return EK_OK;
}

/* ------------------------------------------------------------------ rotation */

/* rope_freqs.weight divides the frequencies of full layers: first equal numbers, then numbers so large that nothing
 * rotates. */
static ek_err read_freqs(const meta *m, ek_config *c, int dim)
{
    const ek_gguf_tensor *t = ek_gguf_tensor_find(m->s->g, "rope_freqs.weight");
    enum { NEVER = 1000000000 };
    int n = 0;
    if (!t && m->drafter) { /* as in its model, in every release */
        c->rope_partial[EK_FULL] = 0.25;
        return EK_OK;
    }
    if (!t) return ek_fail(EK_EFORMAT, "%s: tensor rope_freqs.weight is missing", m->s->file);
    if (t->type != 0 || t->n_dims != 1 || t->dim[0] != dim / 2)
        return ek_fail(EK_EFORMAT, "%s: tensor rope_freqs.weight must have %d values of type f32", t->file, dim / 2);
    float first = ek_load_float(t->data, EK_F32), f = first;
    for (; n < dim / 2; n++) {
        f = ek_load_float(t->data + 4 * n, EK_F32);
        if (f != first || f >= NEVER) break;
    }
    for (int i = n; i < dim / 2; i++)
        if (!(ek_load_float(t->data + 4 * i, EK_F32) >= NEVER))
            return ek_fail(EK_EUNSUPPORTED, "%s: tensor rope_freqs.weight has %g at %d, behind %d times %g", t->file,
                           (double)ek_load_float(t->data + 4 * i, EK_F32), i, n, (double)first);
    if (n && !(first >= 1e-6f && first <= 1e6f))
        return ek_fail(EK_EFORMAT, "%s: tensor rope_freqs.weight begins with %g", t->file, (double)first);
    if (n) c->rope_factor[EK_FULL] = (double)first;
    c->rope_partial[EK_FULL] = (2 * n + 0.5) / dim; /* gives n pairs after any rounding: ek_rope_frequencies */
    if (n == dim / 2) c->rope_partial[EK_FULL] = 1;
    return EK_OK;
}

static ek_err read_rope(const meta *m, ek_config *c)
{
    double factor;
    EK_TRY(may_float(m, "rope.scaling.factor", 1, 0, 1e6, &factor));
    if (factor != 1 && !ek_gguf_text_is(find(m, "rope.scaling.type"), "none"))
        return ek_fail(EK_EUNSUPPORTED, "%s: rope.scaling.factor is %g, rotation without scaling can be run",
                       m->s->file, factor);
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        int used = 0, rotated;
        while (used < c->n_layers && c->layer[used].kind != (ek_layer_kind)k) used++;
        if (used == c->n_layers) continue;
        int dim = c->layer[used].head_dim;
        c->rope_partial[k] = c->rope_factor[k] = 1;
        EK_TRY(need_float(m, EK_GGUF_THETA(k), 1e-3, 1e12, &c->rope_theta[k]));
        EK_TRY(may_int(m, EK_GGUF_ROTATED(k), -1, dim, 0, 4096, &rotated));
        if (rotated != dim)
            return ek_fail(EK_EUNSUPPORTED, "%s: %s is %d, heads have %d values; both must be the same", m->s->file,
                           EK_GGUF_ROTATED(k), rotated, dim);
        if (k == EK_FULL) EK_TRY(read_freqs(m, c, dim));
    }
    return EK_OK;
}

/* ------------------------------------------------------------------ tokens and drafters */

static void add_id(int32_t *ids, int *n, int64_t id, int vocab)
{
    for (int i = 0; i < *n; i++)
        if (ids[i] == id) return;
    if (id >= 0 && id < vocab && *n < EK_MAX_STOP) ids[(*n)++] = (int32_t)id;
}

/* The id under a key, or `absent`. An id outside the vocabulary counts as absent, because converters write -1 or 2^32 -
 * 1 for "none". */
static int64_t token_id(const meta *m, const char *key, int64_t absent)
{
    const ek_gguf_value *v = ek_gguf_find(m->s->g, key);
    int64_t id = absent;
    return v && !v->is_array && ek_gguf_int(v, 0, &id) ? id : absent;
}

/* The marks that end a turn stop it, under whatever key a file names them, or without a key. */
static void find_marks(const meta *m, ek_config *c)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    static const char *const marks[] = {"<eos>", "<turn|>", "<|tool_response>"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        add_id(c->stop, &c->n_stop, token_id(m, keys[i], -1), c->vocab_size);
    const ek_gguf_value *v = ek_gguf_find(m->s->g, "tokenizer.ggml.tokens");
    const char *s;
    size_t n;
    int64_t id = 0;
    if (!v) return;
    for (const uint8_t *at = v->data; ek_gguf_next_text(v, &at, &s, &n); id++) {
        if (!n || s[0] != '<' || id >= c->vocab_size) continue;
        ek_gguf_note_media(&c->media, s, n, (int32_t)id);
        for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
            if (n == strlen(marks[i]) && memcmp(s, marks[i], n) == 0) add_id(c->stop, &c->n_stop, id, c->vocab_size);
    }
}

static double sampling(const meta *m, const char *key, double absent, double max)
{
    const ek_gguf_value *v = ek_gguf_find(m->s->g, key);
    double d = absent;
    return v && !v->is_array && ek_gguf_float(v, 0, &d) && d >= 0 && d <= max ? d : absent;
}

static void read_tokens(const meta *m, ek_config *c)
{
    const ek_gguf_value *v = ek_gguf_find(m->s->g, "tokenizer.ggml.suppress_tokens");
    int64_t id, bos = token_id(m, "tokenizer.ggml.bos_token_id", 2),
                pad = token_id(m, "tokenizer.ggml.padding_token_id", 0);
    find_marks(m, c);
    c->mutual = !c->per_layer_size; /* no key: only E2B and E4B are causal and have these */
    for (uint64_t i = 0; v && ek_gguf_int(v, i, &id) && c->n_suppress < EK_MAX_STOP; i++)
        add_id(c->suppress, &c->n_suppress, id, c->vocab_size);
    c->bos = bos >= 0 && bos < c->vocab_size ? (int32_t)bos : 2;
    c->pad = pad >= 0 && pad < c->vocab_size ? (int32_t)pad : 0;
    /* the defaults are those of every release's generation_config.json, which converters do not always copy */
    c->temperature = (float)sampling(m, "general.sampling.temp", 1, 1000);
    c->top_p = (float)sampling(m, "general.sampling.top_p", 0.95, 1);
    c->top_k = (int)sampling(m, "general.sampling.top_k", 64, EK_MAX_VOCAB);
}

static ek_err first_of(const meta *m, const char *const *names, int n, int absent, int max, int *out)
{
    for (int i = 0; i < n; i++)
        if (find(m, names[i])) return may_int(m, names[i], -1, absent, 0, max, out);
    *out = absent;
    return EK_OK;
}

/* Reads ordered embeddings only if the file has their tensors and both numbers; the head of all tokens has the same
 * weights. */
static ek_err read_drafter(const meta *m, ek_config *c)
{
    static const char *const width[] = {"embedding_length_out", "backbone_embedding_length", "n_embd_backbone"};
    static const char *const count[] = {"centroid_count", "n_centroids"};
    static const char *const top[] = {"centroid_top_k"};
    int64_t input = dim_of(m, "pre_projection", 0);
    int centroids, best, ordered;
    if (c->per_layer_size || c->n_experts)
        return ek_fail(EK_EUNSUPPORTED, "%s: a drafter has no %s", m->s->file,
                       c->n_experts ? "experts" : "per-layer inputs");
    EK_TRY(first_of(m, width, 3, input > 0 && input <= 2 * EK_MAX_WIDTH ? (int)(input / 2) : 0, EK_MAX_WIDTH,
                    &c->backbone_hidden_size));
    if (!c->backbone_hidden_size) return missing(m, width[0]);
    EK_TRY(first_of(m, count, 2, 0, c->vocab_size, &centroids));
    EK_TRY(first_of(m, top, 1, 0, c->vocab_size, &best));
    EK_TRY(may_int(m, "use_ordered_embeddings", -1, 1, 0, 1, &ordered));
    if (!ordered || !centroids || !best || !dim_of(m, "masked_embedding.centroids", 0) ||
        !dim_of(m, "masked_embedding.token_ordering", 0))
        return EK_OK;
    if (best > centroids || c->vocab_size % centroids)
        return ek_fail(EK_EFORMAT, "%s: %d tokens cannot be split over %d centroids, of which %d are searched",
                       m->s->file, c->vocab_size, centroids, best);
    c->n_centroids = centroids, c->top_k_centroids = best;
    return EK_OK;
}

ek_err ek_gguf_config(const ek_gguf_source *s, ek_config *c)
{
    meta m = {.s = s, .n_layers = 1};
    *c = (ek_config){0};
    m.arch = gguf_architecture(s, &m.drafter);
    if (!m.arch) return EK_EUNSUPPORTED;
    EK_TRY(need_int(&m, EK_GGUF_LAYERS, -1, 1, EK_MAX_LAYERS, &c->n_layers));
    m.n_layers = c->n_layers;
    snprintf(c->model_type, sizeof c->model_type, m.drafter ? "gemma4_assistant" : "gemma4_text");
    EK_TRY(read_sizes(&m, c));
    EK_TRY(read_experts(&m, c));
    if (m.drafter) EK_TRY(read_drafter(&m, c));
    EK_TRY(read_layers(&m, c));
    EK_TRY(read_rope(&m, c));
    read_tokens(&m, c);
    c->exact_scale = ek_gguf_text_is(ek_gguf_find(s->g, "evenkeel.dtype"), "float32"); /* convert writes it */
    ek_err err = ek_config_finish(c);
    return err ? ek_fail_in(err, "%s", s->file) : EK_OK;
}
