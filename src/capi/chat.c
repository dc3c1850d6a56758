/* Chats: bodies in the form of the server's chat completions become turns, whose events are posted. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/encoding.h"
#include "base/hash/rng.h"
#include "base/log.h"
#include "capi/state.h"
#include "media/locked/helper.h"
#include "serve/api/dialect.h"
#include "text/json/json.h"

typedef struct chat chat;

typedef struct chat_choice {
    chat *chat;
    int index;
    ek_turn *turn;
    char *name;  /* of the current call; NULL: none */
    ek_buf args; /* of the current call, so far */
} chat_choice;

struct chat {
    capi_request base;
    chat *next; /* of the workers' list */
    char *body; /* NULL after it was read */
    size_t n_body;
    atomic_bool dropped; /* cancelled */

    pthread_mutex_t lock; /* guards the turns while the engine has them */
    ek_api_request req;
    ek_turn_prompt prompt;
    ek_api_reply reply;
    char id[EK_RESUME_ID];
    chat_choice *choices;
    const ek_turn_result **results;
    int n_opened, n_submitted, n_ended;
    bool running;   /* no more turns will be submitted */
    ek_err err;     /* the reason why some were not submitted */
    char why[1024]; /* the sentence of err */
    ek_ids tokens;  /* the tokens of a single reply so far */
};

/* --- events --- */

static void post_text(chat_choice *c, evenkeel_kind kind, const ek_reply_event *e)
{
    const evenkeel_event out = {.kind = kind, .choice = c->index, .token = -1, .text = e->text, .n = e->n};
    if (e->n > 0) capi_post(&c->chat->base, &out);
}

/* The id equals the one in the whole reply (serve/openai). */
static void post_call(chat_choice *c, int call)
{
    char request[EK_RESUME_ID + 16], id[32];
    snprintf(request, sizeof request, "%s.%d", c->chat->id, c->index);
    ek_call_id(id, "call_", request, call);
    const evenkeel_event out = {.kind = EVENKEEL_CALL,
                                .choice = c->index,
                                .token = -1,
                                .text = ek_buf_text(&c->args),
                                .n = c->args.len,
                                .name = c->name,
                                .call_id = id};
    capi_post(&c->chat->base, &out);
}

static void forget_call(chat_choice *c)
{
    free(c->name);
    c->name = NULL;
    ek_buf_clear(&c->args);
}

/* Posts the events of a turn's text and calls; arg: the choice. */
static void on_reply(void *arg, const ek_reply_event *e)
{
    chat_choice *c = arg;
    switch (e->kind) {
    case EK_REPLY_CONTENT: post_text(c, EVENKEEL_TEXT, e); break;
    case EK_REPLY_REASONING: post_text(c, EVENKEEL_REASONING, e); break;
    case EK_REPLY_CALL_START:
        forget_call(c);
        c->name = ek_strdup(e->text);
        break;
    case EK_REPLY_CALL_ARGS: ek_buf_add(&c->args, e->text, e->n); break;
    case EK_REPLY_CALL_END:
        if (c->name) post_call(c, e->call);
        forget_call(c);
        break;
    case EK_REPLY_CALL_CUT:
    case EK_REPLY_CALL_DROP: forget_call(c); break;
    case EK_REPLY_STOP: break;
    }
}

/* --- the end --- */

static evenkeel_finish finish_of(ek_turn_end end)
{
    switch (end) {
    case EK_END_STOP:
    case EK_END_STOP_STRING: return EVENKEEL_STOP;
    case EK_END_CALLS: return EVENKEEL_CALLS;
    case EK_END_MAX_TOKENS:
    case EK_END_CONTEXT:
    case EK_END_LOOP: return EVENKEEL_LENGTH;
    case EK_END_CANCELLED: return EVENKEEL_CANCELLED;
    case EK_END_NONE:
    case EK_END_UNCACHED: /* prepare refuses this in the body */
    case EK_END_ERROR: break;
    }
    return EVENKEEL_ERROR;
}

/* The end that the program has to know: errors come before cancelled choices, and these before choices that are too
 * long. */
static evenkeel_finish finish_of_all(const chat *c)
{
    evenkeel_finish all = EVENKEEL_STOP;
    for (int i = 0; i < c->n_submitted; i++) {
        const evenkeel_finish f = finish_of(c->results[i]->end);
        if (f > all) all = f;
    }
    return all;
}

static const ek_turn_result *failed(const chat *c)
{
    for (int i = 0; i < c->n_submitted; i++)
        if (c->results[i]->end == EK_END_ERROR) return c->results[i];
    return NULL;
}

/* The members: serve/resume/resume.h. */
static void put_state(ek_buf *out, const chat *c)
{
    const ek_turn_result *r = c->results[0];
    const size_t n = (size_t)r->n_tokens;
    uint64_t chain = ek_resume_seed(c->req.resume.begin, &c->req.turn.sampling);
    if (n == 0 || n > c->tokens.len) return;
    for (size_t i = 0; i < n; i++) chain = ek_resume_token(chain, c->tokens.data[i]);
    ek_resume_marks whole = {.id = c->id,
                             .created = c->reply.created,
                             .seed = c->req.turn.sampling.temperature >= EK_MIN_TEMPERATURE ? &c->req.turn.sampling.seed
                                                                                            : NULL,
                             .at = (int)n,
                             .fresh = {.data = c->tokens.data, .len = n}, /* borrowed */
                             .chain = chain};
    ek_resume_put(&whole, out, r, c->req.turn.digest ? &r->digest : NULL);
}

static void post_counted(chat *c, evenkeel_finish finish)
{
    char digest[20];
    ek_buf whole = {0}, state = {0};
    const ek_api_usage u = ek_api_usage_of(&c->reply);
    const uint64_t hash = c->req.turn.digest ? ek_api_reply_digest(&c->reply) : 0;
    snprintf(digest, sizeof digest, "%016" PRIx64, hash);
    if (c->req.turn.digest) c->reply.digest = digest;
    if (finish != EVENKEEL_CANCELLED) ek_dialect_openai_chat.end(&whole, &c->reply);
    if (finish == EVENKEEL_CANCELLED && c->reply.n == 1) put_state(&state, c);
    const evenkeel_event out = {.kind = EVENKEEL_END,
                                .token = -1,
                                .text = ek_buf_text(&whole),
                                .n = whole.len,
                                .digest = hash,
                                .finish = finish,
                                .state = ek_buf_text(&state),
                                .prompt_tokens = (int)u.prompt,
                                .cached_tokens = (int)u.cached,
                                .tokens = (int)u.completion,
                                .reasoning_tokens = (int)u.reasoning};
    capi_end(&c->base, &out);
    ek_buf_fini(&whole);
    ek_buf_fini(&state);
}

/* Posts the END of a chat whose turns have ended or never began. */
static void post_end(chat *c)
{
    const ek_turn_result *wrong = failed(c);
    evenkeel_event out = capi_error(c->err, c->why);
    if (c->err == EK_ECANCELLED) out = capi_error(EK_OK, ""), out.finish = EVENKEEL_CANCELLED;
    if (!c->err && wrong) out = capi_error(wrong->err, wrong->error ? wrong->error : "the request failed");
    if (c->err || wrong) capi_end(&c->base, &out);
    else post_counted(c, finish_of_all(c));
}

/* --- the body --- */

enum { MAX_BODY = 128 << 20, MAX_VALUES = 1000000 };

/* ek_api_limits.count */
static ek_err count(void *arg, const ek_json_size *size, size_t n, size_t n_new)
{
    (void)arg, (void)n, (void)n_new;
    if (size->values <= MAX_VALUES) return EK_OK;
    return ek_fail(EK_ETOOLARGE, "the body has %zu JSON values, at most %d are read", (size_t)size->values, MAX_VALUES);
}

static ek_err prepare(evenkeel *e, ek_api_request *r, ek_turn_prompt *prompt, const char *body, size_t n,
                      const atomic_bool *dropped)
{
    const ek_config *c = ek_model_config(e->m.model);
    ek_api_limits l = {.defaults = ek_sampling_greedy(),
                       .n_vocab = c->vocab_size,
                       .ctx_tokens = ek_engine_ctx(e->m.engine),
                       .media = &e->m.chat.media,
                       .identity = ek_model_numerics_id(e->m.model),
                       .now = ek_unix_time(),
                       .keep_forms = true,
                       .count = count};
    l.defaults.temperature = c->temperature;
    l.defaults.top_p = c->top_p;
    l.defaults.top_k = c->top_k;
    ek_json_size size;
    ek_json_scan(&size, body, n);
    EK_TRY(count(NULL, &size, n, 0));
    ek_helper_allow(EK_REQUEST_CPU_MS * 1000);
    ek_wanted_until(dropped);
    const ek_err err = ek_api_prepare(r, prompt, &ek_dialect_openai_chat, &e->m.chat, body, n, &l);
    ek_wanted_until(NULL);
    ek_helper_allow(0);
    if (!err && r->says_share)
        return ek_fail(EK_EINVAL, "cache_hit_threshold: a chat of the library is always computed");
    return err;
}

ek_status evenkeel_chat_tokens(evenkeel *e, const char *json, size_t n, int32_t *tokens, size_t room, size_t *n_tokens)
{
    ek_api_request r = {0};
    ek_turn_prompt prompt = {0};
    *n_tokens = 0;
    ek_err err = capi_check_process(e);
    if (!err && n > MAX_BODY) err = ek_fail(EK_ETOOLARGE, "a body of %zu bytes, at most %d are read", n, MAX_BODY);
    ek_log_sink *before = ek_log_here(e->log);
    if (!err) err = prepare(e, &r, &prompt, json, n, NULL);
    ek_log_here(before);
    if (!err && prompt.n_parts > 0)
        err = ek_fail(EK_EUNSUPPORTED, "a prompt with %d pictures and sounds is no list of tokens", prompt.n_parts);
    if (!err) {
        *n_tokens = prompt.ids.len;
        const size_t fit = prompt.ids.len < room ? prompt.ids.len : room;
        if (fit > 0) memcpy(tokens, prompt.ids.data, fit * sizeof *tokens);
    }
    ek_turn_prompt_fini(&prompt);
    ek_api_request_fini(&r);
    return capi_status(err);
}

/* --- turns --- */

static void hand_over(chat *c)
{
    capi_workers *w = &c->base.engine->workers;
    pthread_mutex_lock(&w->lock);
    c->next = NULL;
    *w->last = c;
    w->last = &c->next;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

/* On the engine's thread. */
static void on_news(void *arg, const ek_turn_news *news)
{
    chat_choice *choice = news->user;
    chat *c = choice->chat;
    (void)arg;
    pthread_mutex_lock(&c->lock);
    if (news->token >= 0 && c->reply.n == 1) ek_ids_add(&c->tokens, news->token);
    ek_turn_feed(choice->turn, news);
    if (!ek_turn_live(choice->turn)) c->n_ended++;
    const bool over = !ek_turn_live(choice->turn) && c->running && c->n_ended == c->n_submitted;
    pthread_mutex_unlock(&c->lock);
    if (over) hand_over(c);
}

static void cancel(capi_request *r)
{
    chat *c = (chat *)(void *)r;
    atomic_store(&c->dropped, true);
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < c->n_submitted; i++) ek_turn_cancel(c->choices[i].turn);
    pthread_mutex_unlock(&c->lock);
}

/* The id is unique also among processes. Ids of calls follow from it, and a conversation may have calls from several
 * processes. */
static void make_id(chat *c)
{
    uint8_t bytes[12] = {0};
    char *at = c->id + snprintf(c->id, sizeof c->id, "%s", ek_dialect_openai_chat.id_prefix);
    (void)ek_random(bytes, sizeof bytes);
    ek_hex(at, bytes, sizeof bytes);
}

static void set_up(chat *c)
{
    ek_api_request *r = &c->req;
    ek_resume *resume = &r->resume;
    const bool resumed = resume->tokens.len > 0;
    const bool draws = !r->has_seed && r->turn.sampling.temperature >= EK_MIN_TEMPERATURE;
    evenkeel *e = c->base.engine;
    if (!r->has_seed && !resumed) {
        uint64_t seed;
        (void)ek_random(&seed, sizeof seed);
        r->turn.sampling.seed = seed >> 11; /* 53 bits, which a double holds exactly */
    }
    if (resumed) snprintf(c->id, sizeof c->id, "%s", resume->id);
    else make_id(c);
    if (!resumed)
        resume->begin = ek_resume_begin(ek_dialect_openai_chat.path, ek_model_numerics_id(e->m.model), &c->prompt,
                                        &r->turn, ek_buf_text(&r->form_text));
    for (size_t i = 0; i + 1 < resume->tokens.len; i++) ek_ids_add(&c->tokens, resume->tokens.data[i]);
    c->choices = ek_alloc((size_t)r->n * sizeof *c->choices);
    c->results = ek_alloc((size_t)r->n * sizeof *c->results);
    c->reply = (ek_api_reply){.id = c->id,
                              .model = r->model && *r->model ? r->model : EK_BATCH_MODEL,
                              .fingerprint = ek_model_numerics_id(e->m.model),
                              .created = resumed ? resume->created : ek_unix_time(),
                              .n = r->n,
                              .n_prompts = 1,
                              .seed = draws ? &r->turn.sampling.seed : NULL,
                              .choices = c->results,
                              .own = r->own,
                              .tokenizer = e->m.chat.tokenizer,
                              .turn = &r->turn};
}

static ek_err open_turn(chat *c, int i)
{
    ek_turn_opts opts = c->req.turn;
    chat_choice *choice = &c->choices[i];
    *choice = (chat_choice){.chat = c, .index = i};
    opts.choice = i;
    const ek_turn_resumed resumed = ek_resume_turn(&c->req.resume);
    if (resumed.n > 0) opts.resumed = &resumed;
    EK_TRY(ek_turn_open(&choice->turn, &c->base.engine->m.chat, &c->prompt, &opts, on_reply, choice));
    c->results[i] = ek_turn_result_of(choice->turn);
    c->n_opened++;
    return EK_OK;
}

/* The caller holds the lock. */
static ek_err submit(chat *c)
{
    for (int i = 0; i < c->reply.n; i++) {
        if (atomic_load(&c->dropped)) return ek_fail(EK_ECANCELLED, "cancelled");
        EK_TRY(open_turn(c, i));
        EK_TRY(ek_turn_submit(c->choices[i].turn, c->base.engine->m.engine, &c->prompt, on_news, NULL, &c->choices[i]));
        c->n_submitted++;
    }
    return EK_OK;
}

static void keep_error(chat *c, ek_err err)
{
    c->err = err;
    snprintf(c->why, sizeof c->why, "%s", ek_err_text());
}

/* --- the part of a worker: the beginning and the end of a chat --- */

static void close_chat(chat *c)
{
    for (int i = 0; i < c->n_opened; i++) {
        ek_turn_close(c->choices[i].turn);
        free(c->choices[i].name);
        ek_buf_fini(&c->choices[i].args);
    }
    free(c->choices);
    free(c->results);
    ek_ids_fini(&c->tokens);
    ek_turn_prompt_fini(&c->prompt);
    ek_api_request_fini(&c->req);
    pthread_mutex_destroy(&c->lock);
    free(c->body);
    free(c);
}

static void end(chat *c)
{
    post_end(c);
    close_chat(c);
}

static void begin(chat *c)
{
    ek_err err = prepare(c->base.engine, &c->req, &c->prompt, c->body, c->n_body, &c->dropped);
    free(c->body);
    c->body = NULL;
    if (err) keep_error(c, err);
    if (!err) set_up(c);
    pthread_mutex_lock(&c->lock);
    if (!err) {
        err = submit(c);
        if (err) keep_error(c, err);
        for (int i = 0; err && i < c->n_submitted; i++) ek_turn_cancel(c->choices[i].turn);
    }
    ek_turn_prompt_fini(&c->prompt);
    c->running = true;
    const bool over = c->n_ended == c->n_submitted;
    pthread_mutex_unlock(&c->lock);
    if (over) end(c);
}

static void *run(void *arg)
{
    capi_workers *w = arg;
    pthread_mutex_lock(&w->lock);
    while (w->first || !w->closing) {
        chat *c = w->first;
        if (!c) {
            pthread_cond_wait(&w->wake, &w->lock);
            continue;
        }
        w->first = c->next;
        if (!w->first) w->last = &w->first;
        pthread_mutex_unlock(&w->lock);
        if (c->body) begin(c);
        else end(c);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

void capi_workers_init(capi_workers *w)
{
    *w = (capi_workers){.last = &w->first};
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
}

void capi_workers_close(capi_workers *w)
{
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->n_threads; i++) pthread_join(w->thread[i], NULL);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
}

/* A single worker is enough for every chat to end. */
static ek_err start(evenkeel *e)
{
    capi_workers *w = &e->workers;
    const int all = (int)(sizeof w->thread / sizeof *w->thread);
    sigset_t signals;
    ek_log_sink *before = ek_log_here(e->log);
    pthread_mutex_lock(&w->lock);
    capi_signals_off(&signals);
    while (w->n_threads < all && !ek_thread_start(&w->thread[w->n_threads], run, w)) w->n_threads++;
    capi_signals_back(&signals);
    const int n = w->n_threads;
    pthread_mutex_unlock(&w->lock);
    ek_log_here(before);
    return n > 0 ? EK_OK : ek_fail(EK_EIO, "the system has no thread for chats");
}

ek_status evenkeel_chat(evenkeel_queue *queue, const char *json, size_t n, void *user, evenkeel_id *id)
{
    if (n > MAX_BODY)
        return capi_status(ek_fail(EK_ETOOLARGE, "a body of %zu bytes, at most %d are read", n, MAX_BODY));
    ek_err err = capi_check_process(queue->engine);
    if (!err) err = start(queue->engine);
    if (err) return capi_status(err);
    chat *c = ek_alloc(sizeof *c);
    c->base = (capi_request){.engine = queue->engine, .queue = queue, .user = user, .cancel = cancel};
    c->body = malloc(n + 1);
    if (!c->body) {
        free(c);
        return capi_status(ek_fail(EK_ENOMEM, "no memory for a body of %zu bytes", n));
    }
    if (n > 0) memcpy(c->body, json, n);
    c->body[n] = '\0';
    c->n_body = n;
    pthread_mutex_init(&c->lock, NULL);
    capi_begin(&c->base);
    if (id) *id = c->base.id;
    hand_over(c);
    return EK_DONE;
}
