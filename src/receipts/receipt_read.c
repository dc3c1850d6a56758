/* Reading a receipt from untrusted bytes. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/encoding.h"
#include "receipts/receipt.h"

enum { DEPTH = 64, MAX_LIST = 1024, MAX_VALUES = 4 << 20 }; /* of a file */

static ek_err wrong(const char *what, const char *need)
{
    return ek_fail(EK_EFORMAT, "%s: %s is needed", what, need);
}

/* --- the opening --- */

static ek_err read_tokens(int32_t **out, size_t *n, const json_t *o, const char *name)
{
    const json_t *list = ek_json_get(o, name);
    if (!list) return EK_OK;
    if (!json_is_array(list)) return wrong(name, "a list of tokens");
    *n = json_array_size(list);
    *out = ek_alloc((*n + 1) * sizeof **out);
    for (size_t i = 0; i < *n; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX)
            return wrong(name, "a list of tokens");
        (*out)[i] = (int32_t)json_integer_value(v);
    }
    return EK_OK;
}

static ek_err read_hash(ek_hash *out, const json_t *o, const char *name)
{
    size_t n;
    const char *text = ek_json_get_text(o, name, &n);
    return text && ek_hash_read(out, text, n) ? EK_OK : wrong(name, "a text of 64 hexadecimal digits");
}

static ek_err read_stops(ek_opening *out, const json_t *o)
{
    const json_t *list = ek_json_get(o, "stop");
    if (!list) return EK_OK;
    if (!json_is_array(list) || json_array_size(list) > EK_RECEIPT_STOPS) return wrong("stop", "a list of few texts");
    out->stop = ek_alloc((json_array_size(list) + 1) * sizeof *out->stop);
    out->stop_len = ek_alloc((json_array_size(list) + 1) * sizeof *out->stop_len);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        if (!ek_json_is_text(v)) return wrong("stop", "a list of few texts");
        const size_t n = json_string_length(v);
        out->stop[i] = ek_alloc(n + 1);
        memcpy(out->stop[i], json_string_value(v), n);
        out->stop_len[i] = n;
        out->n_stop++;
    }
    return EK_OK;
}

static ek_err read_parts(ek_opening *out, const json_t *o)
{
    const json_t *list = ek_json_get(o, "parts");
    if (!list) return EK_OK;
    if (!json_is_array(list)) return wrong("parts", "a list");
    out->part = ek_alloc((json_array_size(list) + 1) * sizeof *out->part);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i), *first = json_array_get(v, 0), *kind = json_array_get(v, 1),
                     *digest = json_array_get(v, 2);
        ek_hash h;
        if (!json_is_integer(first) || json_integer_value(first) < 0 || json_integer_value(first) > INT32_MAX ||
            !json_is_integer(kind) || json_integer_value(kind) < 0 || json_integer_value(kind) > 16 ||
            !ek_json_is_text(digest) || !ek_hash_read(&h, json_string_value(digest), json_string_length(digest)))
            return wrong("parts", "a list of [position, kind, digest]");
        out->part[i] = (ek_commit_part){(int32_t)json_integer_value(first), (int32_t)json_integer_value(kind), {0}};
        memcpy(out->part[i].digest, h.h, EK_HASH);
        out->n_parts++;
    }
    return EK_OK;
}

static ek_err read_roots(ek_opening *out, const json_t *o)
{
    size_t n;
    ek_buf bytes = {0};
    const char *text = ek_json_get_text(o, "row_roots", &n);
    if (!text) return ek_json_get(o, "row_roots") ? wrong("row_roots", "a text") : EK_OK;
    const bool good = out->reply && ek_base64_decode(&bytes, text, n) && bytes.len == out->n_reply * EK_HASH;
    if (good) {
        out->row = ek_alloc(bytes.len + 1);
        if (bytes.len) memcpy(out->row, bytes.data, bytes.len);
    }
    ek_buf_fini(&bytes);
    return good ? EK_OK : wrong("row_roots", "base64 of 32 bytes for each token of the reply");
}

static ek_err read_opening(ek_receipt *r, const json_t *o)
{
    ek_opening *out = &r->opening;
    size_t n;
    if (!o) return EK_OK;
    if (!json_is_object(o)) return wrong("opening", "an object");
    EK_TRY(read_hash(&out->secret, o, "salt"));
    EK_TRY(read_tokens(&out->prompt, &out->n_prompt, o, "prompt"));
    EK_TRY(read_tokens(&out->reply, &out->n_reply, o, "reply"));
    EK_TRY(read_stops(out, o));
    EK_TRY(read_parts(out, o));
    const char *form = ek_json_get_text(o, "form", &n);
    if (form) {
        out->form = ek_alloc(n + 1);
        memcpy(out->form, form, n);
        out->n_form = n;
    }
    EK_TRY(read_roots(out, o));
    r->has_opening = true;
    return EK_OK;
}

/* --- the envelope --- */

static ek_err read_signatures(ek_receipt *r, const json_t *list)
{
    const size_t count = json_array_size(list);
    if (count < 1 || count > EK_RECEIPT_SIGNATURES)
        return ek_fail(EK_EFORMAT, "signatures: a list of 1 to %d is needed, this has %zu", EK_RECEIPT_SIGNATURES,
                       count);
    for (size_t i = 0; i < count; i++) {
        size_t n, n_id = 0;
        ek_buf bytes = {0};
        const json_t *s = json_array_get(list, i);
        const char *sig = ek_json_get_text(s, "sig", &n), *id = ek_json_get_text(s, "keyid", &n_id);
        const bool good = sig && n < 256 && ek_base64_decode(&bytes, sig, n) && bytes.len == EK_SIGNATURE;
        if (good) memcpy(r->signature[i].sig, bytes.data, EK_SIGNATURE);
        ek_hash h;
        if (id && ek_hash_read(&h, id, n_id)) ek_hash_text(r->signature[i].keyid, &h);
        ek_buf_fini(&bytes);
        if (!good) return wrong("signatures", "base64 of 64 bytes in sig");
        r->n_signatures++;
    }
    return EK_OK;
}

static ek_err read_envelope(ek_receipt *r, const json_t *o)
{
    size_t n;
    const char *type = ek_json_get_text(o, "payloadType", &n);
    if (!type || strcmp(type, EK_RECEIPT_TYPE)) return wrong("payloadType", EK_RECEIPT_TYPE);
    const char *payload = ek_json_get_text(o, "payload", &n);
    if (!payload || !ek_base64_decode(&r->payload, payload, n)) return wrong("payload", "base64");
    EK_TRY(read_signatures(r, ek_json_get(o, "signatures")));
    EK_TRY(ek_statement_read(&r->statement, r->payload.data ? r->payload.data : "", r->payload.len));
    EK_TRY(read_opening(r, ek_json_get(o, "opening")));
    const json_t *log = ek_json_get(o, "log");
    if (log && !json_is_object(log)) return wrong("log", "an object");
    if (log) r->log = json_incref((json_t *)(uintptr_t)log);
    return EK_OK;
}

/* Finds the receipts in a file that a client kept. */
static const json_t *find(const json_t *o)
{
    if (json_is_array(o) || ek_json_get(o, "payload")) return o;
    if (ek_json_get(o, "response")) o = ek_json_get(o, "response"); /* the last event of a response's stream */
    if (ek_json_get(o, "evenkeel")) o = ek_json_get(o, "evenkeel");
    return ek_json_get(o, "receipt");
}

static ek_err check_size(const char *text, size_t n)
{
    ek_json_size size;
    if (n > EK_RECEIPT_BYTES) return ek_fail(EK_EFORMAT, "%zu bytes, at most %zu are taken", n, EK_RECEIPT_BYTES);
    ek_json_scan(&size, text, n);
    if (size.depth > DEPTH || size.values > MAX_VALUES)
        return ek_fail(EK_EFORMAT, "%zu values in a depth of %zu, at most %d in %d are taken", size.values, size.depth,
                       MAX_VALUES, DEPTH);
    return EK_OK;
}

ek_err ek_receipts_parse(json_t **out, int *n_receipts, const char *text, size_t n)
{
    *out = NULL;
    *n_receipts = 0;
    EK_TRY(check_size(text, n));
    if (ek_json_read(out, text, n, EK_RECEIPT_BYTES)) {
        *out = NULL;
        return EK_EFORMAT; /* the sentence is the reader's */
    }
    const json_t *found = find(*out);
    const size_t count = json_is_array(found) ? json_array_size(found) : found ? 1 : 0;
    if (count == 0 || count > MAX_LIST) {
        json_decref(*out);
        *out = NULL;
        return ek_fail(count ? EK_EFORMAT : EK_ENOTFOUND, "%zu receipts in it, 1 to %d are taken", count, MAX_LIST);
    }
    *n_receipts = (int)count;
    return EK_OK;
}

/* The lengths are believed like the tokens: if the commitments match. */
static void take_lengths(ek_receipt *r)
{
    const ek_opening *o = &r->opening;
    ek_statement *s = &r->statement;
    if (!s->hides || !r->has_opening) return;
    if (o->prompt) s->prompt.n = (int)o->n_prompt, s->prompt.n_media = (int)o->n_parts;
    if (o->reply) s->reply.n = (int)o->n_reply;
}

ek_err ek_receipt_of_file(ek_receipt *out, const json_t *file, int i)
{
    const json_t *found = find(file);
    const size_t count = json_is_array(found) ? json_array_size(found) : found ? 1 : 0;
    *out = (ek_receipt){0};
    if (i < 0 || (size_t)i >= count)
        return ek_fail(EK_ENOTFOUND, "no receipt %d: there are %zu, counted from 0", i, count);
    EK_TRY(read_envelope(out, json_is_array(found) ? json_array_get(found, (size_t)i) : found));
    take_lengths(out);
    return EK_OK;
}

ek_err ek_receipt_read(ek_receipt *out, const char *text, size_t n, int i, int *n_receipts)
{
    int count;
    json_t *file;
    *out = (ek_receipt){0};
    const ek_err parsed = ek_receipts_parse(&file, &count, text, n);
    if (n_receipts) *n_receipts = count;
    EK_TRY(parsed);
    const ek_err err = ek_receipt_of_file(out, file, i);
    json_decref(file);
    return err;
}

void ek_receipt_fini(ek_receipt *r)
{
    ek_opening *o = &r->opening;
    ek_buf_fini(&r->payload);
    ek_statement_fini(&r->statement);
    free(o->prompt), free(o->reply), free(o->form), free(o->part), free(o->row);
    for (size_t i = 0; i < o->n_stop; i++) free(o->stop[i]);
    free(o->stop), free(o->stop_len);
    json_decref(r->log);
    *r = (ek_receipt){0};
}
