#include "replies/cassette.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "replies/ask.h"
#include "replies/table.h"

/* --- reading a file --- */

enum { SHORT = 8192 }; /* maximum bytes of a line that begins or ends a section */

typedef struct reading {
    const ek_cassette_read *how;
    ek_cassette_counts *counts;
    size_t number;  /* the number of the line, from 1 */
    char *identity; /* the section's identity; NULL: no section has begun */
    bool wanted;
    bool known;             /* the section has this version */
    ek_cassette_end so_far; /* of the section */
    ek_reply_record **held; /* records of a section whose signature is still missing, if one is needed */
    size_t n_held, cap_held;
} reading;

static void refuse(reading *r, const char *reason)
{
    r->counts->refused++;
    r->how->refuse(r->how->arg, r->number, reason);
}

static void give(reading *r, ek_reply_record *record)
{
    r->counts->taken++;
    r->how->take(r->how->arg, r->identity, record);
}

static void hold(reading *r, ek_reply_record *record)
{
    if (r->n_held == r->cap_held) {
        r->cap_held = r->cap_held ? 2 * r->cap_held : 64;
        r->held = ek_realloc(r->held, r->cap_held * sizeof(ek_reply_record *));
    }
    r->held[r->n_held++] = record;
}

static void give_held(reading *r, bool trusted)
{
    for (size_t i = 0; i < r->n_held; i++) {
        if (trusted) give(r, r->held[i]);
        else ek_reply_record_release(r->held[i]);
    }
    r->n_held = 0;
}

static void end_section(reading *r, bool is_whole)
{
    give_held(r, false); /* the end for which they wait is missing */
    if (r->identity && r->known && r->wanted && !is_whole)
        refuse(r, "the section before it has no end: the file was cut");
    free(r->identity);
    r->identity = NULL;
}

static void begin_section(reading *r, const json_t *v)
{
    static const char *const names[] = {"evenkeel_replies", "identity", NULL};
    int64_t version;
    char reason[200];
    size_t n = 0;
    end_section(r, false);
    r->wanted = false;
    const char *identity = ek_json_get_text(v, "identity", &n);
    ek_err err = ek_cassette_int(v, "evenkeel_replies", 0, INT32_MAX, &version);
    r->known = !err && version == EK_CASSETTE_VERSION;
    if (!err && !r->known) {
        snprintf(reason, sizeof reason, "version %lld: this program reads version %d; its lines are passed over",
                 (long long)version, EK_CASSETTE_VERSION);
        err = ek_fail(EK_EFORMAT, "%s", reason);
    }
    if (!err) err = ek_cassette_only(v, "the section", names);
    if (!err && (!identity || memchr(identity, 0, n))) err = ek_fail(EK_EFORMAT, "identity is no text");
    if (err) {
        r->known = false;
        refuse(r, ek_err_text());
    }
    r->identity = ek_strdup(err ? "" : identity);
    r->wanted = !err && r->how->wants(r->how->arg, identity);
    ek_cassette_end_init(&r->so_far);
}

/* Decides by the data that was read, not by the claims of the end line. */
static bool is_trusted(const reading *r, const json_t *v, const char sum[65])
{
    size_t n = 0;
    ek_buf message = {0};
    const char *key = ek_json_get_text(v, "key", NULL), *signature = ek_json_get_text(v, "signature", &n);
    ek_cassette_message(&message, r->identity, r->so_far.entries, sum);
    const bool is = key && signature &&
                    r->how->trusts(r->how->arg, key, signature, n, ek_buf_text(&message), message.len);
    ek_buf_fini(&message);
    return is;
}

static void take_end(reading *r, const json_t *v)
{
    static const char *const names[] = {"entries", "sum", "key", "signature", NULL};
    char sum[65];
    size_t n = 0;
    const json_t *entries = ek_json_get(v, "entries");
    if (r->known && r->wanted) {
        const char *given = ek_json_get_text(v, "sum", &n);
        ek_sha256_end(&r->so_far.sums, sum);
        const bool same = json_is_integer(entries) && (size_t)json_integer_value(entries) == r->so_far.entries &&
                          given && n == 64 && !memcmp(given, sum, 64);
        if (!same) refuse(r, "the section's end tells of other lines: some are damaged, missing, or there twice");
        else if (ek_cassette_only(v, "the section's end", names)) refuse(r, ek_err_text());
        if (r->how->trusts) {
            const bool trusted = same && is_trusted(r, v, sum);
            if (same && !trusted) refuse(r, "the section is not signed by a key that is trusted: none of it is taken");
            give_held(r, trusted);
        }
    }
    end_section(r, true);
}

static void take_reply(reading *r, const char *line, size_t n)
{
    ek_reply_record *record;
    char sum[65];
    if (!r->known || !r->wanted) {
        r->counts->others++;
        if (!r->known || !r->how->other) return;
        if (ek_cassette_line_read(&record, line, n, r->identity, EK_MAX_VOCAB, true, sum)) return;
        r->how->other(r->how->arg, r->identity, record);
        ek_reply_record_release(record);
        return;
    }
    if (ek_cassette_line_read(&record, line, n, r->identity, r->how->n_vocab, r->how->with_asks, sum)) {
        refuse(r, ek_err_text());
        return;
    }
    ek_cassette_end_add(&r->so_far, sum);
    if (r->how->trusts) hold(r, record);
    else give(r, record);
}

static void take_line(reading *r, const char *line, size_t n)
{
    json_t *v = NULL;
    if (n > 0 && line[n - 1] == '\r') n--;
    if (n == 0) return;
    if (n > EK_CASSETTE_LINE) {
        char reason[100];
        snprintf(reason, sizeof reason, "%zu bytes, %d are allowed", n, EK_CASSETTE_LINE);
        refuse(r, reason);
        return;
    }
    if (n <= SHORT && !ek_json_read(&v, line, n, 0) && ek_json_get(v, "evenkeel_replies")) begin_section(r, v);
    else if (!r->identity) refuse(r, "no section has begun before it");
    else if (v && ek_json_get(v, "entries")) take_end(r, v);
    else take_reply(r, line, n);
    json_decref(v);
}

static bool begins_well(const char *data, size_t n)
{
    const char *end = n ? memchr(data, '\n', n) : NULL;
    const size_t first = end ? (size_t)(end - data) : n;
    json_t *v = NULL;
    const bool is = first <= SHORT && !ek_json_read(&v, data, first, 0) && ek_json_get(v, "evenkeel_replies");
    json_decref(v);
    return is;
}

ek_err ek_cassette_read_text(ek_cassette_counts *out, const char *text, size_t size, const ek_cassette_read *how)
{
    reading r = {.how = how, .counts = out};
    *out = (ek_cassette_counts){0};
    if (!begins_well(text, size))
        return ek_fail(EK_EFORMAT, "no file of replies: its first line has no \"evenkeel_replies\"");
    for (size_t at = 0; at < size;) {
        const char *end = memchr(text + at, '\n', size - at);
        const size_t n = end ? (size_t)(end - text) - at : size - at;
        r.number++;
        take_line(&r, text + at, n);
        at += n + (end != NULL);
    }
    end_section(&r, false);
    free(r.held);
    return EK_OK;
}

ek_err ek_cassette_read_file(ek_cassette_counts *out, const char *path, const ek_cassette_read *how)
{
    ek_map map;
    EK_TRY(ek_map_open(&map, path));
    const ek_err err = ek_cassette_read_text(out, (const char *)map.data, map.size, how);
    ek_map_close(&map);
    return err ? ek_fail_in(err, "%s", path) : EK_OK;
}

/* --- answers from a cassette --- */

struct ek_cassette {
    char *identity;
    ek_cassette_opts opts; /* used while the file is read, like the next three */
    const char *path;
    size_t warned;
    char *other; /* an identity that was passed over, for the sentence of an error */
    pthread_mutex_t lock;
    ek_reply_table table;        /* by content key */
    ek_reply_requests *requests; /* the requests of all sections; unchanged after opening */
};

static bool wants(void *arg, const char *identity)
{
    ek_cassette *c = arg;
    if (!c->identity && c->opts.fits(c->opts.arg, identity)) c->identity = ek_strdup(identity);
    if (c->identity && !strcmp(c->identity, identity)) return true;
    free(c->other);
    c->other = ek_strdup(identity);
    return false;
}

static bool trusts(void *arg, const char *key, const char *signature, size_t n_signature, const void *message, size_t n)
{
    const ek_cassette *c = arg;
    return c->opts.trusts(c->opts.arg, key, signature, n_signature, message, n);
}

/* Notes a record whose key is the content key. */
static void note_request(void *arg, const char *identity, const ek_reply_record *r)
{
    ek_cassette *c = arg;
    size_t n;
    json_t *v;
    ek_reply_asked asked;
    const char *ask = ek_reply_record_ask(r, &n);
    if (ek_json_read(&v, ask, n, 0)) return;
    if (!ek_reply_ask_read(&asked, v, identity)) ek_reply_requests_add(c->requests, ek_reply_record_key(r), &asked.ask);
    ek_reply_asked_fini(&asked);
    json_decref(v);
}

/* A kept request takes fewer bytes than its text, so the text is dropped. */
static ek_reply_record *without_ask(ek_reply_record *r)
{
    ek_reply_draft d = {0};
    ek_reply_draft_begin(&d, r, ek_reply_record_tokens(r));
    ek_reply_record *short_one = ek_reply_record_make(ek_reply_record_key(r), &d, NULL, 0);
    ek_reply_record_set_origin(short_one, EK_REPLY_FILE);
    ek_reply_record_release(r);
    return short_one;
}

static void take(void *arg, const char *identity, ek_reply_record *r)
{
    ek_cassette *c = arg;
    note_request(c, identity, r);
    r = without_ask(r);
    const ek_reply_entry *old = ek_reply_table_find(&c->table, ek_reply_record_key(r));
    if (old && !ek_reply_record_contradicts(old->record, r)) {
        ek_reply_record *both = ek_reply_record_merge(old->record, r);
        ek_reply_record_release(r);
        r = both;
    }
    ek_reply_table_put(&c->table, 0, r, 0);
}

static void warn(void *arg, size_t number, const char *reason)
{
    enum { WARNED = 20 };
    ek_cassette *c = arg;
    if (c->warned++ < WARNED) ek_log(EK_LOG_WARN, "%s: line %zu is not used: %s", c->path, number, reason);
}

static ek_err read_one(ek_cassette *c, const char *path)
{
    const ek_cassette_read how = {.n_vocab = c->opts.n_vocab,
                                  .with_asks = true,
                                  .wants = wants,
                                  .take = take,
                                  .refuse = warn,
                                  .other = c->opts.trusts ? NULL : note_request,
                                  .trusts = c->opts.trusts ? trusts : NULL,
                                  .arg = c};
    ek_cassette_counts counts;
    c->path = path;
    EK_TRY(ek_cassette_read_file(&counts, path, &how));
    if (counts.refused || counts.others)
        ek_log(EK_LOG_WARN, "%s: %zu replies are used; %zu lines are damaged or unknown, %zu of other models", path,
               counts.taken, counts.refused, counts.others);
    return EK_OK;
}

static ek_err read_all(ek_cassette *c)
{
    for (int i = 0; i < c->opts.n; i++) EK_TRY(read_one(c, c->opts.path[i]));
    if (c->table.n > 0 || !c->other) return EK_OK;
    const char *last = c->opts.path[c->opts.n - 1];
    if (c->opts.identity)
        return ek_fail(EK_EINVAL, "%s: its replies are of %s; this is %s", last, c->other, c->identity);
    return ek_fail(EK_EINVAL, "%s: its replies are of %s, whose tokenizer or template is not that of --model", last,
                   c->other);
}

ek_err ek_cassette_open(ek_cassette **out, const ek_cassette_opts *o)
{
    ek_cassette *c = ek_alloc(sizeof *c);
    c->opts = *o;
    if (o->identity) c->identity = ek_strdup(o->identity);
    pthread_mutex_init(&c->lock, NULL);
    ek_reply_table_init(&c->table, 1e18);
    c->requests = ek_reply_requests_open();
    const ek_err err = read_all(c);
    ek_reply_requests_sort(c->requests);
    if (err) {
        ek_cassette_close(c);
        return err;
    }
    *out = c;
    return EK_OK;
}

const char *ek_cassette_identity(const ek_cassette *c)
{
    return c->identity ? c->identity : "";
}

size_t ek_cassette_entries(const ek_cassette *c)
{
    return c->table.n;
}

static ek_reply_record *find(void *arg, const ek_reply_key *k, const ek_reply_key *content, uint64_t owner)
{
    ek_cassette *c = arg;
    (void)k, (void)owner;
    pthread_mutex_lock(&c->lock);
    const ek_reply_entry *e = ek_reply_table_find(&c->table, content);
    ek_reply_record *r = e ? ek_reply_record_retain(e->record) : NULL;
    pthread_mutex_unlock(&c->lock);
    return r;
}

static void nearest(void *arg, ek_buf *out, const ek_reply_ask *ask)
{
    ek_reply_nearest(out, ((const ek_cassette *)arg)->requests, ask);
}

static void distrust(void *arg)
{
    ek_cassette *c = arg;
    pthread_mutex_lock(&c->lock);
    ek_reply_table_drop_origin(&c->table, EK_REPLY_FILE);
    pthread_mutex_unlock(&c->lock);
}

static void close_it(void *arg)
{
    ek_cassette_close(arg);
}

ek_reply_backend ek_cassette_backend(ek_cassette *c)
{
    return (ek_reply_backend){
        .origin = EK_REPLY_FILE, .arg = c, .find = find, .nearest = nearest, .distrust = distrust, .close = close_it};
}

void ek_cassette_close(ek_cassette *c)
{
    if (!c) return;
    ek_reply_table_fini(&c->table);
    ek_reply_requests_close(c->requests);
    pthread_mutex_destroy(&c->lock);
    free(c->identity);
    free(c->other);
    free(c);
}
