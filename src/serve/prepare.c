#include "serve/session.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/linux.h"
#include "serve/api/context.h"
#include "media/locked/helper.h"
#include "text/json/json.h"

enum {
    LARGE_BODY = 256 << 10,    /* bytes */
    BASE_COST = 50,            /* estimated microseconds of any preparation, */
    PER_COST = 64,             /* and bytes of a body per further microsecond */
    LARGE_REQUEST = 256 << 10, /* bytes of a request beyond which freeing it takes too long for the event loop */
    PER_TEXT_BYTE = 34,        /* text in conversation, template, rendered twice, normalised; the encoder */
    PER_CONTAINER = 128,       /* messages, blocks and calls, in the conversation, in the template's values and while
                                  results are paired with calls */
    PER_CHOICE = 64 << 10
};

struct ek_preparation {
    ek_job job;
    ek_server *server;
    const ek_dialect *dialect;
    ek_prepared_fn *ready;
    void *user;
    atomic_bool dropped;
    ek_body body;
    size_t n_body; /* bytes of the body, counted until the event loop learns that the job has ended */
    ek_api_limits limits;
    ek_wishes wishes;
    char *method, *path; /* limits' own */
    ek_buf target;
    ek_api_summary *summary;        /* limits.summary */
    ek_json_size size;              /* of the body */
    ek_body_plan plan;              /* limits.plan */
    bool again;                     /* the body has to be read again, with the parts of the plan */
    bool read, moves;               /* the body was read, and its prompt belongs in the queue of large ones */
    bool fetching;                  /* the job fetches the URLs of the body */
    bool wants_aside, aside;        /* should read, or reads, the body on a thread that may wait for another program */
    ek_fetches fetches;             /* by URLs */
    size_t n_text, n_values, taken; /* counted so far: bytes of text, JSON values, bytes of the request memory */
    uint64_t decoded;               /* microseconds that its pictures and sounds have taken */
    ek_prepared result;
};

/* Takes bytes of the request memory. In a batch a lack of memory is no fault of the line, because another machine may
 * have enough. */
static ek_err take_memory(ek_preparation *p, size_t bytes)
{
    const ek_err err = ek_request_memory_take(&p->server->memory, p->taken, bytes);
    return err == EK_ETOOLARGE && p->limits.batch ? ek_fail_in(EK_ENOMEM, "a batch's line") : err;
}

/* Maximum bytes for making a prompt of this much text. Text beyond the context is not processed. */
static size_t prompt_cost(const ek_preparation *p, size_t text)
{
    size_t max = (size_t)p->limits.ctx_tokens * p->server->chat->max_token_bytes;
    if (!p->dialect->end) max = text; /* this dialect counts tokens, even of a text that does not fit */
    return 3 * text + (text < max ? text : max) * PER_TEXT_BYTE;
}

static ek_err check_values(const ek_preparation *p, const ek_json_size *size)
{
    size_t n = p->n_values + size->values, max = (size_t)p->server->limits.max_json_values;
    if (n <= max) return EK_OK;
    return ek_fail(EK_ETOOLARGE, "the request has %zu JSON values and keys, at most %zu are allowed", n, max);
}

static ek_err check_lists(const ek_preparation *p, const ek_json_size *size)
{
    int max = p->server->limits.max_messages;
    if (size->max_list <= (size_t)max) return EK_OK;
    return ek_fail(EK_ETOOLARGE, "a list of the body has %zu objects, at most %d messages are allowed", size->max_list,
                   max);
}

/* Bytes of text among n_new bytes of JSON. Strings that look like files are left out; they are counted later if they
 * turn out to be text (settle_text). */
static size_t text_among(const ek_preparation *p, const ek_json_size *size, size_t n_new)
{
    bool files = p->limits.media && (p->limits.media->image || p->limits.media->audio);
    return files && size->coded < n_new ? n_new - size->coded : n_new;
}

/* Counts the memory for reading n bytes of JSON and making a prompt of them; n_new of them are text that was not
 * counted before. */
static ek_err take(ek_preparation *p, const ek_json_size *size, size_t n, size_t n_new)
{
    if (n_new > 0) n_new = text_among(p, size, n_new) + size->growth;
    size_t cost = ek_json_cost(size, n) + size->containers * PER_CONTAINER;
    cost += prompt_cost(p, p->n_text + n_new) - prompt_cost(p, p->n_text);
    EK_TRY(take_memory(p, cost));
    p->taken += cost;
    p->n_text += n_new;
    p->n_values += size->values;
    return EK_OK;
}

/* ek_api_limits.count */
static ek_err count(void *arg, const ek_json_size *size, size_t n, size_t n_new)
{
    ek_preparation *p = arg;
    if (n_new > p->plan.max_beside) ek_plan_weigh(&p->plan, n_new);
    EK_TRY(check_values(p, size));
    return take(p, size, n, n_new);
}

/* ek_api_limits.take */
static ek_err take_more(void *arg, size_t bytes)
{
    ek_preparation *p = arg;
    EK_TRY(take_memory(p, bytes));
    p->taken += bytes;
    return EK_OK;
}

/* ek_api_limits.fetch: the first reading gathers the URLs. */
static ek_err fetch(void *arg, const char *url, size_t n, ek_buf *out, bool *here)
{
    ek_preparation *p = arg;
    ek_fetched *f = ek_fetches_find(&p->fetches, url, n);
    if (!f) ek_fetches_add(&p->fetches, url, n);
    *here = f && f < p->fetches.at + p->fetches.n_done;
    p->plan.no_fetched |= !*here;
    if (!*here) return EK_OK;
    if (f->err) return ek_fail(f->err, "%s", f->why);
    EK_TRY(take_more(p, f->bytes.len));
    ek_buf_add(out, ek_buf_text(&f->bytes), f->bytes.len);
    return EK_OK;
}

/* ek_api_limits.text */
static ek_err settle_text(void *arg, size_t bytes)
{
    ek_preparation *p = arg;
    if (bytes <= p->n_text) return EK_OK;
    EK_TRY(take_more(p, prompt_cost(p, bytes) - prompt_cost(p, p->n_text)));
    p->n_text = bytes;
    return EK_OK;
}

/* ek_api_limits.give */
static void give(void *arg, size_t bytes)
{
    ek_preparation *p = arg;
    if (bytes > p->taken) bytes = p->taken;
    ek_request_memory_give(&p->server->memory, bytes);
    p->taken -= bytes;
}

/* Bytes that the request holds until its reply is sent: tools, the prompt's tokens here and in the engine, their
 * log-probabilities, which the reply repeats as text, and the dialect's own data. */
static size_t kept(const ek_prepared *r, const ek_json_size *size, size_t n_body)
{
    size_t n = r->req.n > 0 ? (size_t)r->req.n : 1;
    size_t tools = r->req.tools ? ek_json_cost(size, n_body) : 0;
    size_t ids = r->prompt.ids.len;
    for (int i = 0; i < r->req.n_more; i++) ids = ids < r->req.more[i].ids.len ? r->req.more[i].ids.len : ids;
    size_t form = r->req.form_text.len * 2; /* once more in the first reply's record */
    size_t resumed = r->req.resume.tokens.len * (r->req.turn.logprobs ? sizeof(ek_turn_logprobs) : 0);
    resumed += r->req.resume.tokens.len * 4 * sizeof(int32_t);
    size_t logprobs = r->req.turn.prompt_logprobs
                          ? sizeof(ek_logprobs) + EK_PER_LOGPROB * (size_t)(r->req.turn.n_top + 2)
                          : 0;
    return tools + ek_turn_prompt_media(&r->prompt) + r->req.answer.cap + r->req.own_bytes + form + resumed +
           n * ids * logprobs + ek_grammar_bytes(r->req.grammar) + (n + 1) * (ids * sizeof(int32_t) + PER_CHOICE);
}

/* After the preparation: replaces its counted bytes by those that the request holds. */
static ek_err keep(ek_preparation *p, size_t held)
{
    ek_request_memory *memory = &p->server->memory;
    if (held > p->taken) EK_TRY(ek_request_memory_take(memory, p->taken, held - p->taken));
    else ek_request_memory_give(memory, p->taken - held);
    p->result.held = held;
    p->taken = 0;
    return EK_OK;
}

/* Reads the body. A few bytes may continue a long conversation, which is a large job. Errors of a reading that lacks
 * that conversation are ignored; any other error is the client's, whatever else has to be fetched. */
static ek_err read_body(ek_preparation *p)
{
    const bool json = !p->dialect->binary;
    const size_t n = p->n_body < LARGE_BODY ? p->n_body : LARGE_BODY;
    p->plan = (ek_body_plan){.max_beside = p->job.large ? SIZE_MAX : LARGE_BODY - n, .may_wait = p->aside};
    if (json) ek_json_scan(&p->size, ek_body_text(&p->body), p->n_body);
    EK_TRY(check_values(p, &p->size));
    EK_TRY(check_lists(p, &p->size));
    EK_TRY(take(p, &p->size, json ? p->n_body : 0, json ? p->n_body : 0));
    ek_err err = ek_api_read(&p->result.req, p->dialect, ek_body_text(&p->body), p->n_body, &p->limits);
    p->wants_aside |= p->plan.no_program;
    p->again = p->plan.too_large || (!err && ek_plan_lacks(&p->plan));
    p->read = !p->again;
    return p->again ? EK_OK : err;
}

static ek_err prepare(ek_preparation *p)
{
    ek_prepared *r = &p->result;
    if (!p->read) EK_TRY(read_body(p));
    p->moves = !p->again && p->plan.n_beside > 0 && !p->job.large;
    if (p->again || p->moves) return EK_OK;
    EK_TRY(ek_api_make(&r->req, &r->prompt, p->dialect, p->server->chat, p->n_body, &p->limits));
    EK_TRY(keep(p, kept(r, &p->size, p->n_body)));
    ek_stored_find(&r->stored, p->server, &r->req, &r->prompt, &p->wishes, p->limits.owner);
    return EK_OK;
}

/* Trees are freed here, on a worker, not on the event loop. */
static void discard(ek_preparation *p)
{
    ek_prepared *r = &p->result;
    const char *param = r->req.param, *code = r->req.code;
    ek_api_request_fini(&r->req);
    ek_turn_prompt_fini(&r->prompt);
    ek_stored_fini(&r->stored);
    r->req.param = param;
    r->req.code = code;
    ek_request_memory_give(&p->server->memory, p->taken + r->held);
    r->held = p->taken = p->n_text = p->n_values = 0;
}

static void run(ek_job *j)
{
    ek_preparation *p = (ek_preparation *)j;
    ek_prepared *r = &p->result;
    if (atomic_load(&p->dropped)) return;
    if (p->fetching) {
        ek_fetches_run(&p->fetches, p->server->fetch_from, &p->dropped);
        return;
    }
    size_t spent = ek_reserve_times_spent();
    const uint64_t before = ek_helper_spent(), all = EK_REQUEST_CPU_MS * 1000;
    ek_helper_allow(p->decoded < all ? all - p->decoded : 1);
    ek_wanted_until(&p->dropped);
    r->err = prepare(p);
    ek_wanted_until(NULL);
    p->job.elsewhere = ek_helper_spent() - before;
    p->decoded += p->job.elsewhere;
    /* The preparation used the reserve, which running requests may need, so its memory is given back. */
    if (!r->err && ek_reserve_times_spent() != spent)
        r->err = ek_fail(EK_ENOMEM, "the system is out of memory, try again later");
    if (r->err) {
        snprintf(r->text, sizeof r->text, "%s", ek_err_text());
        if (r->err == EK_ENOMEM) r->req.param = NULL; /* then no field is at fault */
        p->again = p->moves = false;
    }
    const size_t n_text = p->n_text;
    if (r->err || p->again) discard(p);
    if (p->again || p->moves) return; /* with its body */
    /* Memory of large trees returns to the system, also that of a continued conversation. */
    if (n_text > LARGE_BODY || r->err == EK_ENOMEM) malloc_trim(0);
    if (r->err || !ek_api_summarizes(&r->req)) ek_body_fini(&p->body);
}

/* Starts a job that does not delay preparations, because it waits for other hosts or programs. *how names the job; it
 * is set before a worker has it. */
static bool begin_beside(ek_preparation *p, ek_workers *workers, bool *how)
{
    *how = true;
    ek_err err = workers ? ek_workers_add(workers, &p->job) : ek_fail(EK_ESHUTDOWN, "the server is shutting down");
    if (!err) return true; /* a worker has p now and may have finished already */
    p->result.err = err;
    snprintf(p->result.text, sizeof p->result.text, "%s", ek_err_text());
    *how = false;
    return false;
}

/* Bytes that were fetched, or that the plan has collected. */
static size_t beside(const ek_preparation *p)
{
    size_t n = 0;
    for (int i = 0; i < p->fetches.n_done; i++) n += p->fetches.at[i].bytes.len;
    return n > p->plan.n_beside ? n : p->plan.n_beside;
}

/* Continues the preparation with its next job. False: it has ended. */
static bool goes_on(ek_preparation *p)
{
    if (atomic_load(&p->dropped) || !(p->again || p->moves || p->fetching)) return false;
    const bool moves = p->moves;
    if (p->again) {
        p->result = (ek_prepared){0};
        p->again = false;
        if (p->fetches.n > p->fetches.n_done) return begin_beside(p, p->server->fetchers, &p->fetching);
    }
    if (!p->fetching || p->plan.too_large || beside(p) > LARGE_BODY) {
        p->job.large = true;
        p->job.cost = BASE_COST + beside(p) / PER_COST;
    }
    p->fetching = p->moves = false;
    if (p->wants_aside && !moves) return begin_beside(p, p->server->decoders, &p->aside);
    ek_workers_add_always(p->server->workers, &p->job);
    return true;
}

/* Copies the parts of a request that are read besides its body. */
static void copy_request(ek_preparation *p, const ek_exchange *x)
{
    const ek_span target = ek_exchange_target(x);
    p->method = ek_strdup(ek_exchange_method(x));
    p->path = ek_strdup(ek_exchange_path(x));
    ek_buf_add(&p->target, target.p, target.n);
    p->limits.method = p->method;
    p->limits.path = p->path;
    p->limits.target = ek_buf_text(&p->target);
}

static void free_request(ek_preparation *p)
{
    free(p->method);
    free(p->path);
    ek_buf_fini(&p->target);
    ek_api_summary_free(p->summary);
}

static void done(ek_job *j)
{
    ek_preparation *p = (ek_preparation *)j;
    ek_prepared *r = &p->result;
    if (goes_on(p)) return;
    ek_fetches_fini(&p->fetches);
    if (!atomic_load(&p->dropped) && !r->err && ek_api_summarizes(&r->req)) {
        r->body = p->body;
        p->body = (ek_body){0};
    } else {
        ek_http_body_freed(p->server->http, p->n_body);
    }
    ek_body_fini(&p->body); /* for a dropped one */
    if (!atomic_load(&p->dropped)) {
        p->ready(p->user, r);
    } else {
        ek_turn_prompt_fini(&r->prompt);
        ek_stored_fini(&r->stored);
        ek_prepare_release(p->server, &r->req, p->taken + r->held);
    }
    free_request(p);
    free(p);
}

ek_err ek_prepare_start(ek_preparation **out, ek_server *s, ek_exchange *x, const ek_dialect *d, ek_prepared_fn *ready,
                        void *user, uint64_t owner, uint64_t client, const ek_wishes *wishes, ek_api_summary *summary)
{
    ek_preparation *p = ek_alloc(sizeof *p);
    p->job = (ek_job){.run = run,
                      .done = done,
                      .large = ek_exchange_body(x).n > LARGE_BODY,
                      .client = client,
                      .cost = BASE_COST + ek_exchange_body(x).n / PER_COST};
    p->server = s;
    p->dialect = d;
    p->ready = ready;
    p->user = user;
    p->limits = ek_session_limits(s);
    p->limits.owner = owner;
    p->limits.resume = wishes->resume;
    p->wishes = *wishes;
    p->limits.max_messages = s->limits.max_messages;
    p->limits.max_images = s->limits.max_images;
    p->limits.count = count;
    p->limits.take = take_more;
    p->limits.text = settle_text;
    p->limits.give = give;
    if (s->fetch_from != EK_FETCH_OFF) p->limits.fetch = fetch;
    p->limits.ffmpeg = s->ffmpeg;
    p->limits.pdftotext = s->pdftotext;
    p->limits.pdftoppm = s->pdftoppm;
    if (*wishes->batch) ek_api_limits_batch(&p->limits);
    p->limits.plan = &p->plan;
    p->limits.summary = p->summary = summary;
    if (d->by_path) copy_request(p, x);
    p->fetches.memory = &s->memory;
    p->limits.count_arg = p;
    p->body = ek_exchange_take_body(x); /* before a worker can read it */
    p->n_body = p->body.len;
    ek_err err = ek_request_memory_check();
    if (!err) err = ek_workers_add(s->workers, &p->job);
    if (err) {
        ek_http_body_freed(s->http, p->n_body);
        ek_body_fini(&p->body);
        free_request(p);
        free(p);
        return err;
    }
    *out = p;
    return EK_OK;
}

void ek_prepare_drop(ek_preparation *p)
{
    atomic_store(&p->dropped, true);
}

/* --- clean-up --- */

typedef struct release {
    ek_job job;
    ek_request_memory *memory;
    ek_api_request req;
    size_t held;
} release;

static void run_release(ek_job *j)
{
    release *r = (release *)j;
    ek_api_request_fini(&r->req);
    ek_request_memory_give(r->memory, r->held);
}

static void release_done(ek_job *j)
{
    free(j);
}

/* Frees a large buffer elsewhere: unmapping it takes milliseconds. */
typedef struct owned {
    ek_job job;
    ek_server *server;
    ek_buf bytes;
    size_t counted;
} owned;

static void run_free(ek_job *j)
{
    owned *o = (owned *)j;
    ek_buf_fini(&o->bytes);
    ek_request_memory_give(&o->server->memory, o->counted);
}

static void release_owned(void *arg)
{
    owned *o = arg;
    o->job = (ek_job){.run = run_free, .done = release_done};
    ek_workers_clean(o->server->workers, &o->job, o->bytes.cap >= LARGE_BODY);
}

ek_outgoing ek_outgoing_own(ek_server *s, ek_buf *bytes, size_t counted)
{
    owned *o = ek_alloc(sizeof *o);
    o->server = s;
    o->bytes = *bytes;
    o->counted = counted;
    *bytes = (ek_buf){0};
    return (ek_outgoing){.part[0] = {ek_buf_text(&o->bytes), o->bytes.len}, .release = release_owned, .arg = o};
}

void ek_prepare_release(ek_server *s, ek_api_request *req, size_t held)
{
    release *r = ek_alloc(sizeof *r);
    *r = (release){.job = {.run = run_release, .done = release_done}, .memory = &s->memory, .req = *req, .held = held};
    *req = (ek_api_request){0};
    ek_workers_clean(s->workers, &r->job, held >= LARGE_REQUEST && (r->req.tools || r->req.own_bytes >= LARGE_REQUEST));
}
