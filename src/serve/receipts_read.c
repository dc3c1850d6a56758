/* GET /v1/receipts: stored receipts, with their paths into the log; the keys; proofs that the log only grew. Event
 * thread, except the paths, because receipts of many choices are long and their checkpoint is signed. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/encoding.h"
#include "serve/receipts.h"
#include "serve/routes.h"

static void put_url_base64(ek_buf *out, const void *bytes, size_t n)
{
    ek_buf b = {0};
    ek_base64_encode(&b, bytes, n);
    for (size_t i = 0; i < b.len && b.data[i] != '='; i++)
        ek_buf_char(out, b.data[i] == '+' ? '-' : b.data[i] == '/' ? '_' : b.data[i]);
    ek_buf_fini(&b);
}

static void put_keys(ek_buf *out, const ek_receipts *k)
{
    ek_buf_str(out, "{\"keys\":[");
    for (const ek_server_key *key = k->keys; key; key = key->older) {
        const ek_public_key *half = ek_signing_key_public(key->key);
        ek_buf_fmt(out,
                   "%s{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"use\":\"sig\",\"alg\":\"EdDSA\",\"kid\":\"%s\",\"x\":\"",
                   key == k->keys ? "" : ",", half->id);
        put_url_base64(out, half->a, sizeof half->a);
        ek_buf_fmt(out, "\",\"nbf\":%lld", (long long)key->from);
        if (key->until) ek_buf_fmt(out, ",\"exp\":%lld", (long long)key->until);
        ek_buf_char(out, '}');
    }
    ek_buf_str(out, "]}");
}

/* Reads a number of the query; 0 if it is absent. */
static bool number_of(ek_exchange *x, const char *name, size_t *out)
{
    char text[24], *end;
    *out = 0;
    if (!ek_exchange_query(x, name, text, sizeof text)) return true;
    if (text[0] < '0' || text[0] > '9') return false;
    *out = (size_t)strtoull(text, &end, 10);
    return !*end && strlen(text) < 16;
}

static ek_err put_log(ek_buf *out, const ek_receipts *k, ek_exchange *x, const char *what)
{
    size_t from, to;
    if (!k->log) return ek_fail(EK_ENOTFOUND, "this server keeps no log of receipts (--receipts-log)");
    if (!number_of(x, "from", &from) || !number_of(x, "to", &to))
        return ek_fail(EK_EINVAL, "from and to: numbers of entries are needed");
    if (strcmp(what, "log/consistency")) return ek_fail(EK_ENOTFOUND, "there is no receipt %.80s here", what);
    ek_buf_char(out, '{');
    EK_TRY(ek_receipt_log_extends(out, k->log, from, to, k->keys->key));
    ek_buf_char(out, '}');
    return EK_OK;
}

/* --- a receipt with its path --- */

/* Writes a stored text again, each receipt with its path into the log. */
typedef struct proving {
    ek_job job;
    ek_server *server;
    ek_exchange *x; /* NULL: the client is gone */
    ek_kept_receipt *of;
    const ek_signing_key *key;
    size_t size; /* entries below the checkpoint; 0: all */
    ek_buf out;
    size_t counted; /* bytes counted in the server's request memory */
    ek_err err;
    char why[256];
} proving;

/* Puts each receipt's path behind its index in the log. Text from clients is inside strings, whose quotes are escaped,
 * so nothing else matches. */
static ek_err put_proven(proving *p)
{
    ek_receipt_log *log = p->server->receipts->log;
    const char *text = ek_buf_text(&p->of->text);
    ek_buf mark = {0}, checkpoint = {0};
    ek_err err = ek_receipt_log_checkpoint(&checkpoint, log, &p->size, p->key);
    ek_buf_fmt(&mark, ",\"log\":{\"origin\":\"%s\",\"index\":", ek_receipt_log_origin(log));
    for (const char *at; !err && (at = strstr(text, ek_buf_text(&mark))) != NULL;) {
        char *end;
        const size_t index = (size_t)strtoull(at + mark.len, &end, 10);
        ek_buf_add(&p->out, text, (size_t)(end - text));
        ek_buf_char(&p->out, ',');
        err = ek_receipt_log_prove(&p->out, log, index, p->size, &checkpoint);
        text = end;
    }
    ek_buf_str(&p->out, text);
    ek_buf_fini(&mark), ek_buf_fini(&checkpoint);
    return err;
}

static void run_proving(ek_job *j)
{
    proving *p = (proving *)(void *)j;
    p->err = put_proven(p);
    if (p->err) snprintf(p->why, sizeof p->why, "%s", ek_err_text());
}

static void on_gone(void *user)
{
    ((proving *)user)->x = NULL;
}

static void fail(const proving *p, ek_err err)
{
    ek_reply_failure(p->x, ek_route_form(p->server, p->x), err, NULL, NULL);
}

static void end_proving(ek_job *j)
{
    proving *p = (proving *)(void *)j;
    if (p->x) ek_exchange_on_gone(p->x, NULL, NULL);
    if (p->x && p->err) {
        fail(p, ek_fail(p->err, "%s", p->why));
    } else if (p->x) {
        const ek_outgoing body = ek_outgoing_own(p->server, &p->out, p->counted);
        p->counted = 0;
        ek_exchange_reply_from(p->x, 200, "application/json", &body);
    }
    ek_request_memory_give(&p->server->memory, p->counted);
    ek_kept_receipt_release(p->of);
    ek_buf_fini(&p->out);
    free(p);
}

/* An upper bound: each receipt gets its checkpoint, and a hash per level of the log. */
static size_t proven_bytes(const ek_server *s, const ek_kept_receipt *r)
{
    enum { CHECKPOINT = 1024, PER_HASH = 67, SHORTEST = 1024 }; /* SHORTEST: a receipt has more bytes */
    size_t levels = 1;
    for (size_t n = ek_receipts_log_size(s); n > 0; n /= 2) levels++;
    return r->text.len + (r->text.len / SHORTEST + 1) * (levels * PER_HASH + CHECKPOINT);
}

static void prove(ek_server *s, ek_exchange *x, ek_kept_receipt *r, size_t size)
{
    enum { LARGE = 1 << 20 };
    const size_t bytes = proven_bytes(s, r);
    proving *p = ek_alloc(sizeof *p);
    *p = (proving){.job = {.run = run_proving, .done = end_proving, .client = ek_exchange_client(x)},
                   .server = s,
                   .x = x,
                   .of = r,
                   .key = s->receipts->keys->key,
                   .size = size};
    p->job.large = r->text.len > LARGE;
    ek_err err = ek_request_memory_take(&s->memory, 0, bytes);
    if (!err) p->counted = bytes;
    if (!err) err = ek_workers_add(s->workers, &p->job);
    if (!err) {
        r->n_refs++;
        ek_exchange_on_gone(x, on_gone, p);
        return;
    }
    fail(p, err);
    ek_request_memory_give(&s->memory, p->counted);
    free(p);
}

static ek_err get_kept(ek_server *s, ek_exchange *x, const char *id)
{
    const uint64_t owner = ek_route_owner(s, x);
    ek_kept_receipt *r = s->receipts->newest;
    size_t size;
    while (r && (r->owner != owner || strcmp(r->id, id))) r = r->next;
    if (!r) return ek_fail(EK_ENOTFOUND, "there is no receipt %.80s here", id);
    if (!number_of(x, "size", &size)) return ek_fail(EK_EINVAL, "size: a number of entries is needed");
    if (s->receipts->log) {
        prove(s, x, r, size);
        return EK_OK;
    }
    const ek_outgoing body = {
        .part[0] = {ek_buf_text(&r->text), r->text.len}, .release = ek_kept_receipt_release, .arg = r};
    r->n_refs++;
    ek_exchange_reply_from(x, 200, "application/json", &body);
    return EK_OK;
}

void ek_receipts_get(ek_server *s, ek_exchange *x, const char *id)
{
    const ek_receipts *k = s->receipts;
    const bool keys = !strcmp(id, "keys"), log = !strncmp(id, "log/", 4);
    ek_buf text = {0};
    ek_err err = EK_OK;
    if (!k) {
        ek_route_missing(s, x, "this server signs no receipts (--receipts)");
        return;
    }
    if (keys) put_keys(&text, k);
    else err = log ? put_log(&text, k, x, id) : get_kept(s, x, id);
    if (err) ek_reply_failure(x, ek_route_form(s, x), err, err == EK_ENOTFOUND ? "id" : NULL, NULL);
    else if (keys || log) ek_reply_json(x, 200, &text);
    ek_buf_fini(&text);
}
