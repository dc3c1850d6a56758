/* A server's keys, and the receipts that can be read once more. Event thread. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/encoding.h"
#include "base/log.h"
#include "serve/receipts_state.h"
#include "serve/routes.h"

enum { MAX_KEPT = 4096, MAX_BYTES = 64 << 20 };

ek_err ek_receipts_open(ek_server *s, const ek_server_opts *o)
{
    if (!o->receipt_key) return EK_OK;
    ek_signing_key *key;
    EK_TRY(ek_signing_key_open(&key, o->receipt_key));
    ek_receipts *k = ek_alloc(sizeof *k);
    k->key_file = ek_strdup(o->receipt_key);
    memcpy(k->weights, o->weights_sha256, sizeof k->weights);
    memcpy(k->tokenizer, o->tokenizer_sha256, sizeof k->tokenizer);
    k->keys = ek_alloc(sizeof *k->keys);
    *k->keys = (ek_server_key){.key = key, .from = ek_unix_time()};
    s->receipts = k;
    ek_log(EK_LOG_INFO, "event=receipts key=%s weights=%s", ek_signing_key_public(key)->id, k->weights);
    return EK_OK;
}

static void drop_oldest(ek_receipts *k)
{
    ek_kept_receipt *r = k->oldest;
    k->oldest = r->newer;
    if (k->oldest) k->oldest->next = NULL;
    else k->newest = NULL;
    k->n_kept--;
    k->kept_bytes -= r->text.len;
    ek_buf_fini(&r->text);
    free(r->id);
    free(r);
}

void ek_receipts_close(ek_server *s)
{
    ek_receipts *k = s->receipts;
    if (!k) return;
    while (k->oldest) drop_oldest(k);
    for (ek_server_key *key; (key = k->keys) != NULL;) {
        k->keys = key->older;
        ek_signing_key_close(key->key);
        free(key);
    }
    free(k->key_file);
    free(k);
    s->receipts = NULL;
}

void ek_receipts_reload(ek_server *s)
{
    ek_receipts *k = s->receipts;
    ek_signing_key *key;
    if (!k) return;
    if (ek_signing_key_open(&key, k->key_file)) {
        ek_log(EK_LOG_ERROR, "event=receipts_key_stays reason=\"%s\"", ek_err_text());
        return;
    }
    if (!strcmp(ek_signing_key_public(key)->id, ek_signing_key_public(k->keys->key)->id)) {
        ek_signing_key_close(key);
        return;
    }
    ek_server_key *next = ek_alloc(sizeof *next);
    k->keys->until = ek_unix_time();
    *next = (ek_server_key){.older = k->keys, .key = key, .from = k->keys->until};
    k->keys = next;
    ek_log(EK_LOG_INFO, "event=receipts_key key=%s before=%s", ek_signing_key_public(key)->id,
           ek_signing_key_public(next->older->key)->id);
}

const ek_signing_key *ek_receipts_key(const ek_server *s)
{
    return s->receipts ? s->receipts->keys->key : NULL;
}

uint64_t ek_receipts_count(const ek_server *s)
{
    return s->receipts ? s->receipts->made : 0;
}

void ek_receipts_keep(ek_server *s, uint64_t owner, const char *id, ek_buf *text)
{
    ek_receipts *k = s->receipts;
    k->made++;
    if (text->len > MAX_BYTES / 4) {
        ek_buf_fini(text);
        return;
    }
    ek_kept_receipt *r = ek_alloc(sizeof *r);
    *r = (ek_kept_receipt){.next = k->newest, .owner = owner, .id = ek_strdup(id), .text = *text};
    *text = (ek_buf){0};
    if (r->next) r->next->newer = r;
    else k->oldest = r;
    k->newest = r;
    k->n_kept++;
    k->kept_bytes += r->text.len;
    while (k->n_kept > MAX_KEPT || k->kept_bytes > MAX_BYTES) drop_oldest(k);
}

/* --- reading --- */

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

void ek_receipts_get(ek_server *s, ek_exchange *x, const char *id)
{
    const ek_receipts *k = s->receipts;
    ek_buf text = {0};
    if (!k) {
        ek_route_missing(s, x, "this server signs no receipts (--receipts)");
        return;
    }
    if (!strcmp(id, "keys")) {
        put_keys(&text, k);
        ek_reply_json(x, 200, &text);
        ek_buf_fini(&text);
        return;
    }
    const uint64_t owner = ek_route_owner(s, x);
    const ek_kept_receipt *r = k->newest;
    while (r && (r->owner != owner || strcmp(r->id, id))) r = r->next;
    if (r) {
        ek_reply_json(x, 200, &r->text);
        return;
    }
    ek_fail(EK_ENOTFOUND, "there is no receipt %.80s here", id);
    ek_reply_failure(x, ek_route_form(s, x), EK_ENOTFOUND, "id", NULL);
}
