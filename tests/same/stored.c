/* Replies that a store kept: tokens and rows come back as they were, and the engine goes on behind them with the bits
 * of a reply that never stopped. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/redis.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash/rng.h"
#include "cases.h"
#include "../support/files.h"
#include "replies/backends.h"

enum { MAX_ROWS = 1500 };

static ek_reply_key key_of(const scene *s, const kept_ask *kept)
{
    ek_reply_key content, key;
    const ek_ask *a = &kept->ask;
    char form[16];
    snprintf(form, sizeof form, "%d", kept->number);
    const ek_reply_ask ask = {.identity = ek_model_numerics_id(s->model),
                              .tokens = a->tokens,
                              .n_tokens = a->n_tokens,
                              .part = a->part,
                              .n_parts = a->n_parts,
                              .sampling = &a->sampling,
                              .masked = a->mask != NULL,
                              .form = a->mask ? form : NULL};
    ek_reply_content_key(&content, &ask);
    ek_reply_key_for(&key, &content, a->client, NULL, 0);
    return key;
}

/* The first n tokens of the reply, and then fewer of them, which must not take their place. */
static void keep(ek_replies *replies, const ek_reply_key *k, const ek_trace *want, int n)
{
    for (int round = 0; round < 2; round++) {
        ek_reply_draft d = {0};
        const int end = round ? (n + 1) / 2 : n;
        for (int i = 0; i < end; i++) ek_reply_draft_add(&d, want->reply[i], want->digest[i], NULL);
        ek_replies_put(replies, 0, ek_reply_record_make(k, &d, NULL, 0));
    }
}

/* The request behind what the store has of its reply. */
static ek_err take(ek_replies *replies, const ek_reply_key *k, const ek_ask *a, const ek_trace *want, int n,
                   ek_ask *out, int32_t *tokens)
{
    ek_reply_record *r = ek_replies_find(replies, k, k, 0);
    if (!r) return ek_fail(EK_EINTERNAL, "a reply of %d tokens is not in the store", n);
    ek_err err = EK_OK;
    if (ek_reply_record_tokens(r) != n)
        err = ek_fail(EK_EINTERNAL, "the store has %d tokens, %d were kept", ek_reply_record_tokens(r), n);
    memcpy(tokens, a->tokens, sizeof *tokens * (size_t)a->n_tokens);
    for (int i = 0; i < n && !err; i++) {
        tokens[a->n_tokens + i] = ek_reply_record_token(r, i);
        if (ek_reply_record_row(r, i) != want->digest[i]) err = ek_fail(EK_EINTERNAL, "row %d is another one", i);
    }
    ek_reply_record_release(r);
    *out = *a;
    out->tokens = tokens;
    out->n_tokens = a->n_tokens + n;
    out->n_replied = n;
    out->prompt_logits_from = out->n_tokens;
    return err;
}

/* Where records are kept besides memory: neither, or one of the two. */
typedef struct home {
    const char *dir;
    const redis_server *server;
} home;

static ek_err open_backend(ek_reply_backend *out, const home *h, int n_vocab)
{
    const ek_reply_disk_opts d = {.dir = h->dir, .identity = "tests", .n_vocab = n_vocab, .max_bytes = 1e8};
    if (h->dir) return ek_reply_disk_open(out, &d);
    const ek_reply_shared_opts r = {.url = h->server->url, .identity = "tests", .n_vocab = n_vocab};
    EK_TRY(ek_reply_shared_open(out, &r));
    for (double end = ek_now() + 5; !ek_reply_shared_is_up(out) && ek_now() < end;) usleep(500);
    return EK_OK;
}

static ek_err open_store(ek_replies **out, const scene *s, const home *h)
{
    ek_reply_backend below;
    const int n_vocab = s->config.vocab_size;
    const ek_replies_opts o = {.identity = "tests", .n_vocab = n_vocab, .max_bytes = 1e8};
    EK_TRY(ek_replies_open(out, &o));
    if (!h->dir && !h->server) return EK_OK;
    ek_err err = open_backend(&below, h, n_vocab);
    if (err) ek_replies_close(*out);
    else ek_replies_add(*out, &below);
    return err;
}

/* Below memory, the store is closed in between. */
static ek_err through(const scene *s, const home *h, const kept_ask *kept, int n, ek_ask *out, int32_t **tokens)
{
    int cut[MAX_ASKS];
    ek_replies *replies;
    EK_TRY(open_store(&replies, s, h));
    for (int i = 0; i < n; i++) {
        const ek_trace *want = kept[i].want;
        const ek_reply_key k = key_of(s, &kept[i]);
        cut[i] = 1 + (int)(ek_mix64(s->seed + 77 * (uint64_t)kept[i].number) % (uint64_t)(want->n_reply - 1));
        keep(replies, &k, want, cut[i]);
    }
    if (h->dir || h->server) {
        ek_replies_close(replies);
        EK_TRY(open_store(&replies, s, h));
    }
    ek_err err = EK_OK;
    for (int i = 0; i < n && !err; i++) {
        const ek_ask *a = &kept[i].ask;
        const ek_reply_key k = key_of(s, &kept[i]);
        tokens[i] = ek_alloc(sizeof **tokens * (size_t)(a->n_tokens + a->max_tokens));
        err = take(replies, &k, a, kept[i].want, cut[i], &out[i], tokens[i]);
    }
    ek_replies_close(replies);
    return err;
}

ek_err behind_store(const scene *s, const char *dir, const kept_ask *kept, int n, ek_ask *out, int32_t **tokens)
{
    return through(s, &(home){.dir = dir}, kept, n, out, tokens);
}

static ek_err run(const scene *s, company *base, const home *h, check_fn *check, void *arg)
{
    const char *name = h->dir ? "stored on disk" : h->server ? "stored on a server" : "stored";
    kept_ask kept[MAX_ASKS];
    ek_ask ask[MAX_ASKS];
    int which[MAX_ASKS], n = 0, rows = 0;
    int32_t *tokens[MAX_ASKS] = {0};
    for (int i = 0; i < s->n && n < MAX_ASKS; i++) {
        rows += s->ask[i].n_tokens + s->ask[i].max_tokens;
        if (base->want[i].n_reply < 2 || (rows > MAX_ROWS && n > 0)) continue;
        kept[n] = (kept_ask){.ask = s->ask[i], .want = &base->want[i], .number = i};
        which[n++] = i;
    }
    ek_err err = through(s, h, kept, n, ask, tokens);
    company c = {.max_requests = 6, .chunk = 5 + (int)(ek_mix64(s->seed) % 90), .draft = EK_DRAFT_NGRAM};
    if (n && !err) err = run_cached(s, base, c, name, ask, which, n, check, arg);
    for (int i = 0; i < n; i++) free(tokens[i]);
    return err;
}

ek_err stored(const scene *s, company *base, check_fn *check, void *arg)
{
    redis_server server;
    EK_TRY(run(s, base, &(home){0}, check, arg));
    char *dir = temp_dir();
    ek_err err = run(s, base, &(home){.dir = dir}, check, arg);
    remove_dir(dir);
    if (err || !redis_start(&server, NULL)) return err;
    err = run(s, base, &(home){.server = &server}, check, arg);
    redis_end(&server);
    return err;
}
