/* The audio encoders: a conformer over log-mel rows (E2B, E4B), or a projection of runs of samples (12B). */
#include "model/tower/tower_part.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "model/config/setting.h"
#include "model/tower/tower_audio_state.h"

/* ------------------------------------------------------------------ audio_config */

/* What the encoder does not compute is refused by name. */

static ek_err read_channels(ek_audio_config *c, const ek_settings *f)
{
    static const char key[] = "subsampling_conv_channels";
    const json_t *v = ek_setting(f, key);
    c->channels[0] = 128, c->channels[1] = 32;
    if (!v) return EK_OK;
    if (!json_is_array(v) || json_array_size(v) != 2) return ek_setting_wrong(f, key, v, "a list of two numbers");
    for (size_t i = 0; i < 2; i++) EK_TRY(ek_setting_to_int(&c->channels[i], f, key, json_array_get(v, i), 1, 1 << 14));
    return EK_OK;
}

static ek_err read_attention(ek_audio_config *c, const ek_settings *f)
{
    int chunk, left, right;
    EK_TRY(ek_setting_may_int(&chunk, f, "attention_chunk_size", 12, 1, 1 << 20));
    EK_TRY(ek_setting_may_int(&left, f, "attention_context_left", 13, 1, 1 << 20));
    EK_TRY(ek_setting_may_int(&right, f, "attention_context_right", 0, 0, 1 << 20));
    if (right)
        return ek_fail(EK_EUNSUPPORTED, "%s: %sattention_context_right is %d, 0 can be run", f->file, f->in, right);
    if (chunk != left - 1)
        return ek_fail(EK_EUNSUPPORTED,
                       "%s: %sattention_chunk_size is %d and attention_context_left %d, the first must be one less",
                       f->file, f->in, chunk, left);
    if (chunk > EK_NEAR_MAX_SPAN)
        return ek_fail(EK_EUNSUPPORTED, "%s: %sattention_chunk_size is %d, at most %d can be run", f->file, f->in,
                       chunk, EK_NEAR_MAX_SPAN);
    c->span = chunk;
    return ek_setting_may_float(&c->cap, f, "attention_logit_cap", 50, 1e-3, 1e6);
}

/* Checks the rules between fields. */
static ek_err check_config(const ek_audio_config *c, const char *file)
{
    if (c->hidden % c->n_heads)
        return ek_fail(EK_EFORMAT, "%s: audio_config.hidden_size is %d, which %d heads cannot share evenly", file,
                       c->hidden, c->n_heads);
    if (c->hidden % 2) return ek_fail(EK_EFORMAT, "%s: audio_config.hidden_size is %d, must be even", file, c->hidden);
    if (c->channels[0] != c->bins)
        return ek_fail(
            EK_EUNSUPPORTED,
            "%s: audio_config.subsampling_conv_channels begins with %d, %d can be run: the number of log-mel "
            "bins, by which transformers sizes the projection behind them",
            file, c->channels[0], c->bins);
    if ((int64_t)c->bins / 4 * c->channels[1] > EK_MAX_WIDTH)
        return ek_fail(EK_EFORMAT, "%s: audio_config.subsampling_conv_channels %d and %d give more than %d values",
                       file, c->channels[0], c->channels[1], EK_MAX_WIDTH);
    return EK_OK;
}

/* in: audio_config. EFORMAT and EUNSUPPORTED name field, value and accepted values. */
static ek_err read_config(ek_audio_config *c, const ek_tower_source *from, const json_t *in, int text)
{
    const ek_settings f = {.file = from->file, .in = "audio_config.", .object = in};
    const char *act;
    *c = (ek_audio_config){.bins = EK_MEL_BINS, .text = text};
    EK_TRY(ek_setting_may_int(&c->hidden, &f, "hidden_size", 1024, 2, EK_MAX_WIDTH / 4));
    EK_TRY(ek_setting_may_int(&c->n_layers, &f, "num_hidden_layers", 12, 1, EK_AUDIO_MAX_LAYERS));
    EK_TRY(ek_setting_may_int(&c->n_heads, &f, "num_attention_heads", 8, 1, 4096));
    EK_TRY(ek_setting_may_int(&c->taps, &f, "conv_kernel_size", 5, 1, EK_AUDIO_MAX_TAPS));
    EK_TRY(ek_setting_may_int(&c->output, &f, "output_proj_dims", 1536, 1, EK_MAX_WIDTH));
    EK_TRY(ek_setting_may_float(&c->residual, &f, "residual_weight", 0.5, -1e6, 1e6));
    EK_TRY(ek_setting_may_float(&c->limit, &f, "gradient_clipping", 1e10, 1e-6, 3e38));
    EK_TRY(ek_setting_may_float(&c->eps, &f, "rms_norm_eps", 1e-6, 1e-12, 1));
    EK_TRY(ek_setting_may_bool(&c->clips, &f, "use_clipped_linears", true));
    EK_TRY(ek_setting_may_text(&act, &f, "hidden_act"));
    if (act && strcmp(act, "silu") != 0)
        return ek_fail(EK_EUNSUPPORTED, "%s: %shidden_act is %.60s, silu can be run", f.file, f.in, act);
    EK_TRY(read_attention(c, &f));
    EK_TRY(read_channels(c, &f));
    return check_config(c, f.file);
}

/* ------------------------------------------------------------------ the encoder */

/* ------------------------------------------------------------------ without a tower */

typedef ek_sound_runs runs;

typedef struct runs_work {
    ek_tower_work head;
    const runs *of;
    float *x; /* [n][EK_SOUND_RUN], normed */
    void *acts;
    size_t x_bytes, acts_bytes;
    int row;
} runs_work;

enum { RUNS_AT_ONCE = 128 };

static double runs_macs(const ek_tower_part *p)
{
    return (double)EK_SOUND_RUN * p->hidden;
}

static void runs_advance(ek_tower_work *head, double max_macs)
{
    runs_work *w = (runs_work *)head;
    while (w->row < head->n_rows && max_macs > 0) {
        const int left = head->n_rows - w->row, n = left < RUNS_AT_ONCE ? left : RUNS_AT_ONCE;
        ek_tower_product(head->part->kernels, &w->of->embed, w->x + (ptrdiff_t)w->row * EK_SOUND_RUN, EK_SOUND_RUN, n,
                         w->acts, head->rows + (ptrdiff_t)w->row * head->part->hidden, head->part->hidden);
        w->row += n;
        max_macs -= n * runs_macs(head->part);
    }
    head->left = (head->n_rows - w->row) * runs_macs(head->part);
}

static void runs_free(ek_tower_work *head)
{
    runs_work *w = (runs_work *)head;
    ek_free_big(w->x, w->x_bytes);
    ek_free_big(w->acts, w->acts_bytes);
    free(w);
}

static void runs_sizes(runs_work *w, int tokens)
{
    w->x_bytes = sizeof *w->x * (size_t)tokens * EK_SOUND_RUN;
    w->acts_bytes = ek_acts_bytes(RUNS_AT_ONCE, EK_SOUND_RUN);
}

static ek_err runs_begin(ek_tower_work **out, const runs *r, const ek_sound *sound, int tokens)
{
    static const ek_tower_work_ops ops = {runs_advance, runs_free};
    runs_work *w = ek_alloc(sizeof *w);
    *w = (runs_work){.head = {.ops = &ops, .part = &r->part, .n_rows = tokens}, .of = r};
    runs_sizes(w, tokens);
    w->x = ek_alloc_big(w->x_bytes); /* zeros, which fill the last run */
    w->acts = ek_alloc_big(w->acts_bytes);
    w->head.rows = ek_alloc_big(sizeof(float) * (size_t)tokens * (size_t)r->part.hidden);
    if (!w->x || !w->acts || !w->head.rows) {
        ek_free_big(w->head.rows, sizeof(float) * (size_t)tokens * (size_t)r->part.hidden);
        runs_free(&w->head);
        return EK_ENOMEM;
    }
    memcpy(w->x, sound->v, sizeof *w->x * (size_t)sound->samples);
    for (int i = 0; i < tokens; i++) {
        float *x = w->x + (ptrdiff_t)i * EK_SOUND_RUN;
        r->part.kernels->rows.rms_norm(x, x, NULL, EK_SOUND_RUN, r->eps);
    }
    w->head.left = tokens * runs_macs(&r->part);
    *out = &w->head;
    return EK_OK;
}

static uint64_t runs_hash(const ek_tower_part *p, uint64_t h)
{
    return ek_hash64(h, &((const runs *)p)->eps, sizeof(float));
}

static void runs_close(ek_tower_part *p)
{
    free(p);
}

static const ek_tower_part_ops runs_ops = {.hash = runs_hash, .close = runs_close};

const ek_sound_runs *ek_sound_runs_of(const ek_tower_part *p)
{
    return p && p->ops == &runs_ops ? (const runs *)p : NULL;
}

static ek_err runs_open(ek_tower_part **out, ek_tower_binder *b, const ek_settings *f, int hidden)
{
    int run;
    EK_TRY(ek_setting_may_int(&run, f, "audio_embed_dim", EK_SOUND_RUN, 1, 1 << 20));
    if (run != EK_SOUND_RUN)
        return ek_fail(EK_EUNSUPPORTED, "%s: %saudio_embed_dim is %d, %d samples can be run", f->file, f->in, run,
                       EK_SOUND_RUN);
    runs *r = ek_alloc(sizeof *r);
    r->part = (ek_tower_part){.ops = &runs_ops, .hidden = hidden};
    ek_err err = ek_setting_may_float(&r->eps, f, "rms_norm_eps", 1e-6, 1e-12, 1);
    if (!err) err = ek_tower_matrix(b, "embed_audio.embedding_projection", hidden, EK_SOUND_RUN, &r->embed);
    if (err) free(r);
    else *out = &r->part;
    return err;
}

/* ------------------------------------------------------------------ a tower */

static ek_err tower_ready(ek_tower_part *p)
{
    return ek_audio_ready((ek_audio *)p);
}

/* Bounds are not items, so they are hashed here. */
static uint64_t tower_hash(const ek_tower_part *p, uint64_t h)
{
    const ek_audio *a = (const ek_audio *)p;
    const ek_audio_config *c = &a->c;
    const float numbers[] = {c->cap, c->residual, c->limit, c->eps, (float)a->scaled};
    const int sizes[] = {c->hidden, c->n_layers, c->n_heads, c->bins, c->channels[1], c->taps, c->span, c->output};
    h = ek_hash64(h, numbers, sizeof numbers);
    h = ek_hash64(h, sizes, sizeof sizes);
    for (int i = 0; i < c->n_layers; i++) {
        const ek_audio_layer *l = &a->layer[i];
        const ek_clip clip[] = {l->ffw[0].up.clip, l->ffw[0].down.clip, l->ffw[1].up.clip, l->ffw[1].down.clip,
                                l->q.clip,         l->k.clip,           l->v.clip,         l->post.clip,
                                l->start.clip,     l->end.clip};
        h = ek_hash64(h, clip, sizeof clip);
    }
    return h;
}

static void tower_close(ek_tower_part *p)
{
    free(((ek_audio *)p)->made);
    free(p);
}

static const ek_tower_part_ops tower_ops = {.ready = tower_ready, .hash = tower_hash, .close = tower_close};

const ek_audio *ek_audio_of(const ek_tower_part *p)
{
    return p && p->ops == &tower_ops ? (const ek_audio *)p : NULL;
}

static ek_err tower_open(ek_tower_part **out, ek_tower_binder *b, const json_t *config, int hidden)
{
    ek_audio *a = ek_alloc(sizeof *a);
    a->part = (ek_tower_part){.ops = &tower_ops, .hidden = hidden};
    ek_err err = read_config(&a->c, b->from, config, hidden);
    if (!err) err = ek_audio_bind(a, b);
    if (err) tower_close(&a->part);
    else *out = &a->part;
    return err;
}

static ek_err tower_begin(ek_tower_work **out, const ek_audio *a, const ek_sound *sound)
{
    const int frames = ek_mel_frames(sound->samples);
    float *rows = malloc(sizeof *rows * (size_t)frames * EK_MEL_BINS);
    if (!rows) return ek_fail(EK_ENOMEM, "no memory for %d log-mel rows", frames);
    ek_mel_rows(rows, sound);
    ek_err err = ek_audio_begin(out, a, rows, frames);
    free(rows);
    return err;
}

/* ------------------------------------------------------------------ either */

/* A model whose audio tensors are missing opens as a model without sounds. */
ek_err ek_tower_audio_open(ek_tower_part **out, ek_sound_kind *kind, ek_tower_binder *b, const ek_tower_ops *kernels,
                           int hidden)
{
    const ek_settings top = {.file = b->from->file, .object = b->from->config};
    ek_settings f = {.file = top.file, .in = "audio_config."};
    const char *type;
    *out = NULL;
    EK_TRY(ek_setting_may_object(&f.object, &top, "audio_config"));
    if (!f.object) return EK_OK;
    EK_TRY(ek_setting_may_text(&type, &f, "model_type"));
    if (!ek_tower_source_has(b->from, "audio_tower.") && !ek_tower_source_has(b->from, "embed_audio.")) return EK_OK;
    /* GGUF files name no type: without a tower there are runs of samples */
    const bool unified = type ? strcmp(type, "gemma4_unified_audio") == 0
                              : !ek_tower_source_has(b->from, "audio_tower.");
    if (type && !unified && strcmp(type, "gemma4_audio") != 0)
        return ek_fail(EK_EUNSUPPORTED,
                       "%s: audio_config.model_type is %.60s; gemma4_audio and gemma4_unified_audio can be run", f.file,
                       type);
    *kind = unified ? EK_SOUND_UNIFIED : EK_SOUND_TOWER;
    EK_TRY(unified ? runs_open(out, b, &f, hidden) : tower_open(out, b, f.object, hidden));
    (*out)->kernels = kernels;
    if (!unified) ((ek_audio *)*out)->near = ek_near_choose(kernels->cpu);
    return EK_OK;
}

void ek_tower_audio_cost(ek_tower_cost *out, const ek_tower_part *p, int samples, int tokens)
{
    const size_t rows = sizeof(float) * (size_t)tokens * (size_t)p->hidden;
    *out = (ek_tower_cost){.rows = tokens};
    const ek_audio *a = ek_audio_of(p);
    if (a) {
        const double row = ek_audio_macs_begin(&a->c) + a->c.n_layers * ek_audio_macs_layer(&a->c);
        const int frames = ek_mel_frames(samples);
        out->macs = tokens * (row + ek_audio_macs_end(&a->c));
        out->bytes = rows + ek_audio_work_bytes(a, frames) + sizeof(float) * (size_t)frames * EK_MEL_BINS;
    } else {
        runs_work w;
        runs_sizes(&w, tokens);
        out->macs = tokens * runs_macs(p);
        out->bytes = rows + w.x_bytes + w.acts_bytes + sizeof w;
    }
}

ek_err ek_tower_audio_begin(ek_tower_work **out, const ek_tower_part *p, const ek_sound *sound, int tokens)
{
    *out = NULL;
    const ek_audio *a = ek_audio_of(p);
    return a ? tower_begin(out, a, sound) : runs_begin(out, (const runs *)p, sound, tokens);
}
