#include "open/remote.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/hash/rng.h"
#include "base/linux.h"
#include "base/log.h"
#include "hub/curl.h"
#include "text/draft_message.h"

enum { CONNECT_MS = 1000, FIRST_MS = 20000, LATER_MS = 2000, WAIT_MS = 1000, MAX_WHY = 200 };
_Static_assert((int)EK_DRAFT_MESSAGE_MAX <= (int)EK_DRAFT_MAX, "an answer fits into a proposal");
static const double FIRST_REST = 1, MAX_REST = 60, BUSY_REST = 0.25;

/* The state of a request. From ASKED until ANSWERED, tokens[] belongs to the thread; before and after, to the
 * engine. */
typedef enum state { FREE, IDLE, ASKED, FLYING, ANSWERED } state;

typedef struct slot {
    state state;
    uint64_t request, salt;
    bool dropped;    /* the request was forgotten before its answer */
    bool refused;    /* the server refuses this request, because it is too long */
    int32_t *tokens; /* [max_ctx] */
    int n, n_known;  /* n: tokens; n_known: tokens that the server has */
    int max;
    bool again; /* the server had lost its tokens, so all were sent again */
    char session[33];
    double asked;
    int n_out;
    double seconds;
    int32_t out[EK_DRAFT_MESSAGE_MAX];
    /* the thread's */
    CURL *easy;
    ek_buf body, reply;
} slot;

struct ek_remote {
    const ek_curl *lib;
    CURLM *multi;
    struct curl_slist *headers;
    char *url, *name; /* url: with the path; name: for the log, without a key */
    char vocabulary[17];
    int n_vocab, max_ctx;
    int wake; /* an eventfd */
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t lock;
    pthread_cond_t answered;
    bool stop;
    int n_failures; /* in a row */
    double rests_until;
    uint64_t n_answers;
    slot slot[EK_REMOTE_QUESTIONS];
};

/* --- the URL --- */

static const char *behind_scheme(const char *url)
{
    return !strncmp(url, "http://", 7) ? url + 7 : !strncmp(url, "https://", 8) ? url + 8 : NULL;
}

ek_err ek_remote_check(const char *url)
{
    const char *host = behind_scheme(url), *at = host ? strchr(host, '@') : NULL;
    if (at) host = at + 1;
    bool plain = host && *host && *host != '/' && *host != ':' && (!at || at > behind_scheme(url));
    for (const char *c = url; plain && *c; c++) plain = *c > ' ' && *c < 0x7f && *c != '"' && *c != '\\';
    if (plain && !strpbrk(host, "@?#")) return EK_OK;
    return ek_fail(EK_EINVAL, "--drafter-url: http://HOST:PORT is needed, or https, with KEY@ before HOST for a key");
}

static void read_url(ek_remote *r, const char *url)
{
    const char *host = behind_scheme(url), *at = strchr(host, '@');
    ek_buf b = {0};
    ek_buf_add(&b, url, (size_t)(host - url));
    ek_buf_str(&b, at ? at + 1 : host);
    while (b.data[b.len - 1] == '/') b.data[--b.len] = '\0';
    r->name = ek_strdup(ek_buf_text(&b));
    ek_buf_str(&b, "/v1/drafts");
    r->url = b.data;
    r->headers = r->lib->slist_append(NULL, "Expect:");
    r->headers = r->lib->slist_append(r->headers, "content-type: application/json");
    if (!at) return;
    ek_buf key = {0};
    ek_buf_str(&key, "authorization: Bearer ");
    ek_buf_add(&key, host, (size_t)(at - host));
    r->headers = r->lib->slist_append(r->headers, ek_buf_text(&key));
    ek_buf_fini(&key);
}

/* --- the engine's side --- */

static slot *find(ek_remote *r, uint64_t request)
{
    for (int i = 0; i < EK_REMOTE_QUESTIONS; i++)
        if (r->slot[i].state != FREE && !r->slot[i].dropped && r->slot[i].request == request) return &r->slot[i];
    return NULL;
}

static slot *take_free(ek_remote *r, uint64_t request, uint64_t salt)
{
    slot *s = NULL;
    uint64_t draw[2];
    for (int i = 0; i < EK_REMOTE_QUESTIONS && !s; i++)
        if (r->slot[i].state == FREE) s = &r->slot[i];
    if (!s || !ek_random(draw, sizeof draw)) return NULL;
    snprintf(s->session, sizeof s->session, "%016llx%016llx", (unsigned long long)draw[0], (unsigned long long)draw[1]);
    s->state = IDLE, s->request = request, s->salt = salt, s->n = s->n_known = 0;
    s->dropped = s->refused = s->again = false;
    return s;
}

static void poke(const ek_remote *r)
{
    const uint64_t one = 1;
    if (write(r->wake, &one, sizeof one) < 0) return; /* a wake-up is already set */
}

static bool ask(void *arg, uint64_t request, uint64_t salt, const int32_t *tokens, int n, int max)
{
    ek_remote *r = arg;
    const double now = ek_now();
    pthread_mutex_lock(&r->lock);
    slot *s = now < r->rests_until || n > r->max_ctx ? NULL : find(r, request);
    if (!s && now >= r->rests_until && n <= r->max_ctx) s = take_free(r, request, salt);
    const bool good = s && s->state == IDLE && !s->refused;
    if (good) {
        memcpy(s->tokens + s->n, tokens + s->n, (size_t)(n - s->n) * sizeof *tokens);
        s->n = n, s->max = max < EK_DRAFT_MESSAGE_MAX ? max : EK_DRAFT_MESSAGE_MAX;
        s->asked = now;
        s->state = ASKED;
    }
    pthread_mutex_unlock(&r->lock);
    if (good) poke(r);
    return good;
}

static bool answer(void *arg, uint64_t request, ek_proposal *out)
{
    ek_remote *r = arg;
    pthread_mutex_lock(&r->lock);
    slot *s = find(r, request);
    const bool there = s && s->state == ANSWERED;
    if (there) {
        memcpy(out->token, s->out, (size_t)s->n_out * sizeof *s->out);
        out->n = s->n_out, out->seconds = s->seconds;
        s->state = IDLE;
    }
    pthread_mutex_unlock(&r->lock);
    return there;
}

static void wait_answer(void *arg, double seconds)
{
    ek_remote *r = arg;
    const double until = ek_now() + seconds;
    pthread_mutex_lock(&r->lock);
    for (const uint64_t before = r->n_answers; before == r->n_answers && ek_wait_until(&r->answered, &r->lock, until);)
        continue;
    pthread_mutex_unlock(&r->lock);
}

static void forget(void *arg, uint64_t request)
{
    ek_remote *r = arg;
    pthread_mutex_lock(&r->lock);
    slot *s = find(r, request);
    if (s && s->state == FLYING) s->dropped = true;
    else if (s) s->state = FREE;
    pthread_mutex_unlock(&r->lock);
}

ek_proposer ek_remote_proposer(ek_remote *r)
{
    return (ek_proposer){.arg = r, .ask = ask, .answer = answer, .wait = wait_answer, .forget = forget};
}

/* --- the thread's side --- */

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
    slot *s = arg;
    (void)size;
    if (s->reply.len + n > EK_DRAFT_ANSWER_BYTES) return 0;
    ek_buf_add(&s->reply, data, n);
    return n;
}

static void close_easy(ek_remote *r, slot *s)
{
    if (!s->easy) return;
    r->lib->multi_remove_handle(r->multi, s->easy);
    r->lib->easy_cleanup(s->easy);
    s->easy = NULL;
}

/* Quotes the server's answer for the log. */
static void quote(char out[MAX_WHY], const slot *s, long status)
{
    int n = snprintf(out, MAX_WHY, "status %ld: ", status);
    for (size_t i = 0; i < s->reply.len && n + 1 < MAX_WHY; i++)
        out[n++] = s->reply.data[i] >= ' ' && s->reply.data[i] < 0x7f ? s->reply.data[i] : ' ';
    out[n] = '\0';
}

/* After a failure, unless the server already rests, because several requests fail at a time: starts a rest for all, a
 * short one if the server was busy. Under lock. */
static double rest(ek_remote *r, bool busy)
{
    double seconds = FIRST_REST;
    if (busy) seconds = BUSY_REST;
    else
        for (int i = 0; i < r->n_failures && seconds < MAX_REST; i++) seconds *= 2;
    if (!busy) r->n_failures++;
    if (seconds > MAX_REST) seconds = MAX_REST;
    r->rests_until = ek_now() + seconds;
    return seconds;
}

static void end(ek_remote *r, slot *s, CURLcode code)
{
    long status = 0;
    char why[MAX_WHY];
    if (s->easy) r->lib->easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &status);
    if (code) snprintf(why, sizeof why, "%s", r->lib->easy_strerror(code));
    else quote(why, s, status);
    const int n = !code && status == 200
                      ? ek_draft_answer_read(s->out, ek_buf_text(&s->reply), s->reply.len, r->n_vocab)
                      : -1;
    if (!code && status == 200 && n < 0) snprintf(why, sizeof why, "its answer is no draft of this vocabulary");
    close_easy(r, s);
    const bool lost = !code && status == 409 && !s->again && s->n_known > 0, long_one = !code && status == 413;
    double rests = 0;
    int back = -1;
    pthread_mutex_lock(&r->lock);
    s->n_known = n >= 0 ? s->n : 0;
    s->again = lost;
    s->refused |= long_one;
    s->n_out = n > 0 ? n : 0;
    s->seconds = n >= 0 ? ek_now() - s->asked : 0;
    s->state = s->dropped ? FREE : lost ? ASKED : ANSWERED;
    if (n >= 0) back = r->n_failures, r->n_failures = 0;
    else if (!lost && !long_one && ek_now() >= r->rests_until) rests = rest(r, status == 429 || status == 503);
    r->n_answers++;
    pthread_cond_broadcast(&r->answered);
    pthread_mutex_unlock(&r->lock);
    if (back > 0) ek_log(EK_LOG_INFO, "drafter %s: it answers again", r->name);
    if (rests >= FIRST_REST) ek_log(EK_LOG_WARN, "drafter %s: %s; no drafts from it for %.0f s", r->name, why, rests);
}

static void begin(ek_remote *r, slot *s)
{
    const ek_curl *c = r->lib;
    ek_draft_question q = {.from = s->n_known, .max = s->max, .tokens = s->tokens + s->n_known, .n = s->n - s->n_known};
    snprintf(q.vocabulary, sizeof q.vocabulary, "%s", r->vocabulary);
    snprintf(q.session, sizeof q.session, "%s", s->session);
    if (s->salt) snprintf(q.salt, sizeof q.salt, "%016llx", (unsigned long long)s->salt);
    ek_buf_clear(&s->body), ek_buf_clear(&s->reply);
    ek_draft_question_write(&s->body, &q);
    s->easy = c->easy_init();
    if (!s->easy) {
        end(r, s, CURLE_FAILED_INIT);
        return;
    }
    c->easy_setopt(s->easy, CURLOPT_URL, r->url);
    c->easy_setopt(s->easy, CURLOPT_HTTPHEADER, r->headers);
    c->easy_setopt(s->easy, CURLOPT_NOSIGNAL, 1L);
    c->easy_setopt(s->easy, CURLOPT_PROXY, "");
    c->easy_setopt(s->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    c->easy_setopt(s->easy, CURLOPT_TIMEOUT_MS, (long)(s->n_known ? LATER_MS : FIRST_MS));
    c->easy_setopt(s->easy, CURLOPT_WRITEFUNCTION, on_body);
    c->easy_setopt(s->easy, CURLOPT_WRITEDATA, s);
    c->easy_setopt(s->easy, CURLOPT_PRIVATE, s);
    c->easy_setopt(s->easy, CURLOPT_POST, 1L);
    c->easy_setopt(s->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)s->body.len);
    c->easy_setopt(s->easy, CURLOPT_POSTFIELDS, s->body.data);
    if (c->multi_add_handle(r->multi, s->easy)) end(r, s, CURLE_FAILED_INIT);
}

/* Begins the new requests. False: the thread has to end. */
static bool begin_all(ek_remote *r)
{
    pthread_mutex_lock(&r->lock);
    const bool go = !r->stop;
    bool flies[EK_REMOTE_QUESTIONS];
    for (int i = 0; i < EK_REMOTE_QUESTIONS; i++) {
        flies[i] = go && r->slot[i].state == ASKED;
        if (flies[i]) r->slot[i].state = FLYING;
    }
    pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < EK_REMOTE_QUESTIONS; i++)
        if (flies[i]) begin(r, &r->slot[i]);
    return go;
}

/* No request is needed any more. Waiting requests are never answered, which costs only time. */
static void give_up(ek_remote *r)
{
    pthread_mutex_lock(&r->lock);
    r->rests_until = INFINITY;
    pthread_mutex_unlock(&r->lock);
    ek_log(EK_LOG_ERROR, "drafter %s: its connections cannot be waited for; no drafts from it any more", r->name);
}

static void *run(void *arg)
{
    ek_remote *r = arg;
    struct curl_waitfd wake = {.fd = r->wake, .events = CURL_WAIT_POLLIN};
    while (begin_all(r)) {
        int running, left;
        uint64_t n;
        r->lib->multi_perform(r->multi, &running);
        bool any = false;
        for (const CURLMsg *m; (m = r->lib->multi_info_read(r->multi, &left)) != NULL;) {
            slot *s;
            if (m->msg != CURLMSG_DONE) continue;
            const CURLcode code = m->data.result;
            r->lib->easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&s);
            end(r, s, code);
            any = true;
        }
        if (!any && r->lib->multi_poll(r->multi, &wake, 1, WAIT_MS, NULL)) {
            give_up(r);
            break;
        }
        if (read(r->wake, &n, sizeof n) < 0) continue; /* nobody has poked */
    }
    return NULL;
}

/* --- opening --- */

ek_err ek_remote_open(ek_remote **out, const ek_remote_opts *o)
{
    EK_TRY(ek_remote_check(o->url));
    EK_TRY(ek_curl_load());
    ek_remote *r = ek_alloc(sizeof *r);
    r->lib = ek_curl_lib();
    r->n_vocab = o->n_vocab, r->max_ctx = o->max_ctx;
    snprintf(r->vocabulary, sizeof r->vocabulary, "%s", o->vocabulary);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->answered, NULL);
    read_url(r, o->url);
    for (int i = 0; i < EK_REMOTE_QUESTIONS; i++)
        r->slot[i].tokens = ek_alloc((size_t)o->max_ctx * sizeof *r->slot[i].tokens);
    r->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r->multi = r->lib->multi_init();
    r->has_thread = r->wake >= 0 && r->multi && ek_thread_start(&r->thread, run, r) == 0;
    if (!r->has_thread) {
        ek_remote_close(r);
        return ek_fail(EK_EIO, "--drafter-url: its thread does not start");
    }
    *out = r;
    return EK_OK;
}

void ek_remote_close(ek_remote *r)
{
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_mutex_unlock(&r->lock);
    if (r->has_thread) poke(r), pthread_join(r->thread, NULL);
    for (int i = 0; i < EK_REMOTE_QUESTIONS; i++) {
        close_easy(r, &r->slot[i]);
        ek_buf_fini(&r->slot[i].body), ek_buf_fini(&r->slot[i].reply);
        free(r->slot[i].tokens);
    }
    if (r->multi) r->lib->multi_cleanup(r->multi);
    r->lib->slist_free_all(r->headers);
    if (r->wake >= 0) close(r->wake);
    pthread_cond_destroy(&r->answered);
    pthread_mutex_destroy(&r->lock);
    free(r->url), free(r->name);
    free(r);
}
