/* Opening a model: configuration, weights, kernels, the layout of its keys and values; packing deferred weights; what
 * it needs. */
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "model/pass.h"

/* Appends a block to pages of a kind; returns its offset. */
static size_t add_block(ek_model *m, ek_layer_kind kind, const ek_layer_config *l, ek_kv_format k, ek_kv_format v)
{
    size_t at = m->layout.page_bytes[kind];
    m->layout.page_bytes[kind] += (ek_kv_block_bytes(k, v, l->n_kv_heads, l->head_dim) + 63) / 64 * 64;
    return at;
}

static void own_kv(ek_model *m, int i)
{
    const ek_layer_config *l = &m->config.layer[i];
    m->last[l->kind] = i;
    m->kv_offset[i] = add_block(m, l->kind, l, m->k_format, m->v_format);
    if (m->kv_start > 0)
        m->kv_start_offset[i] = add_block(m, ek_kv_start_kind(l->kind), l, ek_kv_start_format(m->k_format),
                                          ek_kv_start_format(m->v_format));
}

/* A drafter's layer reads the keys and values of the target's last owning layer of its kind. */
static ek_err borrow_kv(ek_model *m, int i)
{
    const ek_layer_config *l = &m->config.layer[i];
    int donor = m->target->last[l->kind];
    if (donor < 0)
        return ek_fail(EK_EFORMAT, "the drafter's layer %d is %s, the model has no such layers", i,
                       l->kind == EK_FULL ? "full_attention" : "sliding_attention");
    const ek_layer_config *d = &m->target->config.layer[donor];
    if (l->head_dim != d->head_dim || l->n_kv_heads != d->n_kv_heads)
        return ek_fail(EK_EFORMAT, "the drafter's layer %d reads %d key-value heads of %d, the model has %d of %d", i,
                       l->n_kv_heads, l->head_dim, d->n_kv_heads, d->head_dim);
    m->kv_offset[i] = m->target->kv_offset[donor];
    m->kv_start_offset[i] = m->target->kv_start_offset[donor];
    return EK_OK;
}

ek_err ek_model_check_start(int kv_start, ek_kv_format k, ek_kv_format v)
{
    if (kv_start < 0 || kv_start % EK_SEGMENT)
        return ek_fail(EK_EINVAL, "the first %d positions cannot be kept in bf16: it must be a multiple of %d",
                       kv_start, EK_SEGMENT);
    if (kv_start > 0 && ek_kv_start_format(k) == k && ek_kv_start_format(v) == v)
        return ek_fail(EK_EINVAL, "the first %d positions in bf16 gain nothing: keys are in %s, values in %s", kv_start,
                       ek_kv_format_name(k), ek_kv_format_name(v));
    return EK_OK;
}

static ek_err plan_attention(ek_model *m)
{
    const ek_config *c = &m->config;
    EK_TRY(ek_model_check_start(m->kv_start, m->k_format, m->v_format));
    m->last[EK_SLIDING] = m->last[EK_FULL] = -1;
    for (int i = 0; i < c->n_layers; i++) {
        const ek_layer_config *l = &c->layer[i];
        if (m->target) {
            EK_TRY(borrow_kv(m, i));
        } else if (!l->owns_kv) {
            m->kv_offset[i] = m->kv_offset[l->donor];
            m->kv_start_offset[i] = m->kv_start_offset[l->donor];
            continue;
        } else {
            own_kv(m, i);
        }
        if (m->attn[l->kind]) continue; /* layers of one kind are alike: ek_config_finish */
        ek_attn_shape shape = {.kind = l->kind,
                               .k_format = m->k_format,
                               .v_format = m->v_format,
                               .n_heads = c->n_heads,
                               .n_kv_heads = l->n_kv_heads,
                               .head_dim = l->head_dim,
                               .n_start = m->kv_start};
        EK_TRY(ek_attn_plan(&m->attn[l->kind], m->cpu, &shape));
        m->rope[l->kind] = ek_alloc(sizeof(float) * (size_t)l->head_dim);
        m->n_rotated[l->kind] = ek_rope_frequencies(m->rope[l->kind], l->head_dim, c->rope_theta[l->kind],
                                                    c->rope_partial[l->kind], c->rope_factor[l->kind]);
    }
    m->layout.sliding_window = c->sliding_window;
    m->layout.n_start = m->kv_start / EK_PAGE_TOKENS;
    return EK_OK;
}

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

/* Bytes per token and multiply-adds per row, from the planned matrices. */
static void count_work(ek_model *m)
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

/* "ek3 w=q4.64+q8.64+bf16 a=auto kv=16:16", with " start=256" at the end if the first positions have another format.
 * Weight formats stand in order of appearance. a= is there only if quantised weights meet quantised activations, so
 * that equal functions have equal names. */
static void name_numerics(ek_model *m, const ek_items *list)
{
    char all[96] = "", one[24], acts[16] = "", start[20] = "";
    for (int i = 0; i < list->n; i++) {
        const ek_item *it = &list->item[i];
        if (!it->matrix) continue;
        if (it->matrix->limbs) snprintf(acts, sizeof acts, " a=%s", ek_activations_name(m->activations));
        snprintf(one, sizeof one, "%s", it->data.type->name);
        size_t used = strlen(all), n = strlen(one);
        const char *found = all;
        while ((found = strstr(found, one)) &&
               ((found > all && found[-1] != '+') || (found[n] != '+' && found[n] != '\0')))
            found++; /* "f16" is also the end of "bf16" */
        if (found) continue;
        if (used + n + 2 <= sizeof all) snprintf(all + used, sizeof all - used, "%s%s", used ? "+" : "", one);
    }
    if (m->kv_start > 0) snprintf(start, sizeof start, " start=%d", m->kv_start);
    snprintf(m->numerics_id, sizeof m->numerics_id, "ek%d w=%s%s%s kv=%s:%s%s", EK_ARITHMETIC_VERSION, all,
             m->exact ? " exact" : "", acts, ek_kv_format_name(m->k_format), ek_kv_format_name(m->v_format), start);
}

/* Plans everything that does not depend on the weights' values. */
static ek_err plan(ek_model *m, ek_items *list, const ek_pack_opts *o)
{
    if (o->quantise) ek_items_quantise(list);
    EK_TRY(plan_attention(m));
    EK_TRY(ek_items_plan(list, &m->w, o));
    ek_linear_init(&m->linear, o->cpu);
    ek_row_init(&m->rows, o->cpu);
    count_work(m);
    name_numerics(m, list);
    return EK_OK;
}

static ek_pack_opts pack_opts(const ek_model_opts *o, uint64_t seed)
{
    return (ek_pack_opts){.cpu = o->cpu,
                          .exact = o->exact,
                          .quantise = o->quantise && !o->exact,
                          .activations = o->activations,
                          .seed = seed,
                          .limit = o->memory_limit,
                          .pool = o->pool};
}

static ek_model *new_model(const ek_model_opts *o)
{
    ek_model *m = ek_alloc(sizeof *m);
    m->cpu = o->cpu, m->exact = o->exact, m->activations = o->activations, m->pool = o->pool;
    m->k_format = o->k_format, m->v_format = o->v_format, m->kv_start = o->kv_start;
    return m;
}

/* Refuses a model as a drafter, and a drafter as a model. */
static ek_err check_target(const ek_model *m, const char *path)
{
    const ek_config *c = &m->config, *t = m->target ? &m->target->config : NULL;
    if (!t) return ek_source_check_model(path, c);
    if (!c->backbone_hidden_size)
        return ek_fail(EK_EUNSUPPORTED, "%s is no drafter: its model_type is %s", path, c->model_type);
    if (c->backbone_hidden_size != t->hidden_size || c->vocab_size != t->vocab_size)
        return ek_fail(EK_EFORMAT,
                       "%s drafts for a model with hidden_size %d and %d tokens; this one has hidden_size %d and %d "
                       "tokens",
                       path, c->backbone_hidden_size, c->vocab_size, t->hidden_size, t->vocab_size);
    return EK_OK;
}

/* Checks that every token occurs once. */
static ek_err check_ordering(const ek_model *m, const char *path)
{
    int n = m->config.vocab_size;
    bool *seen = ek_alloc((size_t)n);
    ek_err err = EK_OK;
    for (int i = 0; i < n && !err; i++) {
        int32_t id = m->w.token_ordering[i];
        if (id < 0 || id >= n || seen[id])
            err = ek_fail(EK_EFORMAT, "%s: masked_embedding.token_ordering has %d at %d: %s", path, id, i,
                          id < 0 || id >= n ? "no token" : "a second time");
        else seen[id] = true;
    }
    free(seen);
    return err;
}

static ek_err read_ordering(ek_model *m, const char *path)
{
    int n = m->config.vocab_size;
    m->w.token_ordering = ek_alloc(sizeof *m->w.token_ordering * (size_t)n);
    EK_TRY(ek_source_ids(m->w.source, "masked_embedding.token_ordering", n, m->w.token_ordering));
    return check_ordering(m, path);
}

/* Configuration and weights of the container at path, bound and planned; the caller frees list also after an error. */
static ek_err bind(ek_model *m, ek_items *list, const char *path, const ek_pack_opts *o)
{
    EK_TRY(ek_source_open(&m->w.source, path));
    EK_TRY(ek_source_config(m->w.source, &m->config));
    EK_TRY(check_target(m, path));
    if (m->config.n_centroids) EK_TRY(read_ordering(m, path));
    EK_TRY(ek_items_bind(list, &m->w, &m->config, m->w.source));
    return plan(m, list, o);
}

static ek_err finish_open(ek_model **out, ek_model *m, ek_err err)
{
    if (err) ek_model_close(m);
    else *out = m;
    return err;
}

/* Checks the keys of layers [first, end), whose weights are packed. A key has the norm sqrt(head_dim) before its
 * weight, and at most max |weight| times that after it. A key outside f16's range would be clamped without notice. */
static ek_err check_keys(const ek_model *m, int first, int end)
{
    for (int i = first; i < end && m->k_format == EK_KV_F16; i++) {
        const ek_layer_config *l = &m->config.layer[i];
        float max = 0;
        for (int d = 0; d < l->head_dim && l->owns_kv; d++) max = fmaxf(max, fabsf(m->w.layer[i].k_norm[d]));
        float bound = max * sqrtf((float)l->head_dim);
        if (!(bound < 65504.0f))
            return ek_fail(EK_EUNSUPPORTED,
                           "layer %d: self_attn.k_norm.weight allows keys up to %.3g, f16 holds 65504; use "
                           "--kv bf16",
                           i, (double)bound);
    }
    return EK_OK;
}

/* Makes m a deferred model. m takes over the list; its files stay open. */
static void defer(ek_model *m, ek_items *list, const ek_pack_opts *o)
{
    m->deferred = ek_alloc(sizeof *m->deferred);
    *m->deferred = *list, *list = (ek_items){0};
    m->pack = *o;
    m->pack.packed_dir = m->packed_dir = o->packed_dir ? ek_strdup(o->packed_dir) : NULL;
}

static ek_err pack_all(ek_model *m, const ek_items *list, const ek_pack_opts *o)
{
    EK_TRY(ek_items_pack(list, &m->w, o));
    EK_TRY(check_keys(m, 0, m->config.n_layers));
    if (!m->w.mapped_bytes) { /* the files hold nothing that is still needed */
        ek_source_close(m->w.source);
        m->w.source = NULL;
    }
    return EK_OK;
}

static ek_err open_dir(ek_model **out, ek_model *m, const char *dir, const ek_model_opts *opts)
{
    ek_items list = {0};
    ek_pack_opts o = pack_opts(opts, 0);
    ek_err err = bind(m, &list, dir, &o);
    o.packed_dir = opts->packed_dir;
    if (!err) o.packed_of = m->w.source->path;
    if (!err && opts->deferred) defer(m, &list, &o);
    else if (!err) err = pack_all(m, &list, &o);
    if (!err && m->w.source) ek_source_drop_pages(m->w.source);
    ek_items_fini(&list);
    return finish_open(out, m, err);
}

ek_err ek_model_open(ek_model **out, const char *dir, const ek_model_opts *opts)
{
    return open_dir(out, new_model(opts), dir, opts);
}

static ek_err open_invented(ek_model **out, ek_model *m, const ek_config *config, int bits, uint64_t seed,
                            const ek_model_opts *opts)
{
    ek_items list;
    ek_pack_opts o = pack_opts(opts, seed);
    m->config = *config;
    ek_err err = check_target(m, "the configuration");
    if (err) return finish_open(out, m, err);
    ek_items_invent(&list, &m->w, config, bits);
    err = plan(m, &list, &o);
    if (!err && opts->deferred) defer(m, &list, &o);
    else if (!err) err = ek_items_pack(&list, &m->w, &o);
    ek_items_fini(&list);
    return finish_open(out, m, err);
}

ek_err ek_model_synthetic(ek_model **out, const ek_config *config, int bits, uint64_t seed, const ek_model_opts *opts)
{
    if (bits != 0 && bits != 4 && bits != 8)
        return ek_fail(EK_EINVAL, "synthetic weights of %d bits; there are 0 (bf16), 4 and 8", bits);
    return open_invented(out, new_model(opts), config, bits, seed, opts);
}

ek_err ek_model_open_drafter(ek_model **out, const char *dir, const ek_config *config, uint64_t seed,
                             const ek_model *target, const ek_model_opts *opts)
{
    ek_model *m = new_model(opts);
    m->target = target;
    m->k_format = target->k_format, m->v_format = target->v_format; /* in the formats that the target stores */
    m->kv_start = target->kv_start;
    if (dir) return open_dir(out, m, dir, opts);
    if (config->n_centroids) {
        m->w.token_ordering = ek_alloc(sizeof *m->w.token_ordering * (size_t)config->vocab_size);
        for (int i = 0; i < config->vocab_size; i++) m->w.token_ordering[i] = config->vocab_size - 1 - i;
    }
    return open_invented(out, m, config, 0, seed, opts);
}

/* --- deferred weights: a share of the layers at a time --- */

ek_err ek_model_pack(ek_model *m, const ek_model_share *share)
{
    EK_ASSERT(m->deferred);
    m->some = true, m->pack.quiet = share->quiet;
    EK_TRY(ek_items_pack_layers(m->deferred, &m->w, &m->pack, share->first, share->end, share->embed, share->rows));
    m->some = share->first > 0 || share->end < m->config.n_layers || !share->embed || share->rows;
    if (m->w.source) ek_source_drop_pages(m->w.source);
    return check_keys(m, share->first, share->end);
}

ek_err ek_model_pack_all(ek_model *m)
{
    if (!m->deferred || ek_model_is_packed(m)) return EK_OK;
    return ek_model_pack(m, &(ek_model_share){.end = m->config.n_layers, .embed = true});
}

bool ek_model_is_deferred(const ek_model *m)
{
    return m->deferred;
}

bool ek_model_is_packed(const ek_model *m)
{
    return m->w.block && !m->some;
}

bool ek_model_keeps_packed(const ek_model *m)
{
    return m->packed_dir;
}

void ek_model_release_weights(ek_model *m)
{
    ek_weights_release(&m->w);
}

/* --- what a model needs --- */

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

void ek_model_measure(ek_model_need *out, const ek_model *m)
{
    *out = (ek_model_need){.config = m->config,
                           .layout = m->layout,
                           .weight_bytes = (double)m->w.block_bytes,
                           .mapped_bytes = (double)m->w.mapped_bytes,
                           .bytes_per_token = m->bytes_per_token};
    snprintf(out->numerics_id, sizeof out->numerics_id, "%s", m->numerics_id);
}

void ek_model_close(ek_model *m)
{
    if (!m) return;
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        ek_attn_free(m->attn[k]);
        free(m->rope[k]);
    }
    ek_weights_fini(&m->w);
    if (m->deferred) ek_items_fini(m->deferred);
    free(m->deferred), free(m->packed_dir);
    free(m);
}

const ek_config *ek_model_config(const ek_model *m)
{
    return &m->config;
}

const ek_kv_layout *ek_model_kv_layout(const ek_model *m)
{
    return &m->layout;
}

uint64_t ek_model_parameters(const ek_config *config)
{
    return ek_weights_count(config);
}

ek_pool *ek_model_pool(const ek_model *m)
{
    return m->pool;
}

unsigned ek_model_cpu(const ek_model *m)
{
    return m->cpu;
}

double ek_model_bytes_per_token(const ek_model *m)
{
    return m->bytes_per_token;
}

double ek_model_macs_prompt_row(const ek_model *m)
{
    return m->macs_prompt_row;
}

double ek_model_macs_logit_row(const ek_model *m)
{
    return m->macs_logit_row;
}

const char *ek_model_numerics_id(const ek_model *m)
{
    return m->numerics_id;
}
