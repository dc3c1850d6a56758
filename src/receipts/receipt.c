/* Making and checking a receipt. */
#include "receipts/receipt.h"

#include <stdlib.h>
#include <string.h>

#include "base/encoding.h"
#include "base/hash/hash.h"
#include "receipts/canonical.h"
#include "receipts/log.h"

ek_hash ek_receipt_rows(const ek_hash *salt, const int32_t *reply, const ek_hash *row, size_t n)
{
    ek_tree_edge tree = {0};
    for (size_t t = 0; t < n; t++) {
        const ek_hash leaf = ek_commit_row(salt, (uint32_t)t, reply[t], &row[t]);
        ek_tree_add(&tree, &leaf);
    }
    return ek_tree_edge_root(&tree);
}

static ek_hash stops_of(const ek_opening *o)
{
    return ek_commit_texts(&o->secret, EK_LABEL_STOP, (const char *const *)o->stop, o->stop_len, o->n_stop);
}

static ek_hash rows_of(const ek_opening *o)
{
    const ek_hash salt = ek_commit_salt(&o->secret, EK_LABEL_ROWS);
    return ek_receipt_rows(&salt, o->reply, o->row, o->n_reply);
}

void ek_receipt_commit(ek_statement *s, const ek_opening *o, const ek_public_key *key, const char *text, size_t n_text)
{
    s->prompt.n = (int)o->n_prompt;
    s->prompt.n_media = (int)o->n_parts;
    s->prompt.commitment = ek_commit_tokens(&o->secret, EK_LABEL_PROMPT, o->prompt, o->n_prompt, o->part, o->n_parts);
    s->reply.n = (int)o->n_reply;
    s->reply.commitment = ek_commit_tokens(&o->secret, EK_LABEL_REPLY, o->reply, o->n_reply, NULL, 0);
    s->reply.text = ek_commit_bytes(&o->secret, EK_LABEL_TEXT, n_text, text, n_text);
    s->form.commitment = ek_commit_bytes(&o->secret, EK_LABEL_FORM, o->n_form, o->form, o->n_form);
    s->ends.stop = stops_of(o);
    s->rows = rows_of(o);
    memcpy(s->key, key->id, sizeof s->key);
}

/* --- the envelope --- */

/* Appends the signed message of a payload: "DSSEv1 ...". */
static void receipt_message(ek_buf *out, const void *payload, size_t n)
{
    ek_buf_fmt(out, "DSSEv1 %zu %s %zu ", strlen(EK_RECEIPT_TYPE), EK_RECEIPT_TYPE, n);
    ek_buf_add(out, payload, n);
}

static void put_tokens(ek_buf *out, const char *name, const int32_t *tokens, size_t n)
{
    ek_buf_fmt(out, ",\"%s\":[", name);
    for (size_t i = 0; i < n; i++) ek_buf_fmt(out, i ? ",%d" : "%d", (int)tokens[i]);
    ek_buf_char(out, ']');
}

static void put_parts(ek_buf *out, const ek_opening *o)
{
    ek_buf_str(out, ",\"parts\":[");
    for (size_t i = 0; i < o->n_parts; i++) {
        ek_hash h;
        char hex[65];
        memcpy(h.h, o->part[i].digest, EK_HASH);
        ek_hash_text(hex, &h);
        ek_buf_fmt(out, "%s[%d,%d,\"%s\"]", i ? "," : "", (int)o->part[i].first, (int)o->part[i].kind, hex);
    }
    ek_buf_char(out, ']');
}

static void put_opening(ek_buf *out, const ek_opening *o)
{
    char hex[65];
    ek_hash_text(hex, &o->secret);
    ek_buf_fmt(out, ",\"opening\":{\"salt\":\"%s\"", hex);
    put_tokens(out, "prompt", o->prompt, o->n_prompt);
    put_tokens(out, "reply", o->reply, o->n_reply);
    ek_buf_str(out, ",\"stop\":[");
    for (size_t i = 0; i < o->n_stop; i++) {
        if (i) ek_buf_char(out, ',');
        ek_json_quote(out, o->stop[i], o->stop_len[i]);
    }
    ek_buf_char(out, ']');
    if (o->form) {
        ek_buf_str(out, ",\"form\":");
        ek_json_quote(out, o->form, o->n_form);
    }
    if (o->n_parts) put_parts(out, o);
    if (o->row) {
        ek_buf_str(out, ",\"row_roots\":\"");
        ek_base64_encode(out, o->row, o->n_reply * sizeof *o->row);
        ek_buf_char(out, '"');
    }
    ek_buf_char(out, '}');
}

static void put_envelope(ek_buf *out, const void *payload, size_t n, const char *keyid, const uint8_t *sig)
{
    ek_buf_str(out, "{\"payloadType\":\"" EK_RECEIPT_TYPE "\",\"payload\":\"");
    ek_base64_encode(out, payload, n);
    ek_buf_fmt(out, "\",\"signatures\":[{\"keyid\":\"%s\",\"sig\":\"", keyid);
    ek_base64_encode(out, sig, EK_SIGNATURE);
    ek_buf_str(out, "\"}]");
}

ek_err ek_receipt_seal(ek_buf *out, const void *payload, size_t n, const ek_signing_key *key)
{
    ek_buf message = {0};
    uint8_t sig[EK_SIGNATURE];
    receipt_message(&message, payload, n);
    const ek_err err = ek_sign(key, sig, message.data, message.len);
    if (!err) put_envelope(out, payload, n, ek_signing_key_public(key)->id, sig);
    ek_buf_fini(&message);
    return err;
}

static void hash_envelope(ek_hash *out, const char *text, size_t n)
{
    ek_sha256_state s;
    ek_sha256_init(&s);
    ek_sha256_add(&s, text, n);
    ek_sha256_add(&s, "}", 1);
    ek_sha256_end_bytes(&s, out->h);
}

void ek_receipt_entry(ek_hash *out, const ek_receipt *r)
{
    ek_buf text = {0};
    put_envelope(&text, r->payload.data, r->payload.len, r->signature[0].keyid, r->signature[0].sig);
    hash_envelope(out, text.data, text.len);
    ek_buf_fini(&text);
}

ek_err ek_receipt_write(ek_buf *out, const ek_statement *s, const ek_opening *o, const ek_signing_key *key,
                        struct ek_receipt_log *log)
{
    ek_buf payload = {0};
    ek_hash entry;
    size_t index = 0;
    const size_t from = out->len;
    ek_statement_write(&payload, s);
    ek_err err = ek_receipt_seal(out, payload.data, payload.len, key);
    ek_buf_fini(&payload);
    if (!err && log) {
        hash_envelope(&entry, out->data + from, out->len - from);
        err = ek_receipt_log_add(log, &entry, NULL, &index);
    }
    if (err) return err;
    if (o) put_opening(out, o);
    if (log) ek_buf_fmt(out, ",\"log\":{\"origin\":\"%s\",\"index\":%zu}", ek_receipt_log_origin(log), index);
    ek_buf_char(out, '}');
    return EK_OK;
}

/* --- checking --- */

ek_err ek_receipt_signed(ek_signed *out, const ek_receipt *r, const ek_public_key *key)
{
    ek_buf message = {0};
    bool good = false, named = !strcmp(r->statement.key, key->id);
    ek_err err = EK_OK;
    receipt_message(&message, r->payload.data, r->payload.len);
    for (int i = 0; !err && !good && i < r->n_signatures; i++) {
        err = ek_signature_check(&good, key, r->signature[i].sig, message.data, message.len);
        named |= !strcmp(r->signature[i].keyid, key->id);
    }
    ek_buf_fini(&message);
    /* Nobody signed an envelope's keyid, so it is only a hint. The key in the statement is signed. */
    if (good && *r->statement.key && strcmp(r->statement.key, key->id)) good = false;
    *out = good ? EK_SIGNED_GOOD : named ? EK_SIGNED_WRONG : EK_SIGNED_OTHER;
    return err;
}

static bool same_tokens(const ek_receipt *r, bool prompt)
{
    const ek_opening *o = &r->opening;
    const ek_statement *s = &r->statement;
    const size_t n = prompt ? o->n_prompt : o->n_reply;
    if (!s->hides && n != (size_t)(prompt ? s->prompt.n : s->reply.n)) return false;
    if (!s->hides && prompt && o->n_parts != (size_t)s->prompt.n_media) return false;
    const ek_hash h = prompt ? ek_commit_tokens(&o->secret, EK_LABEL_PROMPT, o->prompt, n, o->part, o->n_parts)
                             : ek_commit_tokens(&o->secret, EK_LABEL_REPLY, o->reply, n, NULL, 0);
    return ek_hash_equal(&h, prompt ? &s->prompt.commitment : &s->reply.commitment);
}

const char *ek_receipt_opens(const ek_receipt *r)
{
    const ek_opening *o = &r->opening;
    const ek_statement *s = &r->statement;
    if (o->prompt && !same_tokens(r, true)) return "the prompt's tokens";
    if (o->reply && !same_tokens(r, false)) return "the reply's tokens";
    const ek_hash stop = stops_of(o), form = ek_commit_bytes(&o->secret, EK_LABEL_FORM, o->n_form, o->form, o->n_form);
    if (!ek_hash_equal(&stop, &s->ends.stop)) return "the stop strings";
    if (!ek_hash_equal(&form, &s->form.commitment)) return "the form";
    if (!o->row || !o->reply) return NULL;
    const ek_hash rows = rows_of(o);
    return ek_hash_equal(&rows, &s->rows) ? NULL : "the roots of the rows";
}

/* --- the text for people --- */

/* A float in the signed form, and in the form for people. */
static void show_float(ek_buf *out, const char *digits)
{
    char *end;
    const uint32_t bits = (uint32_t)strtoul(digits, &end, 16);
    float x;
    memcpy(&x, &bits, sizeof x);
    if (strlen(digits) == 8 && !*end) ek_buf_fmt(out, " (%.9g)", x);
}

static void show_value(ek_buf *out, const json_t *v, const char *path)
{
    if (json_is_object(v)) {
        json_t *o = (json_t *)(uintptr_t)v;
        for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it)) {
            ek_buf name = {0};
            ek_buf_fmt(&name, "%s%s%s", path, *path ? "." : "", json_object_iter_key(it));
            show_value(out, json_object_iter_value(it), ek_buf_text(&name));
            ek_buf_fini(&name);
        }
        return;
    }
    ek_buf text = {0};
    ek_json_write(&text, v);
    ek_buf_fmt(out, "%-28s ", path);
    if (json_is_string(v)) ek_json_escape(out, json_string_value(v), json_string_length(v)); /* one line */
    else ek_buf_str(out, ek_buf_text(&text));
    if (json_is_string(v) && !strncmp(path, "sampling.", 9)) show_float(out, json_string_value(v));
    ek_buf_char(out, '\n');
    ek_buf_fini(&text);
}

void ek_receipt_show(ek_buf *out, const ek_receipt *r)
{
    json_t *o = NULL;
    if (ek_json_read(&o, r->payload.data, r->payload.len, 0)) return; /* the payload was parsed before */
    show_value(out, json_object_get(o, "predicate"), "");
    json_decref(o);
    for (int i = 0; i < r->n_signatures; i++)
        ek_buf_fmt(out, "%-28s %s\n", "signed as it says by", r->signature[i].keyid);
    ek_buf_fmt(out, "%-28s ", "opened beside it");
    if (!r->has_opening) ek_buf_str(out, "nothing\n");
    else
        ek_buf_fmt(out, "%zu tokens of the prompt, %zu of the reply, %s\n", r->opening.n_prompt, r->opening.n_reply,
                   r->opening.row ? "roots of the rows" : "no roots of rows");
}
