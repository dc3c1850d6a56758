#include "cli/serve/serve_replies.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/encoding.h"
#include "base/log.h"
#include "replies/backends.h"

ek_err ek_serve_check_replies(const ek_cli *cli)
{
    if (cli->no_engine && !cli->has.replies)
        return ek_fail(EK_EINVAL,
                       "--no-engine computes nothing, and --replies FILE is missing, which it could answer from");
    if (cli->no_engine && cli->has.journal)
        return ek_fail(EK_EINVAL, "--journal names the model by its weights, which --no-engine does not read");
    if (cli->no_engine && cli->has.receipts)
        return ek_fail(EK_EINVAL, "--receipts names the model by its weights, which --no-engine does not read");
    if (cli->has.trust && !cli->has.replies)
        return ek_fail(EK_EINVAL, "--trust is about files of replies, and --replies FILE is missing");
    if (cli->cache_replies_prompts && !cli->has.cache_replies)
        return ek_fail(EK_EINVAL, "--cache-replies-prompts is about replies that --cache-replies keeps");
    return EK_OK;
}

/* The parts that a stored reply depends on besides its request. */
static ek_err make_identity(ek_buf *out, ek_opened *m)
{
    const char *digest, *file = m->towers ? ek_towers_file(m->towers) : NULL;
    char towers[EK_MODEL_DIGEST];
    EK_TRY(ek_opened_digest(&digest, m));
    const ek_config *c = ek_model_config(m->model);
    char words[EK_CHAT_NAME];
    ek_chat_model_name(words, &m->chat, c->stop, c->n_stop);
    ek_buf_fmt(out, "model %s, %s, words %s", digest, ek_model_numerics_id(m->model), words);
    if (!file) return EK_OK;
    EK_TRY(ek_model_digest(towers, file, m->pool));
    ek_buf_fmt(out, ", mmproj %s", towers);
    return EK_OK;
}

static ek_err add_disk(ek_replies *r, const ek_cli *cli, const ek_replies_opts *o)
{
    ek_reply_backend disk;
    const ek_reply_disk_opts d = {.dir = cli->cache_dir,
                                  .identity = o->identity,
                                  .n_vocab = o->n_vocab,
                                  .max_bytes = o->max_bytes,
                                  .max_age = o->max_age};
    EK_TRY(ek_reply_disk_open(&disk, &d));
    ek_replies_add(r, &disk);
    return EK_OK;
}

static ek_err add_server(ek_replies *r, const ek_cli *cli, const ek_replies_opts *o)
{
    ek_reply_backend server;
    const ek_reply_shared_opts s = {.url = cli->cache_shared,
                                    .ca = cli->has.cache_shared_ca ? cli->cache_shared_ca : NULL,
                                    .cert = cli->has.cache_shared_cert ? cli->cache_shared_cert : NULL,
                                    .identity = o->identity,
                                    .n_vocab = o->n_vocab,
                                    .max_age = o->max_age};
    EK_TRY(ek_reply_shared_open(&server, &s));
    ek_replies_add(r, &server);
    return EK_OK;
}

/* --- a file of replies --- */

typedef struct reader {
    const ek_opened *m;
    ek_trust trust;
} reader;

static bool is_trusted(void *arg, const char *key, const char *signature, size_t n_signature, const void *message,
                       size_t n)
{
    return ek_trust_has(&((const reader *)arg)->trust, key, signature, n_signature, message, n);
}

/* Whether the identity is the model's, except for its weights, which are not read. */
static bool has_words(void *arg, const char *identity)
{
    static const char before[] = ", words ";
    const ek_opened *m = ((const reader *)arg)->m;
    const ek_config *c = ek_model_config(m->model);
    char words[EK_CHAT_NAME];
    const char *at = strstr(identity, before);
    ek_chat_model_name(words, &m->chat, c->stop, c->n_stop);
    return at && !strncmp(at + sizeof before - 1, words, EK_CHAT_NAME - 1);
}

ek_err ek_serve_digest(void *replies, char out[EK_MODEL_DIGEST])
{
    static const char before[] = "model ";
    const char *identity = ek_replies_identity(replies);
    if (strncmp(identity, before, sizeof before - 1) != 0 ||
        strcspn(identity + sizeof before - 1, ",") != EK_MODEL_DIGEST - 1)
        return ek_fail(EK_ENOTFOUND, "the file of replies does not name its model");
    memcpy(out, identity + sizeof before - 1, EK_MODEL_DIGEST - 1);
    out[EK_MODEL_DIGEST - 1] = '\0';
    return EK_OK;
}

char *ek_serve_numerics(const ek_replies *r)
{
    const char *identity = ek_replies_identity(r), *from = strstr(identity, ", "),
               *end = from ? strstr(from + 2, ", words ") : NULL;
    ek_buf out = {0};
    if (end) ek_buf_add(&out, from + 2, (size_t)(end - from - 2));
    char *copy = ek_strdup(ek_buf_text(&out));
    ek_buf_fini(&out);
    return copy;
}

/* identity: the model's; if it is empty, it is filled in from the file. */
static ek_err open_file(ek_cassette **out, const ek_cli *cli, ek_opened *m, ek_buf *identity)
{
    const char *of = identity->len ? ek_buf_text(identity) : NULL;
    if (!cli->has.replies) return EK_OK;
    reader r = {.m = m};
    ek_err err = ek_trust_open(&r.trust, &cli->trust);
    const ek_cassette_opts o = {.path = cli->replies.v,
                                .n = cli->replies.n,
                                .identity = of,
                                .n_vocab = ek_model_config(m->model)->vocab_size,
                                .fits = has_words,
                                .trusts = cli->has.trust ? is_trusted : NULL,
                                .arg = &r};
    if (!err) err = ek_cassette_open(out, &o);
    ek_trust_close(&r.trust);
    if (err) return err;
    if (!of) ek_buf_str(identity, ek_cassette_identity(*out));
    ek_log(EK_LOG_INFO, "event=replies file=%s entries=%zu", cli->replies.v[0], ek_cassette_entries(*out));
    return EK_OK;
}

static ek_err open_store(const ek_cli *cli, ek_opened *m, const char *identity, ek_replies **out)
{
    const ek_config *c = ek_model_config(m->model);
    const ek_replies_opts opts = {.identity = identity,
                                  .n_vocab = c->vocab_size,
                                  .stop = c->stop,
                                  .n_stop = c->n_stop,
                                  .max_bytes = cli->has.cache_replies ? (double)cli->cache_replies : 0,
                                  .max_age = (double)cli->cache_replies_age,
                                  .asks = cli->cache_replies_prompts,
                                  .audit = cli->no_engine ? 0 : cli->audit_replies};
    EK_TRY(ek_replies_open(out, &opts));
    if (!cli->has.cache_replies || cli->no_engine) return EK_OK;
    if (cli->has.cache_dir) EK_TRY(add_disk(*out, cli, &opts));
    return cli->has.cache_shared ? add_server(*out, cli, &opts) : EK_OK;
}

ek_err ek_serve_open_replies(ek_replies **out, const ek_cli *cli, ek_opened *m)
{
    ek_buf identity = {0};
    ek_cassette *file = NULL;
    if (!cli->has.cache_replies && !cli->has.replies) return EK_OK;
    ek_err err = cli->no_engine ? EK_OK : make_identity(&identity, m);
    if (!err) err = open_file(&file, cli, m, &identity);
    if (!err) err = open_store(cli, m, ek_buf_text(&identity), out);
    if (!err && file) {
        const ek_reply_backend b = ek_cassette_backend(file);
        ek_replies_add(*out, &b);
        file = NULL;
    }
    ek_cassette_close(file);
    if (err) ek_replies_close(*out), *out = NULL;
    ek_buf_fini(&identity);
    return err;
}

/* --- keys of files of replies --- */

ek_err ek_trust_open(ek_trust *t, const ek_names *paths)
{
    t->key = ek_alloc(((size_t)paths->n + 1) * sizeof *t->key);
    t->n = paths->n;
    for (int i = 0; i < paths->n; i++) {
        const ek_err err = ek_public_key_read(&t->key[i], paths->v[i]);
        if (err) return ek_fail_in(err, "--trust");
    }
    return EK_OK;
}

void ek_trust_close(ek_trust *t)
{
    free(t->key);
    *t = (ek_trust){0};
}

bool ek_trust_has(const ek_trust *t, const char *key, const char *signature, size_t n_signature, const void *message,
                  size_t n)
{
    ek_buf bytes = {0};
    bool good = false;
    const bool fits = ek_base64_decode(&bytes, signature, n_signature) && bytes.len == EK_SIGNATURE;
    for (int i = 0; i < t->n && fits && !good; i++) {
        if (strcmp(t->key[i].id, key) != 0) continue;
        if (ek_signature_check(&good, &t->key[i], (const uint8_t *)bytes.data, message, n)) good = false;
    }
    ek_buf_fini(&bytes);
    return good;
}

ek_err ek_trust_sign(void *key, ek_buf *signature, const void *message, size_t n)
{
    uint8_t bytes[EK_SIGNATURE];
    EK_TRY(ek_sign(key, bytes, message, n));
    ek_base64_encode(signature, bytes, sizeof bytes);
    return EK_OK;
}
