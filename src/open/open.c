#include "open/open.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/machine/cpu.h"
#include "engine/budget.h"
#include "engine/executor.h"
#include "gpu/tower/towers.h"
#include "open/card.h"
#include "open/device.h"

enum { LONG_CHUNK = 2048 }; /* prompt rows of a step; no published model is much faster with more */

/* --- the model --- */

ek_err ek_open_path(ek_buf *out, const ek_open_opts *o)
{
    if (o->model) return ek_model_find(out, o->model);
    ek_err err = ek_bundled_find(out);
    return err ? ek_fail_in(err, "no model given") : EK_OK;
}

ek_err ek_open_weights(ek_model **out, const char *path, const ek_open_opts *o, const ek_model_opts *opts)
{
    if (!o->synthetic) return ek_model_open(out, path, opts);
    ek_config *c = ek_alloc(sizeof *c);
    ek_err err = ek_config_published(c, o->synthetic, o->synthetic_layers);
    if (!err) err = ek_model_synthetic(out, c, o->synthetic_bits, 1, opts);
    free(c);
    return err;
}

/* Appends the path of the drafter, or nothing if there is none. The bundled model has a drafter beside it. */
static ek_err find_drafter(ek_buf *out, const ek_opened *m, const ek_open_opts *o)
{
    if (o->draft && strcmp(o->draft, "auto") != 0) return EK_OK;
    if (o->drafter) return ek_model_find(out, o->drafter);
    if (o->model || o->synthetic || o->drafter_url) return EK_OK;
    ek_buf_fmt(out, "%s-drafter", m->path);
    if (!ek_is_dir(ek_buf_text(out))) ek_buf_clear(out);
    return EK_OK;
}

static ek_err open_drafter(ek_opened *m, const ek_open_opts *o, const ek_model_opts *opts)
{
    ek_buf path = {0};
    ek_err err = find_drafter(&path, m, o);
    if (!err && path.len > 0) err = ek_drafter_open(&m->drafter, ek_buf_text(&path), m->model, opts);
    ek_buf_fini(&path);
    return err;
}

static ek_err open_remote(ek_opened *m, const ek_open_opts *o)
{
    char name[EK_CHAT_NAME];
    const ek_config *c = ek_model_config(m->model);
    if (!o->drafter_url || !m->chat.tokenizer || (o->draft && strcmp(o->draft, "auto") != 0)) return EK_OK;
    ek_chat_vocabulary_name(name, m->chat.tokenizer);
    const ek_remote_opts r = {.url = o->drafter_url,
                              .vocabulary = name,
                              .n_vocab = c->vocab_size,
                              .max_ctx = o->ctx_tokens ? o->ctx_tokens : c->max_position_embeddings};
    return ek_remote_open(&m->remote, &r);
}

static ek_err open_path(ek_opened *m, const ek_open_opts *o)
{
    ek_buf path = {0};
    ek_err err = EK_OK;
    if (o->synthetic) ek_buf_str(&path, o->synthetic);
    else err = ek_open_path(&path, o);
    m->path = ek_strdup(ek_buf_text(&path));
    ek_buf_fini(&path);
    return err;
}

static ek_err open_towers(ek_opened *m, const ek_open_opts *o, const ek_model_opts *opts)
{
    if (!o->media) return EK_OK;
    const ek_towers_opts towers = ek_open_towers_opts(o, opts);
    EK_TRY(ek_towers_open(&m->towers, m->path, &towers));
    ek_chat_media_of(&m->chat.media, m->towers, ek_model_config(m->model), m->chat.tokenizer);
    return EK_OK;
}

/* A model's weights for devices are read after a check that they fit, a part at a time, so that they are never all in
 * host memory at once. */
static ek_err defer(const ek_open_opts *o, ek_model_opts *opts)
{
    ek_device d;
    EK_TRY(ek_device_parse(&d, o->device ? o->device : "auto"));
    opts->deferred = ek_device_is_wanted(&d) || o->cache_dir || o->cache_shared; /* a store comes first */
    if (!ek_device_is_split(&d) || !opts->packed_dir) return EK_OK;
    ek_log(EK_LOG_WARN, "weights for several devices are packed at every start: %s is not used", opts->packed_dir);
    opts->packed_dir = NULL;
    return EK_OK;
}

static ek_err open_model(ek_opened *m, const ek_open_opts *o)
{
    ek_model_opts opts, weights;
    EK_TRY(open_path(m, o));
    if (o->chat) EK_TRY(ek_chat_model_open(&m->chat, m->path));
    EK_TRY(ek_open_model_opts(o, &opts));
    EK_TRY(ek_pool_open_nodes(&m->pool, o->threads ? o->threads : ek_cpu_count(), ""));
    opts.pool = m->pool;
    weights = opts;
    EK_TRY(defer(o, &weights));
    EK_TRY(ek_open_weights(&m->model, m->path, o, &weights));
    EK_TRY(open_towers(m, o, &opts));
    opts.deferred = weights.deferred;
    EK_TRY(open_drafter(m, o, &opts));
    return open_remote(m, o);
}

ek_err ek_open_model(ek_opened *m, const ek_open_opts *o)
{
    *m = (ek_opened){0};
    ek_err err = ek_open_check(o);
    if (!err) err = open_model(m, o);
    if (err) ek_opened_close(m);
    return err;
}

/* --- the engine --- */

static bool drafts(const ek_opened *m, const ek_open_opts *o)
{
    return m->drafter && ek_open_engine_opts(o).draft == EK_DRAFT_AUTO;
}

static ek_err add_drafter(const ek_opened *m, const ek_open_opts *o)
{
    return drafts(m, o) ? ek_gpu_add_drafter(m->gpu ? m->gpu : ek_ranks_drafting(m->ranks), m->drafter) : EK_OK;
}

/* A device's step takes about as long for many requests as for few. More requests than on a CPU must not take more of
 * the device's memory than the CPU's number with their whole context, or than the figure by which they were chosen,
 * because others may use the device, too. */
static void choose_requests(ek_engine_opts *o, const ek_executor *on)
{
    const int ctx = o->ctx_tokens ? o->ctx_tokens : on->config->max_position_embeddings;
    const double room = o->kv_bytes > 0 && o->kv_bytes < on->room ? o->kv_bytes : on->room;
    const int few = ek_engine_defaults().max_requests;
    o->max_requests = ek_budget_max_requests(on->layout, room, ctx);
    if (o->kv_bytes > 0) return;
    const double whole = few * ek_budget_request_bytes(on->layout, ctx),
                 each = o->max_requests *
                        ek_budget_request_bytes(on->layout, ctx < EK_BUDGET_EACH ? ctx : EK_BUDGET_EACH),
                 bytes = whole > each ? whole : each;
    o->kv_bytes = bytes < on->room ? bytes : on->room;
}

/* Packs the parts that were not read at opening. */
static ek_err pack_all(const ek_opened *m)
{
    EK_TRY(ek_model_pack_all(m->model));
    return m->drafter ? ek_model_pack_all(ek_drafter_model(m->drafter)) : EK_OK;
}

/* Pages outside the engine. backend is valid if any is set. */
typedef struct pages {
    ek_store_backend backend;
    bool any;
} pages;

/* An error here is no reason to leave a device, so this comes before weights are copied to the device. */
static ek_err open_pages(pages *p, ek_opened *m, const ek_open_opts *o, bool on_device)
{
    *p = (pages){0};
    return ek_open_store(&p->backend, &p->any, m, o, on_device);
}

static void close_pages(pages *p)
{
    if (p->any) p->backend.close(p->backend.arg);
    p->any = false;
}

static ek_err open_on_cpu(ek_opened *m, const ek_open_opts *o)
{
    ek_engine_opts opts = ek_open_engine_opts(o);
    pages p;
    EK_TRY(open_pages(&p, m, o, false));
    const ek_err err = pack_all(m);
    if (err) {
        close_pages(&p);
        return err;
    }
    if (p.any) opts.cache_store = &p.backend;
    opts.drafter = m->drafter;
    opts.towers = m->towers;
    const ek_proposer proposer = m->remote ? ek_remote_proposer(m->remote) : (ek_proposer){0};
    if (m->remote) opts.proposer = &proposer;
    return ek_engine_open(&m->engine, m->model, &opts);
}

/* The default number of prompt rows per step on a device, at least; its memory is planned for them: a step with this
 * many needs little with any model. host: the CPU has layers, or experts of some. */
static int least_chunk(const ek_model *m, bool host)
{
    enum { LEAST = 512 };
    const double macs = 2.4e12;
    int n = LONG_CHUNK;
    if (host) return LEAST;
    while (n > LEAST && n * ek_model_macs_prompt_row(m) > macs) n /= 2;
    return n;
}

/* The default number of prompt rows of a step: the maximum, which is fastest, if such a step is a small part of the
 * device's memory beside the weights. */
static int choose_chunk(const ek_opened *m, const ek_engine_opts *o)
{
    const double part = 0.08; /* the rest is for keys and values, except for a small part */
    const ek_config *c = ek_model_config(m->model);
    const int max = c->max_position_embeddings;
    const bool host = m->ranks && ek_ranks_has_host(m->ranks);
    const int least = least_chunk(m->model, host), image = m->towers && c->mutual ? EK_IMAGE_TOKENS : 0;
    for (int n = LONG_CHUNK; n > least && !host; n /= 2) {
        ek_engine_opts with = *o;
        ek_executor_sizes z = {.max_ctx = o->ctx_tokens ? o->ctx_tokens : max};
        with.chunk = n;
        if (with.max_requests < EK_BUDGET_REQUESTS) with.max_requests = EK_BUDGET_REQUESTS;
        ek_executor_sizes_of(&z, &with, c, image);
        if (m->gpu ? ek_gpu_step_part(m->gpu, &z) <= part : ek_ranks_let_step(m->ranks, &z, part)) return n;
    }
    return least;
}

/* Opens the engine on m->gpu or m->ranks; takes the pages. */
static ek_err open_engine(ek_opened *m, const ek_open_opts *o, pages *p)
{
    ek_engine_opts opts = ek_open_engine_opts(o);
    if (p->any) opts.cache_store = &p->backend;
    opts.drafter = m->drafter;
    opts.towers = m->towers;
    if (m->towers) ek_gpu_encoder_reserve(ek_opened_gpu(m), m->towers);
    if (!o->chunk) opts.chunk = choose_chunk(m, &opts);
    ek_executor on = m->gpu ? ek_gpu_executor(m->gpu) : ek_ranks_executor(m->ranks);
    ek_err err = m->towers ? ek_gpu_encoder_open(&on, ek_opened_gpu(m), m->towers) : EK_OK;
    if (!o->max_requests) choose_requests(&opts, &on);
    const ek_proposer proposer = m->remote ? ek_remote_proposer(m->remote) : (ek_proposer){0};
    if (m->remote) opts.proposer = &proposer;
    if (err) {
        on.close(on.arg);
        return err;
    }
    p->any = false;
    return ek_engine_open_on(&m->engine, &on, &opts);
}

/* Releases the weights that were copied to the device. */
static void release_weights(const ek_opened *m)
{
    if (!m->ranks || !ek_ranks_has_host(m->ranks)) ek_model_release_weights(m->model);
    if (m->drafter) ek_model_release_weights(ek_drafter_model(m->drafter));
}

/* Copies the model to the device, and opens the engine there. */
static ek_err open_at(ek_opened *m, const ek_open_opts *o, const ek_device *d, pages *p)
{
    ek_err err = add_drafter(m, o);
    if (err && d->may_be_cpu && err != EK_EFORMAT && err != EK_EIO) {
        ek_log(EK_LOG_WARN, "drafts come from the text: %s", ek_err_text());
        err = EK_OK;
    }
    if (!err) err = open_engine(m, o, p);
    if (!err) release_weights(m);
    return err;
}

static ek_err wanted_device(ek_device *d, const ek_open_opts *o)
{
    EK_TRY(ek_device_parse(d, o->device ? o->device : "auto"));
    EK_TRY(ek_device_set_split(d, o->split));
    return ek_device_set_tune(d, o->tune);
}

/* Opens on the device. With auto, opens on the CPU if there is no device, or if it has no room for the model or the
 * engine. */
static ek_err open_on_device(ek_opened *m, const ek_open_opts *o)
{
    ek_err why;
    ek_device d;
    pages p = {0};
    EK_TRY(wanted_device(&d, o));
    const bool wanted = ek_device_is_wanted(&d);
    if (!d.gpu) return open_on_cpu(m, o);
    if (wanted) EK_TRY(open_pages(&p, m, o, true));
    /* with auto, parts without room are left out */
    const ek_drafter *drafter = drafts(m, o) && !d.may_be_cpu ? m->drafter : NULL;
    const bool alone = !ek_device_is_split(&d) && o->gpu_bytes == 0;
    const ek_fit_beside beside = ek_open_beside(m->model, m->towers, drafter, o, alone);
    ek_err err = ek_device_open(&m->gpu, &m->ranks, &d, o->gpu_bytes, &beside, m->model, &why);
    /* A machine without a GPU needs no message. A GPU that is not used does. */
    if (why) ek_log(why == EK_ENOTFOUND ? EK_LOG_DEBUG : EK_LOG_WARN, "device cpu: %s", ek_err_text());
    if (!err && ek_opened_gpu(m)) {
        err = open_at(m, o, &d, &p);
        if (err && ek_device_may_leave(&d, err)) {
            ek_log(EK_LOG_WARN, "device cpu: %s", ek_err_text());
            ek_gpu_close(m->gpu), ek_ranks_close(m->ranks);
            m->gpu = NULL, m->ranks = NULL, err = EK_OK;
        }
    }
    const bool on_device = ek_opened_gpu(m) != NULL;
    close_pages(&p); /* pages that the engine did not take */
    return err || on_device ? err : open_on_cpu(m, o);
}

static ek_err check_context(const ek_opened *m, const ek_open_opts *o)
{
    const int max = ek_model_config(m->model)->max_position_embeddings;
    if (o->ctx_tokens <= max) return EK_OK;
    return ek_fail(EK_ETOOLONG, "ctx_tokens: %d, the model's context is %d", o->ctx_tokens, max);
}

ek_err ek_open_engine(ek_opened *m, const ek_open_opts *o)
{
    ek_err err = ek_open_check(o);
    if (!err) err = check_context(m, o);
    if (!err) err = open_on_device(m, o);
    if (err) ek_opened_close(m);
    return err;
}

ek_err ek_open(ek_opened *m, const ek_open_opts *o)
{
    EK_TRY(ek_open_model(m, o));
    return ek_open_engine(m, o);
}

ek_gpu *ek_opened_gpu(const ek_opened *m)
{
    return m->ranks ? ek_ranks_first(m->ranks) : m->gpu;
}

const char *ek_opened_device(const ek_opened *m)
{
    return m->ranks ? ek_ranks_text(m->ranks) : m->gpu ? ek_gpu_text(m->gpu) : "cpu";
}

ek_err ek_open_digest(char out[EK_MODEL_DIGEST], const char *path, ek_pool *pool)
{
    ek_buf folder = {0};
    const double start = ek_now();
    ek_tuning_folder(&folder, getenv);
    const ek_err err = ek_model_digest_kept(out, path, ek_buf_text(&folder), pool);
    ek_buf_fini(&folder);
    if (!err && ek_now() - start > 1) ek_log(EK_LOG_INFO, "digest of the model in %.1f s", ek_now() - start);
    return err;
}

ek_err ek_opened_digest(const char **out, ek_opened *m)
{
    if (!m->digest) {
        char *digest = ek_alloc(EK_MODEL_DIGEST);
        const ek_err err = ek_open_digest(digest, m->path, m->pool);
        if (err) {
            free(digest);
            return err;
        }
        m->digest = digest;
    }
    *out = m->digest;
    return EK_OK;
}

void ek_opened_close(ek_opened *m)
{
    if (m->engine) ek_engine_close(m->engine);
    ek_remote_close(m->remote);
    ek_towers_close(m->towers);
    if (m->drafter) ek_drafter_close(m->drafter);
    ek_gpu_close(m->gpu);
    ek_ranks_close(m->ranks);
    if (m->model) ek_model_close(m->model);
    if (m->pool) ek_pool_close(m->pool);
    ek_chat_model_close(&m->chat);
    free(m->path), free(m->digest);
    *m = (ek_opened){0};
}

ek_fit_beside ek_open_beside(const ek_model *m, ek_towers *t, const ek_drafter *d, const ek_open_opts *o, bool alone)
{
    ek_engine_opts e = ek_open_engine_opts(o);
    const ek_config *c = ek_model_config(m);
    const int max = c->max_position_embeddings, few = max < EK_BUDGET_EACH ? max : EK_BUDGET_EACH,
              ctx = o->ctx_tokens ? o->ctx_tokens
                    : alone       ? few
                                  : max,
              image = t && c->mutual && ek_towers_get(t)->image ? EK_IMAGE_TOKENS : 0;
    ek_fit_beside out = {.step = {.max_ctx = ctx}, .drafter = d, .towers = t ? ek_gpu_encoder_bytes(t) : 0};
    ek_budget b = {.ctx = ctx};
    if (!o->chunk) e.chunk = least_chunk(m, false);
    if (!o->max_requests && !alone) e.max_requests = EK_BUDGET_REQUESTS;
    ek_executor_sizes_of(&out.step, &e, c, image);
    const int each = o->ctx_tokens ? ctx : alone ? EK_PAGE_TOKENS : few;
    out.kv_bytes = ek_budget_request_bytes(ek_model_kv_layout(m), each);
    if (e.kv_bytes > 0)
        out.kv_bytes = ek_budget_plan(&b, ek_model_kv_layout(m), e.max_requests, ctx, out.step.max_rows, e.kv_bytes,
                                      o->ctx_tokens == 0)
                           ? e.kv_bytes
                           : b.bytes;
    return out;
}
