/* The engine's life, from its options to its end, and facts about it and its tokens. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/machine/cpu.h"
#include "capi/inside.h"
#include "capi/state.h"

enum { MAX_WAITING = 65536 };

static ek_err open_opts(ek_open_opts *out, const evenkeel_options *o)
{
    if (o->context < 0 || o->context == 1)
        return ek_fail(EK_EINVAL, "context is %d, it must be 2 or more, or 0", o->context);
    if (o->max_waiting < 0) return ek_fail(EK_EINVAL, "max_waiting is %d, it must be 0 or more", o->max_waiting);
    *out = (ek_open_opts){.model = o->model,
                          .weights = o->weights,
                          .kv = o->kv,
                          .kv_start = o->kv_start,
                          .activations = o->activations,
                          .mmproj = o->mmproj,
                          .media = !o->no_media,
                          .chat = true,
                          .device = o->device,
                          .split = o->split,
                          .gpu_bytes = o->gpu_bytes,
                          .threads = o->threads,
                          .isa = o->isa,
                          .chunk = o->chunk,
                          .max_gap = o->max_gap < 0 ? EK_OPEN_NONE : o->max_gap,
                          .draft = o->draft,
                          .drafter = o->drafter,
                          .ctx_tokens = o->context,
                          .max_requests = o->max_requests,
                          .max_queue = o->max_waiting ? o->max_waiting : MAX_WAITING,
                          .kv_bytes = o->kv_bytes,
                          .cache_bytes = o->cache_bytes < 0 ? EK_OPEN_NONE : o->cache_bytes,
                          .cache_host_bytes = o->cache_host_bytes,
                          .cache_dir = o->cache_dir,
                          .cache_disk_bytes = o->cache_disk_bytes,
                          .cache_shared = o->cache_shared,
                          .cache_shared_ca = o->cache_shared_ca,
                          .cache_shared_cert = o->cache_shared_cert};
    return EK_OK;
}

static ek_err open_engine(evenkeel *e, const evenkeel_options *o)
{
    ek_open_opts opts;
    EK_TRY(open_opts(&opts, o));
    EK_TRY(ek_cpu_float_check());
    EK_TRY(ek_open(&e->m, &opts));
    EK_TRY(ek_engine_start(e->m.engine));
    e->started = true;
    return EK_OK;
}

static evenkeel *make(void)
{
    evenkeel *e = ek_alloc(sizeof *e);
    e->process = getpid();
    pthread_mutex_init(&e->lock, NULL);
    pthread_mutex_init(&e->digesting, NULL);
    capi_workers_init(&e->workers);
    return e;
}

ek_err capi_open(evenkeel **out, capi_open_fn *open, void *arg)
{
    evenkeel *e = make();
    ek_err err = open(arg, &e->m); /* opening takes long, and Ctrl-C ends it */
    sigset_t signals;
    capi_signals_off(&signals); /* signals belong to the program's own thread, not to the engine's */
    if (!err) err = ek_engine_start(e->m.engine);
    e->started = !err;
    capi_signals_back(&signals);
    if (err) evenkeel_close(e);
    *out = err ? NULL : e;
    return err;
}

const ek_opened *capi_opened(const evenkeel *e)
{
    return &e->m;
}

ek_status evenkeel_open(evenkeel **out, const evenkeel_options *options)
{
    evenkeel_options o;
    *out = NULL;
    ek_err err = capi_take_struct(&o, sizeof o, options, options ? options->size : 0, "evenkeel_options");
    if (err) return capi_status(err);
    evenkeel *e = make();
    e->log = ek_log_sink_open(o.log, o.log_arg);
    sigset_t signals;
    capi_signals_off(&signals);
    ek_log_sink *before = ek_log_here(e->log);
    err = open_engine(e, &o);
    ek_log_here(before);
    capi_signals_back(&signals);
    if (err) evenkeel_close(e);
    else *out = e;
    return capi_status(err);
}

void evenkeel_close(evenkeel *e)
{
    if (!e || capi_check_process(e)) return;
    ek_log_sink *before = ek_log_here(e->log);
    while (e->queues) evenkeel_queue_close(e->queues);
    capi_workers_close(&e->workers);
    if (e->started) ek_engine_stop(e->m.engine, false);
    ek_opened_close(&e->m);
    ek_log_here(before);
    ek_log_sink_close(e->log);
    pthread_mutex_destroy(&e->digesting);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

int evenkeel_context(const evenkeel *e)
{
    return ek_engine_ctx(e->m.engine);
}

int evenkeel_vocab(const evenkeel *e)
{
    return ek_engine_vocab(e->m.engine);
}

const char *evenkeel_device(const evenkeel *e)
{
    return ek_opened_device(&e->m);
}

const char *evenkeel_numerics(const evenkeel *e)
{
    return ek_model_numerics_id(e->m.model);
}

ek_status evenkeel_digest(evenkeel *e, const char **out)
{
    *out = "";
    ek_err err = capi_check_process(e); /* another thread may have held the lock at the fork */
    if (err) return capi_status(err);
    pthread_mutex_lock(&e->digesting);
    ek_log_sink *before = ek_log_here(e->log);
    if (!*e->digest) err = ek_open_digest(e->digest, e->m.path, NULL); /* the pool must stay free for replies */
    ek_log_here(before);
    pthread_mutex_unlock(&e->digesting);
    *out = e->digest;
    return capi_status(err);
}

/* --- text to tokens and back --- */

size_t evenkeel_tokenize(const evenkeel *e, const char *text, size_t n, int special, int32_t *tokens, size_t room)
{
    ek_ids ids = {0};
    const ek_err err = ek_encode(e->m.chat.tokenizer, text, n, NULL, special ? EK_CONTROL_ALL : 0, &ids);
    const size_t found = err ? 0 : ids.len, fit = found < room ? found : room;
    if (fit > 0) memcpy(tokens, ids.data, fit * sizeof *tokens);
    ek_ids_fini(&ids);
    return found;
}

size_t evenkeel_detokenize(const evenkeel *e, const int32_t *tokens, size_t n, int special, char *text, size_t room)
{
    ek_buf out = {0};
    ek_decode(e->m.chat.tokenizer, tokens, n, !special, &out);
    const size_t found = out.len, fit = found < room ? found : room;
    if (fit > 0) memcpy(text, out.data, fit);
    ek_buf_fini(&out);
    return found;
}

const char *evenkeel_token(const evenkeel *e, int32_t token, size_t *n)
{
    return ek_tokenizer_bytes(e->m.chat.tokenizer, token, n);
}
