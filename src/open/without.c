/* A model without its weights: configuration, tokenizer and template, and an engine that can do everything except
 * steps. For a server that answers only from stored replies. */
#include <stdlib.h>

#include "base/alloc.h"
#include "engine/budget.h"
#include "engine/executor.h"
#include "model/source/source.h"
#include "open/open.h"

/* --- an executor without weights --- */

static ek_err open_nothing(void *arg, const ek_executor_sizes *sizes)
{
    (void)arg, (void)sizes;
    return EK_OK;
}

static ek_err refuse(void *arg, const ek_step *step)
{
    (void)arg, (void)step;
    return ek_fail(EK_EUNSUPPORTED, "nothing is computed here (--no-engine)");
}

static const float *no_logits(void *arg, int row)
{
    (void)arg, (void)row;
    return NULL;
}

static uint64_t no_digest(void *arg, int row)
{
    (void)arg, (void)row;
    return 0;
}

static void no_copy(void *arg, ek_layer_kind kind, int32_t from, int32_t to)
{
    (void)arg, (void)kind, (void)from, (void)to;
}

static void close_nothing(void *arg)
{
    (void)arg;
}

/* Numbers of pages cost no memory if nobody has the pages. */
static ek_executor executor_of(ek_model *m)
{
    return (ek_executor){.config = ek_model_config(m),
                         .layout = ek_model_kv_layout(m),
                         .model = m,
                         .room = 1e15,
                         .open = open_nothing,
                         .step = refuse,
                         .logits = no_logits,
                         .digest = no_digest,
                         .copy_page = no_copy,
                         .close = close_nothing};
}

/* --- the model --- */

static ek_err open_config(ek_model **out, const char *path, const ek_open_opts *o, ek_pool *pool)
{
    ek_source *source;
    ek_model_opts opts;
    EK_TRY(ek_open_model_opts(o, &opts));
    opts.pool = pool;
    opts.deferred = true; /* deferred, so that none of its weights is made */
    opts.packed_dir = NULL;
    EK_TRY(ek_source_open(&source, path));
    ek_config *c = ek_alloc(sizeof *c);
    ek_err err = ek_source_config(source, c);
    if (!err) err = ek_source_check_model(path, c);
    if (!err) err = ek_model_synthetic(out, c, 0, 1, &opts);
    free(c);
    ek_source_close(source);
    return err;
}

/* The sizes of pictures follow from the towers' shapes, which are in the files with the towers' weights. */
static void open_media(ek_opened *m, const ek_open_opts *o)
{
    ek_model_opts opts;
    if (ek_open_model_opts(o, &opts)) return;
    opts.pool = m->pool;
    ek_towers_opts towers = ek_open_towers_opts(o, &opts);
    towers.packed_dir = NULL;
    if (ek_towers_open(&m->towers, m->path, &towers)) return;
    ek_chat_media_of(&m->chat.media, m->towers, ek_model_config(m->model), m->chat.tokenizer);
}

static ek_err open_parts(ek_opened *m, const ek_open_opts *o)
{
    ek_buf path = {0};
    EK_TRY(ek_open_check(o));
    ek_err err = ek_open_path(&path, o);
    m->path = ek_strdup(ek_buf_text(&path));
    ek_buf_fini(&path);
    if (err) return err;
    EK_TRY(ek_chat_model_open(&m->chat, m->path));
    EK_TRY(ek_pool_open_nodes(&m->pool, 1, ""));
    EK_TRY(open_config(&m->model, m->path, o, m->pool));
    open_media(m, o);
    ek_engine_opts e = ek_open_engine_opts(o);
    const int ctx = o->ctx_tokens ? o->ctx_tokens : ek_model_config(m->model)->max_position_embeddings;
    e.ctx_tokens = ctx;
    e.draft = EK_DRAFT_OFF;
    e.cache_bytes = 0;
    e.max_requests = 1;
    e.kv_bytes = 4 * ek_budget_request_bytes(ek_model_kv_layout(m->model), ctx);
    const ek_executor x = executor_of(m->model);
    return ek_engine_open_on(&m->engine, &x, &e);
}

ek_err ek_open_without_weights(ek_opened *m, const ek_open_opts *o)
{
    *m = (ek_opened){0};
    const ek_err err = open_parts(m, o);
    if (err) ek_opened_close(m);
    return err;
}
