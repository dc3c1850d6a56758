/* The towers of a checkpoint: opening, packing on demand, digests, and the choice of the encoder. */
#include "model/tower/tower.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "base/log.h"
#include "model/config/setting.h"
#include "model/tower/tower_part.h"
#include "model/tower/tower_unified.h"
#include "model/tower/tower_vision.h"

/* One sense. */
typedef struct sense {
    ek_tower_part *part; /* NULL: the model lacks this sense */
    ek_tower_binder bound;
    ek_weights *block; /* only its memory of packed weights is used */
    bool packed, digested;
    uint64_t digest;
} sense;

struct ek_towers {
    ek_towers_info info;
    ek_towers_opts opts;
    ek_tower_ops kernels;
    ek_tower_source *source; /* NULL: the container has no towers */
    char *packed_dir;        /* NULL: packed weights are not kept */
    const char *sees;        /* use_bidirectional_attention; borrowed from the source */
    sense image, sound;
};

/* ------------------------------------------------------------------ configuration */

static ek_err read_ids(ek_towers_info *i, const ek_settings *f, int vocab)
{
    /* The defaults are those of transformers' Gemma4Config. */
    const struct {
        const char *key, *other;
        int absent;
        int32_t *to;
    } id[] = {{"boi_token_id", NULL, 255999, &i->boi},           {"image_token_id", NULL, 258880, &i->image_token},
              {"eoi_token_id", NULL, 258882, &i->eoi},           {"boa_token_id", NULL, 256000, &i->boa},
              {"audio_token_id", NULL, 258881, &i->sound_token}, {"eoa_token_index", "eoa_token_id", 258883, &i->eoa},
              {"video_token_id", NULL, 258884, &i->video_token}};
    for (size_t k = 0; k < sizeof id / sizeof *id; k++) {
        const char *key = id[k].other && !ek_setting(f, id[k].key) ? id[k].other : id[k].key;
        int value;
        EK_TRY(ek_setting_may_int(&value, f, key, id[k].absent < vocab ? id[k].absent : -1, 0, vocab - 1));
        *id[k].to = value > 0 ? value : -1;
    }
    return EK_OK;
}

static ek_err read_config(ek_towers *t)
{
    const ek_settings top = {.file = t->source->file, .object = t->source->config};
    ek_settings text = {.file = top.file, .other = top.object};
    int vocab;
    EK_TRY(ek_setting_may_object(&text.object, &top, "text_config"));
    if (!text.object) text.object = top.object;
    EK_TRY(ek_setting_need_int(&t->info.hidden, &text, "hidden_size", 1, EK_MAX_WIDTH));
    EK_TRY(ek_setting_need_int(&vocab, &text, "vocab_size", 1, EK_MAX_VOCAB));
    EK_TRY(read_ids(&t->info, &top, vocab));
    EK_TRY(ek_setting_may_text(&t->sees, &text, "use_bidirectional_attention"));
    return EK_OK;
}

/* GGUF has no settings for it. */
static ek_err read_processor(ek_towers *t)
{
    ek_processor p;
    if (!t->image.part) return EK_OK;
    ek_processor_default(&p);
    if (t->source->folder) EK_TRY(ek_processor_read(&p, t->source->path, t->info.patching));
    t->info.image_tokens = p.image_tokens;
    t->info.frame_tokens = p.frame_tokens;
    t->info.video_frames = p.frames;
    return EK_OK;
}

static ek_err check_sees(ek_towers *t)
{
    if (!t->image.part || !t->sees) return EK_OK;
    t->info.bidirectional = strcmp(t->sees, "vision") == 0;
    if (t->info.bidirectional) return EK_OK;
    return ek_fail(EK_EUNSUPPORTED, "%s: use_bidirectional_attention is %.60s; vision and null can be run",
                   t->source->file, t->sees);
}

/* ------------------------------------------------------------------ opening */

static void init_kernels(ek_tower_ops *k, const ek_towers_opts *opts)
{
    const unsigned cpu = opts->cpu;
    k->cpu = cpu;
    k->pool = opts->pool;
    k->integers_from = opts->integers_from > 0 ? opts->integers_from : EK_VISION_INTEGERS;
    ek_linear_init(&k->linear, cpu);
    ek_row_init(&k->rows, cpu);
    ek_attn_rows_init(&k->attn, cpu);
    ek_convert_init(&k->convert, cpu);
}

static ek_pack_opts pack_opts(const ek_towers *t)
{
    return (ek_pack_opts){.cpu = t->opts.cpu,
                          .exact = t->opts.exact,
                          .quantise = t->opts.quantise,
                          .activations = EK_ACTIVATIONS_16,
                          .limit = t->opts.memory_limit,
                          .pool = t->opts.pool,
                          .packed_dir = t->packed_dir,
                          .packed_of = t->source->gguf ? t->source->file : t->source->path};
}

static ek_err plan(ek_towers *t, sense *s)
{
    const ek_pack_opts o = pack_opts(t);
    if (!s->part) return EK_OK;
    s->block = ek_alloc(sizeof *s->block);
    if (o.quantise) ek_items_quantise(&s->bound.items);
    ek_err err = ek_items_plan(&s->bound.items, s->block, &o);
    return err ? ek_fail_in(err, "%s", t->source->path) : EK_OK;
}

/* Checks the senses that the model has; tensors of a sense that config.json leaves out are ignored. */
static ek_err check_unused(const ek_towers *t)
{
    static const char *const image[] = {"vision_tower.", "embed_vision.", "vision_embedder.", NULL}, *const sound[] = {
                                                                                                         "audio_tower.",
                                                                                                         "embed_audio.",
                                                                                                         NULL};
    if (t->image.part) EK_TRY(ek_tower_source_check_unused(t->source, image));
    return t->sound.part ? ek_tower_source_check_unused(t->source, sound) : EK_OK;
}

static ek_err open_all(ek_towers *t, const char *path)
{
    EK_TRY(ek_tower_source_open(&t->source, path, t->opts.mmproj, t->opts.synthetic));
    if (!t->source) return EK_OK;
    EK_TRY(read_config(t));
    t->image.bound.from = t->sound.bound.from = t->source;
    ek_err err = ek_tower_image_open(&t->image.part, &t->info, &t->image.bound, &t->kernels);
    if (!err)
        err = ek_tower_audio_open(&t->sound.part, &t->info.sound_kind, &t->sound.bound, &t->kernels, t->info.hidden);
    if (!err) err = check_unused(t);
    if (err) return err;
    EK_TRY(check_sees(t));
    EK_TRY(read_processor(t));
    t->info.image = t->image.part != NULL, t->info.sound = t->sound.part != NULL;
    EK_TRY(plan(t, &t->image));
    return plan(t, &t->sound);
}

ek_err ek_towers_open(ek_towers **out, const char *path, const ek_towers_opts *opts)
{
    ek_towers *t = ek_alloc(sizeof *t);
    t->opts = *opts;
    t->info.boi = t->info.image_token = t->info.eoi = t->info.boa = t->info.sound_token = t->info.eoa = -1;
    t->info.video_token = -1;
    init_kernels(&t->kernels, opts);
    if (opts->packed_dir && !opts->synthetic) t->packed_dir = ek_strdup(opts->packed_dir);
    ek_err err = open_all(t, path);
    if (err && t->source && t->source->beside) {
        ek_towers_opts without = *opts;
        ek_log(EK_LOG_WARN, "%s; the model takes text alone", ek_err_text());
        ek_towers_close(t);
        without.mmproj = "none";
        return ek_towers_open(out, path, &without);
    }
    t->opts.mmproj = t->opts.synthetic = t->opts.packed_dir = NULL; /* was borrowed */
    *out = err ? NULL : t;
    if (err) ek_towers_close(t);
    return err;
}

const char *ek_towers_file(const ek_towers *t)
{
    return t->source && t->source->gguf ? t->source->file : NULL;
}

static void forget_bound(ek_tower_binder *b)
{
    for (int i = 0; i < b->n_own; i++) free(b->own[i]);
    free(b->own);
    b->own = NULL, b->n_own = 0;
}

static void close_sense(sense *s)
{
    forget_bound(&s->bound);
    ek_items_fini(&s->bound.items);
    if (s->block) ek_weights_fini(s->block);
    free(s->block);
    if (s->part) s->part->ops->close(s->part);
}

void ek_towers_close(ek_towers *t)
{
    if (!t) return;
    close_sense(&t->image);
    close_sense(&t->sound);
    ek_tower_source_close(t->source);
    free(t->packed_dir);
    free(t);
}

const ek_towers_info *ek_towers_get(const ek_towers *t)
{
    return &t->info;
}

ek_err ek_towers_takes_image(const ek_towers *t)
{
    if (t->image.part) return EK_OK;
    return ek_fail(EK_EUNSUPPORTED, "this model takes no images: it has no vision tower");
}

ek_err ek_towers_takes_sound(const ek_towers *t)
{
    if (t->sound.part) return EK_OK;
    return ek_fail(EK_EUNSUPPORTED, "this model takes no audio: it has no audio tower");
}

/* ------------------------------------------------------------------ weights */

static size_t bytes(const sense *s)
{
    return s->block ? s->block->block_bytes : 0;
}

size_t ek_towers_image_bytes(const ek_towers *t)
{
    return bytes(&t->image);
}

size_t ek_towers_sound_bytes(const ek_towers *t)
{
    return bytes(&t->sound);
}

/* Packing reads every weight except those of tables, which stay in the file. A NaN in a table would give plausible
 * rows. */
static ek_err check_table(const ek_item *it)
{
    float *row = ek_alloc(sizeof *row * (size_t)it->data.k);
    ek_err err = EK_OK;
    for (int i = 0; !err && i < it->data.n; i++) {
        ek_weight_row(&it->data, i, 0, it->data.k, row);
        for (int k = 0; !err && k < it->data.k; k++)
            if (!isfinite(row[k]))
                err = ek_fail(EK_EFORMAT, "tensor %s: element %d of row %d is %g", it->name, k, i, (double)row[k]);
    }
    free(row);
    return err;
}

/* Packs the sense's weights, once. ENOMEM; EFORMAT for weights that are not finite. */
static ek_err load(ek_towers *t, sense *s)
{
    const ek_pack_opts o = pack_opts(t);
    const ek_items *list = &s->bound.items;
    ek_err err = EK_OK;
    if (s->packed) return EK_OK;
    for (int i = 0; !err && i < list->n; i++)
        if (list->item[i].table && list->item[i].data.plane[0])
            err = check_table(&list->item[i]); /* no synthetic one */
    if (err) return ek_fail_in(err, "%s", t->source->path);
    err = ek_items_pack(list, s->block, &o);
    if (!err && s->part->ops->ready) err = s->part->ops->ready(s->part);
    t->source->ops->drop_pages(t->source);
    if (err) {
        ek_weights_release(s->block);
        return ek_fail_in(err, "%s", t->source->path);
    }
    forget_bound(&s->bound);
    s->packed = true;
    return EK_OK;
}

ek_err ek_towers_load_image(ek_towers *t)
{
    EK_TRY(ek_towers_takes_image(t));
    return load(t, &t->image);
}

ek_err ek_towers_load_sound(ek_towers *t)
{
    EK_TRY(ek_towers_takes_sound(t));
    return load(t, &t->sound);
}

const ek_tower_part *ek_towers_image_part(const ek_towers *t)
{
    return t->image.packed ? t->image.part : NULL;
}

const ek_tower_part *ek_towers_sound_part(const ek_towers *t)
{
    return t->sound.packed ? t->sound.part : NULL;
}

/* ------------------------------------------------------------------ digests of all that rows depend on besides pixels
 * or samples */

/* Hashes panels in order, on whatever nodes they lie. */
static uint64_t hash_matrix(uint64_t h, const ek_linear *w, const ek_pool *pool)
{
    const int nodes = w->parts ? ek_pool_nodes(pool) : 1;
    const int shape[] = {(int)w->form, w->n, w->k, w->group, w->a_group, w->bits, w->limbs};
    h = ek_hash64(h, shape, sizeof shape);
    for (int j = 0; j < nodes; j++) {
        const int first = w->parts ? w->parts->first[j] : 0, end = w->parts ? w->parts->first[j + 1] : w->n_panels;
        const uint8_t *at = w->parts ? w->parts->data[j] : w->data;
        for (int p = first; p < end; p++, at += w->panel_bytes) h = ek_hash64(h, at, w->panel_bytes);
    }
    return h;
}

static uint64_t hash_item(const ek_item *it, const ek_pool *pool)
{
    uint64_t h = ek_fnv1a64(it->name);
    if (it->matrix) return hash_matrix(h, it->matrix, pool);
    if (it->vector) return ek_hash64(h, *it->vector, sizeof(float) * (size_t)it->data.k);
    if (!it->data.plane[0]) return h; /* synthetic */
    const size_t row = ek_weight_row_bytes(it->data.type, it->data.k);
    return ek_hash64(h, it->data.plane[0], row * (size_t)it->data.n);
}

typedef struct hashing {
    const sense *s;
    const ek_pool *pool;
    uint64_t *of;
} hashing;

static void hash_task(void *arg, int task, int worker)
{
    hashing *a = arg;
    (void)worker;
    a->of[task] = hash_item(&a->s->bound.items.item[task], a->pool);
}

static ek_err digest(ek_towers *t, sense *s, uint64_t *out)
{
    EK_TRY(load(t, s));
    if (!s->digested) {
        const int n = s->bound.items.n;
        hashing a = {s, t->opts.pool, ek_alloc(sizeof *a.of * (size_t)(n + 1))};
        ek_pool_run(t->opts.pool, hash_task, &a, n);
        s->digest = ek_hash64(EK_ARITHMETIC_VERSION, a.of, sizeof *a.of * (size_t)n);
        s->digest = s->part->ops->hash(s->part, s->digest);
        s->digested = true;
        free(a.of);
    }
    *out = s->digest;
    return EK_OK;
}

ek_err ek_towers_digest_image(ek_towers *t, uint64_t *out)
{
    EK_TRY(ek_towers_takes_image(t));
    return digest(t, &t->image, out);
}

ek_err ek_towers_digest_sound(ek_towers *t, uint64_t *out)
{
    EK_TRY(ek_towers_takes_sound(t));
    return digest(t, &t->sound, out);
}

/* ------------------------------------------------------------------ encoding */

static ek_err check_cut(const ek_towers *t, const ek_image_fit *fit)
{
    const ek_patching *want = &t->info.patching, *has = &fit->patching;
    EK_TRY(ek_towers_takes_image(t));
    if (want->side == has->side && want->pool == has->pool) return EK_OK;
    return ek_fail(EK_EINVAL,
                   "the picture was cut into patches of %d pixels, %d x %d in a token; the model takes %d and %d",
                   has->side, has->pool, has->pool, want->side, want->pool);
}

ek_err ek_tower_cost_image(ek_tower_cost *out, const ek_towers *t, const ek_image_fit *fit)
{
    EK_TRY(check_cut(t, fit));
    return ek_tower_image_cost(out, t->image.part, fit);
}

ek_err ek_tower_cost_sound(ek_tower_cost *out, const ek_towers *t, int samples)
{
    int tokens;
    EK_TRY(ek_towers_takes_sound(t));
    EK_TRY(ek_sound_tokens(&tokens, samples, t->info.sound_kind));
    ek_tower_audio_cost(out, t->sound.part, samples, tokens);
    return EK_OK;
}

ek_err ek_tower_begin_image(ek_tower_work **out, ek_towers *t, const ek_picture *picture)
{
    *out = NULL;
    EK_TRY(check_cut(t, &picture->fit));
    EK_TRY(load(t, &t->image));
    return ek_tower_image_begin(out, t->image.part, picture);
}

ek_err ek_tower_begin_sound(ek_tower_work **out, ek_towers *t, const ek_sound *sound)
{
    int tokens;
    *out = NULL;
    EK_TRY(ek_towers_takes_sound(t));
    EK_TRY(ek_sound_tokens(&tokens, sound->samples, t->info.sound_kind));
    EK_TRY(load(t, &t->sound));
    return ek_tower_audio_begin(out, t->sound.part, sound, tokens);
}
