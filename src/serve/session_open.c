/* A session's beginning: from the body to the submitted turns. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/hash/rng.h"
#include "serve/api/context.h"
#include "serve/background.h"
#include "serve/receipts.h"
#include "serve/routes.h"
#include "serve/session_state.h"

static void on_more(evutil_socket_t fd, short what, void *arg);

/* The fraction of a prompt in its whole pages, as ek_request_opts.min_cached. The last token is always computed. */
static float all_pages(const ek_turn_prompt *prompt)
{
    const int rest = (int)prompt->ids.len - 1, whole = rest / EK_PAGE_TOKENS * EK_PAGE_TOKENS;
    return whole > 0 ? ((float)whole - 0.5f) / (float)rest : 0;
}

/* Of several choices all must be stored for a hit; if some are, it is a part. */
static ek_err note_outcome(ek_session *s, int i)
{
    const ek_reply_outcome o = ek_turn_outcome(s->choices[i].turn);
    if (i == 0) s->outcome = o;
    else if (o != s->outcome) s->outcome = EK_REPLY_PART;
    s->reply.stored = s->outcome == EK_REPLY_HIT;
    if (!(s->wishes.only_cached || s->server->no_engine) || o == EK_REPLY_HIT) return EK_OK;
    s->missing = true;
    return ek_stored_missing(&s->stored, i);
}

static ek_err open_turn(ek_session *s, int i)
{
    ek_turn_opts opts = s->req.turn;
    opts.record = ek_journal_mode(s->server->journal);
    opts.digest |= opts.record != EK_RECORD_NONE;
    ek_session_choice *c = &s->choices[i];
    *c = (ek_session_choice){.session = s, .index = i};
    opts.past_calls = &s->req.past_calls;
    opts.stop_loops = s->server->stop_loops;
    opts.choice = i % (s->req.n / (1 + s->req.n_more));
    if (ek_api_summarizes(&s->req)) opts.receipt = opts.logprobs = false; /* nobody sees the rows of a summary */
    if (s->wishes.if_available && !s->req.says_share)
        opts.min_cached = all_pages(ek_api_prompt_of(&s->req, &s->prompt, i));
    const ek_turn_resumed resumed = ek_resume_turn(&s->req.resume);
    if (resumed.n > 0) opts.resumed = &resumed;
    opts.stored = s->stored.n > 0 ? &s->stored.of[i] : NULL;
    if (i > 0 && opts.form) opts.form = NULL, opts.same_form = true; /* it can be large; the journal needs it once */
    EK_TRY(ek_turn_open(&c->turn, s->server->chat, ek_api_prompt_of(&s->req, &s->prompt, i), &opts, ek_session_on_reply,
                        c));
    s->results[i] = ek_turn_result_of(c->turn);
    s->n_opened++;
    c->replayed = resumed.n == 0; /* a resumed stream has sent these events already */
    return note_outcome(s, i);
}

static ek_err submit_turn(ek_session *s, int i)
{
    ek_session_choice *c = &s->choices[i];
    s->n_submitted++;
    const ek_err err = ek_turn_submit(c->turn, s->server->engine, ek_api_prompt_of(&s->req, &s->prompt, i),
                                      ek_mailbox_post, s->server->mailbox, c);
    if (ek_turn_outcome(c->turn) == EK_REPLY_PART) ek_session_sum_outcomes(s); /* if another request computes it */
    return err;
}

/* Opens all turns, then submits them, for at most a millisecond: each reads and copies the prompt, which for many
 * choices and a long prompt would stop the event loop. The rest follows in its next turns. */
static ek_err begin_turns(ek_session *s)
{
    static const double MAX_SECONDS = 1e-3;
    const double begin = ek_now();
    while (s->n_submitted < s->req.n) {
        if (s->n_opened < s->req.n) EK_TRY(open_turn(s, s->n_opened));
        else EK_TRY(submit_turn(s, s->n_submitted));
        if (s->n_submitted == s->req.n || ek_now() - begin < MAX_SECONDS) continue;
        if (!s->more) s->more = event_new(s->server->base, -1, 0, on_more, s);
        ek_loop_again(s->more);
        return EK_OK;
    }
    if (s->outcome == EK_REPLY_HIT && ek_replies_wants_audit(s->server->replies)) {
        ek_audit_reply(s->server, s->choices[0].turn, &s->req.turn, &s->prompt);
    }
    if (!s->req.turn.receipt) ek_turn_prompt_fini(&s->prompt);
    ek_stored_fini(&s->stored);
    return EK_OK;
}

static void on_more(evutil_socket_t fd, short what, void *arg)
{
    ek_session *s = arg;
    (void)fd, (void)what;
    if (!s->x) return; /* the submitted turns end the session */
    if (s->writing) {
        struct timeval soon = {0, 10000};
        event_add(s->more, &soon);
        return;
    }
    int i = s->n_submitted;
    ek_err err = begin_turns(s);
    if (!err) {
        ek_session_go_on(s); /* continues with the stored part */
        return;
    }
    char text[512];
    snprintf(text, sizeof text, "%s", ek_err_text());
    ek_session_failed(s, i, err, text, EK_OUTCOME_FAILED);
    ek_session_go_on(s);
}

/* With one key the salt has no name, because all prompts are alike to a router. With several keys they share nothing,
 * and get different names. */
static void name_salt(ek_session *s)
{
    ek_api_request *req = &s->req;
    ek_buf name = {0};
    if (!s->salt || ek_keys_count(s->server->keys) < 2) return;
    ek_buf_fmt(&name, "key:%016llx", (unsigned long long)ek_mix64(s->salt));
    if (req->turn.cache_salt_text) ek_buf_char(&name, '/');
    if (req->turn.cache_salt_text) ek_buf_add(&name, req->salt_text.data, req->salt_text.len);
    ek_buf_fini(&req->salt_text);
    req->salt_text = name;
    req->turn.cache_salt_text = ek_buf_text(&req->salt_text);
    req->turn.cache_salt_len = req->salt_text.len;
}

/* Whether another replica writes the reply. The body's wish comes before the header's, and that before this replica's
 * role. A body that asks this replica for the reply does not change the role. */
static bool asks_prompt_alone(const ek_session *s)
{
    const ek_wish wish = s->wishes.prefill;
    if (*s->wishes.batch) return false;
    if (s->req.turn.publish || (wish == EK_WISH_YES && !s->req.says_work)) return true;
    return s->server->prefill && wish != EK_WISH_NO;
}

/* If the client gives no seed, its nonce gives the seed of a sampled reply, so that the server cannot choose one. */
static void choose_seed(ek_session *s, const ek_prepared *p, bool draws)
{
    const ek_api_request *req = &s->req;
    s->receipt_key = req->turn.receipt ? ek_receipts_key(s->server) : NULL;
    s->seed_from = req->has_seed || s->wishes.has_seed || req->resume.tokens.len > 0 ? EK_SEED_CLIENT : EK_SEED_SERVER;
    if (s->seed_from == EK_SEED_CLIENT || !draws || !*req->nonce || req->n_more > 0) return;
    s->seed_from = EK_SEED_NONCE;
    s->req.turn.sampling.seed = ek_nonce_seed(req->nonce, p->prompt.ids.data, p->prompt.ids.len);
}

/* Fills in everything that follows from a body that was read. */
static void set_up(ek_session *s, ek_prepared *p)
{
    ek_server *server = s->server;
    uint64_t number = ek_exchange_number(s->x);
    ek_api_request *req = &s->req;
    bool draws = !p->req.has_seed && p->req.turn.sampling.temperature >= 1e-5f; /* a greedy reply needs no seed */
    *req = p->req;
    req->turn.tools = req->tools;
    req->turn.client = s->client;
    req->turn.cache_owner = s->salt;
    req->turn.publish = server->shares && asks_prompt_alone(s);
    if (req->turn.publish && req->turn.max_tokens > 1) req->turn.max_tokens = 1; /* another replica writes the reply */
    name_salt(s);
    if (s->salt) req->turn.cache_salt = ek_hash64(s->salt, &req->turn.cache_salt, sizeof req->turn.cache_salt);
    s->held = p->held;
    s->stored = p->stored;
    p->stored = (ek_stored){0};
    if (req->turn.publish) ek_stored_fini(&s->stored); /* the pages are wanted, so nothing is taken from the store */
    s->choices = ek_alloc((size_t)req->n * sizeof *s->choices);
    s->results = ek_alloc((size_t)req->n * sizeof *s->results);
    const bool resumed = req->resume.tokens.len > 0; /* a resumed stream keeps its seed */
    if (!req->has_seed && s->wishes.has_seed) req->turn.sampling.seed = s->wishes.seed;
    else if (!req->has_seed && !resumed)
        req->turn.sampling.seed = ek_mix64(server->nonce + number) >> 11; /* exact in a double */
    choose_seed(s, p, draws);
    if (resumed) {
        server->metrics.resumed++;
        ek_log(EK_LOG_INFO, "event=resumed id=%s stream=%s tokens=%zu", s->id, req->resume.id, req->resume.tokens.len);
        snprintf(s->id, sizeof s->id, "%s", req->resume.id);
    }
    s->reply = (ek_api_reply){.id = s->id,
                              .model = req->model && *req->model ? req->model
                                       : *s->wishes.batch        ? EK_BATCH_MODEL
                                                                 : server->model_name,
                              .fingerprint = server->fingerprint,
                              .created = resumed            ? req->resume.created
                                         : *s->wishes.batch ? 0
                                         : s->reply.created ? s->reply.created /* the time of the first reading */
                                                            : ek_unix_time(),
                              .stream = req->stream,
                              .n = req->n,
                              .n_open = req->n,
                              .n_prompts = 1 + req->n_more,
                              .seed = draws ? &s->req.turn.sampling.seed : NULL,
                              .choices = s->results,
                              .says_stored = server->replies && !*s->wishes.batch,
                              .own = req->own,
                              .tokenizer = server->chat->tokenizer,
                              .turn = &s->req.turn};
    s->marks = (ek_resume_marks){
        .on = req->resume.on && req->stream, .id = s->id, .created = s->reply.created, .seed = s->reply.seed};
    if (!s->marks.on) return;
    ek_resume_marks_init(&s->marks, &req->resume, &req->turn.sampling);
    s->reply.marks = &s->marks;
}

/* Sends the whole reply of a path that generates nothing. */
static void answer(ek_session *s, ek_prepared *p)
{
    ek_exchange *x = s->x;
    size_t counted = p->req.answer.cap < p->held ? p->req.answer.cap : p->held;
    ek_outgoing body = ek_outgoing_own(s->server, &p->req.answer, counted);
    p->held -= counted;
    s->x = NULL;
    ek_exchange_on_gone(x, NULL, NULL);
    const char *type = p->req.stream ? s->dialect->stream_type : NULL;
    ek_exchange_reply_from(x, 200, type ? type : "application/json", &body);
    s->server->metrics.outcome[EK_OUTCOME_DONE]++;
    ek_log(EK_LOG_INFO, "event=request id=%s%s outcome=done total_s=%.3f", s->id, s->traced, ek_now() - s->opened);
}

static void on_prepared(void *user, ek_prepared *p)
{
    ek_session *s = user;
    int room = ek_engine_room(s->server->engine);
    s->preparing = NULL;
    const bool again = s->n_opened > 0; /* behind a summary */
    s->prepared = ek_now();
    ek_histogram_add(&s->server->metrics.prepare, EK_HISTOGRAM_SECONDS, s->prepared - s->opened);
    ek_exemplars_add(&s->server->metrics.traces.prepare, EK_HISTOGRAM_SECONDS, s->prepared - s->opened,
                     s->wishes.trace);
    ek_err err = p->err;
    const char *param = p->req.param, *code = p->req.code;
    bool answered = p->req.answered;
    if (err) {
        ek_fail(err, "%s", p->text);
    } else if (!answered && p->req.n > room) {
        err = ek_fail(*s->wishes.batch ? EK_EBUSY : EK_EINVAL,
                      "n: %d replies are asked for, %d requests may run or wait here", p->req.n, room);
        param = "n";
    } else if (p->req.background && !again) {
        err = ek_background_room(s->server);
    }
    if (err) {
        ek_prepare_release(s->server, &p->req, p->held);
    } else if (answered) {
        answer(s, p);
        ek_prepare_release(s->server, &p->req, p->held);
    } else {
        if (again) ek_session_leave_request(s);
        set_up(s, p);
        s->body = p->body;
        p->body = (ek_body){0};
        const char *ignored = ek_grammar_ignored(s->req.grammar);
        if (*ignored) ek_log(EK_LOG_INFO, "event=ignored_keywords id=%s keywords=\"%.4000s\"", s->id, ignored);
        s->prompt = p->prompt;
        p->prompt = (ek_turn_prompt){0};
        err = s->receipt_key ? ek_receipts_ready(s->server) : EK_OK;
        if (!err) err = begin_turns(s);
        const char *named = s->req.resume.tokens.len > 0 ? "evenkeel.resume" : s->dialect->prompt_param;
        if (err) param = err == EK_ETOOLONG || err == EK_EINVAL ? named : NULL;
    }
    ek_turn_prompt_fini(&p->prompt);
    ek_stored_fini(&p->stored);
    ek_http_body_freed(s->server->http, p->body.len);
    ek_body_fini(&p->body);
    if (!err && !answered && s->req.background && !again) ek_background_begin(s);
    if (err) ek_session_refuse(s, err, NULL, param, code);
    else if (answered) ek_session_free(s);
    else if (s->outcome >= EK_REPLY_PART) ek_session_go_on(s);
}

ek_api_limits ek_session_limits(const ek_server *server)
{
    const ek_config *config = server->config;
    ek_api_limits l = {.defaults = ek_sampling_greedy(),
                       .n_vocab = config->vocab_size,
                       .ctx_tokens = ek_engine_ctx(server->engine),
                       .responses = server->responses,
                       .media = &server->chat->media,
                       .identity = server->fingerprint,
                       .card = &server->card,
                       .now = ek_unix_time(),
                       .receipts = server->receipts != NULL,
                       .keep_forms = server->replies || server->receipts ||
                                     ek_journal_mode(server->journal) == EK_RECORD_TOKENS,
                       .whole_calls = server->whole_calls};
    l.defaults.temperature = config->temperature;
    l.defaults.top_p = config->top_p;
    l.defaults.top_k = config->top_k;
    return l;
}

static void link_session(ek_session *s)
{
    ek_server *server = s->server;
    s->next = server->sessions;
    if (s->next) s->next->link = &s->next;
    s->link = &server->sessions;
    server->sessions = s;
}

void ek_session_read_again(ek_session *s)
{
    const ek_turn_result *t = s->results[0];
    ek_api_summary *summary = ek_alloc(sizeof *summary);
    const char *text;
    size_t n;
    *summary = (ek_api_summary){.n_prompt = t->n_prompt,
                                .n_cached = t->n_cached,
                                .n_tokens = t->n_tokens,
                                .queued = s->req.background && s->req.stream};
    if (ek_compaction_of(t, &text, &n)) ek_buf_add(&summary->text, text, n);
    ek_log(EK_LOG_INFO, "event=summary id=%s prompt_tokens=%d cached_tokens=%d reply_tokens=%d whole=%d", s->id,
           t->n_prompt, t->n_cached, t->n_tokens, summary->text.len > 0);
    ek_exchange_return_body(s->x, &s->body);
    ek_err err = ek_prepare_start(&s->preparing, s->server, s->x, s->dialect, on_prepared, s, s->salt, s->client,
                                  &s->wishes, summary);
    if (!err) return;
    char why[512];
    snprintf(why, sizeof why, "%s", ek_err_text());
    ek_session_failed(s, 0, err, why, EK_OUTCOME_REFUSED); /* the sender of the news frees s */
}

void ek_session_open(ek_server *server, ek_exchange *x, const ek_dialect *d, uint64_t salt)
{
    ek_session *s = ek_alloc(sizeof *s);
    uint64_t number = ek_exchange_number(x), secret;
    /* A stored response can be read by anyone who knows its id, so ids must not follow from each other. */
    (void)ek_random(&secret, sizeof secret);
    s->server = server;
    s->x = x;
    s->dialect = d;
    s->salt = salt;
    s->client = salt ? salt : ek_exchange_client(x);
    s->opened = s->last_sent = ek_now();
    s->read = -1;
    snprintf(s->id, sizeof s->id, "%s%016llx%08llx", d->id_prefix, (unsigned long long)secret,
             (unsigned long long)(number & 0xffffffff));
    link_session(s);
    ek_exchange_on_gone(x, ek_session_on_gone, s);
    ek_exchange_on_drained(x, ek_session_on_drained);
    ek_err err = ek_wishes_read(&s->wishes, x);
    if (*s->wishes.trace) snprintf(s->traced, sizeof s->traced, " trace=%s", s->wishes.trace);
    if (*s->wishes.batch) {
        snprintf(s->id, sizeof s->id, "%s%s", d->id_prefix, s->wishes.batch);
        ek_fingerprint_header(server, x);
    }
    if (!err) err = ek_prepare_start(&s->preparing, server, x, d, on_prepared, s, salt, s->client, &s->wishes, NULL);
    if (err) ek_session_refuse(s, err, NULL, NULL, NULL);
}
