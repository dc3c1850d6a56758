/* Converts between a line of a cassette and a record. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/encoding.h"
#include "replies/ask.h"
#include "replies/cassette.h"

/* --- out --- */

static void put_base64(ek_buf *out, const char *key, const void *bytes, size_t n)
{
    ek_buf_fmt(out, ",\"%s\":\"", key);
    ek_base64_encode(out, bytes, n);
    ek_buf_char(out, '"');
}

/* Writes the line up to its sum, which covers this part. */
static void put_line(ek_buf *out, const ek_reply_record *r, const ek_reply_key *key, const ek_reply_ask *ask,
                     char sum[65])
{
    char text[EK_REPLY_KEY_TEXT];
    const size_t from = out->len, n = (size_t)ek_reply_record_tokens(r), n_probs = (size_t)ek_reply_record_n_probs(r);
    ek_reply_key_text(text, key);
    ek_buf_fmt(out, "{\"key\":\"%s\",\"ask\":", text);
    ek_reply_ask_write(out, ask);
    ek_buf_str(out, ",\"tokens\":[");
    for (int i = 0; i < (int)n; i++) ek_buf_fmt(out, "%s%d", i ? "," : "", ek_reply_record_token(r, i));
    ek_buf_char(out, ']');
    put_base64(out, "rows", ek_reply_record_rows(r), 8 * n);
    if (n_probs > 0) put_base64(out, "probs", ek_reply_record_all_probs(r), EK_REPLY_PROBS * n_probs);
    else ek_buf_str(out, ",\"probs\":null");
    ek_sha256_hex(sum, out->data + from, out->len - from);
    ek_buf_fmt(out, ",\"sum\":\"%s\"", sum);
}

ek_err ek_cassette_line(ek_buf *out, const ek_reply_record *r, const char *identity, const ek_buf *text,
                        ek_reply_key *key, char sum[65])
{
    char own[65];
    size_t n;
    ek_reply_key content;
    ek_reply_asked asked;
    json_t *v;
    const char *ask = ek_reply_record_ask(r, &n);
    if (n == 0) return ek_fail(EK_EINVAL, "what was asked was not kept with this reply (--cache-replies-prompts)");
    EK_TRY(ek_json_read(&v, ask, n, 0));
    const ek_err err = ek_reply_ask_read(&asked, v, identity);
    json_decref(v);
    if (!err) {
        ek_reply_content_key(&content, &asked.ask);
        if (key) *key = content;
        put_line(out, r, &content, &asked.ask, sum ? sum : own);
        if (text) ek_buf_str(out, ",\"text\":"), ek_json_quote(out, ek_buf_text(text), text->len);
        ek_buf_str(out, "}\n");
    }
    ek_reply_asked_fini(&asked);
    return err;
}

void ek_cassette_head(ek_buf *out, const char *identity)
{
    ek_buf_fmt(out, "{\"evenkeel_replies\":%d,\"identity\":", EK_CASSETTE_VERSION);
    ek_json_quote(out, identity, strlen(identity));
    ek_buf_str(out, "}\n");
}

void ek_cassette_end_init(ek_cassette_end *e)
{
    e->entries = 0;
    ek_sha256_init(&e->sums);
}

void ek_cassette_end_add(ek_cassette_end *e, const char sum[65])
{
    e->entries++;
    ek_sha256_add(&e->sums, sum, 64);
}

void ek_cassette_message(ek_buf *out, const char *identity, size_t entries, const char sum[65])
{
    ek_buf_fmt(out, "evenkeel.replies.%d %zu %s %zu %s", EK_CASSETTE_VERSION, strlen(identity), identity, entries, sum);
}

ek_err ek_cassette_end_line(ek_buf *out, const char *identity, ek_cassette_end *e, const ek_cassette_signer *signer)
{
    char sum[65];
    ek_buf message = {0}, signature = {0};
    ek_sha256_end(&e->sums, sum);
    ek_cassette_message(&message, identity, e->entries, sum);
    const ek_err err = signer ? signer->sign(signer->arg, &signature, ek_buf_text(&message), message.len) : EK_OK;
    if (!err) {
        ek_buf_fmt(out, "{\"entries\":%zu,\"sum\":\"%s\"", e->entries, sum);
        if (signer) ek_buf_fmt(out, ",\"key\":\"%s\",\"signature\":\"%s\"", signer->key, ek_buf_text(&signature));
        ek_buf_str(out, "}\n");
    }
    ek_buf_fini(&message);
    ek_buf_fini(&signature);
    return err;
}

/* --- in --- */

/* Reads at most n pieces of `each` bytes. */
static ek_err read_base64(ek_buf *out, const json_t *v, const char *key, size_t n, size_t each)
{
    size_t digits = 0;
    const char *text = ek_json_get_text(v, key, &digits);
    if (!text || !ek_base64_decode(out, text, digits) || out->len % each || out->len > n * each)
        return ek_fail(EK_EFORMAT, "%s has no base64 of %zu bytes for each of %zu tokens", key, each, n);
    return EK_OK;
}

static ek_err read_tokens(ek_reply_draft *d, const json_t *tokens, int n_vocab)
{
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        const json_t *token = json_array_get(tokens, i);
        if (!json_is_integer(token) || json_integer_value(token) < 0 || json_integer_value(token) >= n_vocab)
            return ek_fail(EK_EFORMAT, "token %zu of the reply is none of the vocabulary's %d", i, n_vocab);
        ek_buf_le(&d->tokens, (uint64_t)json_integer_value(token), 4);
    }
    return EK_OK;
}

static ek_err read_reply(ek_reply_draft *d, const json_t *v, int n_vocab)
{
    const json_t *tokens = ek_json_get(v, "tokens");
    const size_t n = json_array_size(tokens);
    if (!json_is_array(tokens) || n < 1 || n > EK_REPLY_MAX_TOKENS)
        return ek_fail(EK_EFORMAT, "tokens is no list of 1 to %d tokens", EK_REPLY_MAX_TOKENS);
    EK_TRY(read_base64(&d->rows, v, "rows", n, 8));
    if (d->rows.len != 8 * n) return ek_fail(EK_EFORMAT, "rows are %zu, tokens %zu", d->rows.len / 8, n);
    if (!json_is_null(ek_json_get(v, "probs"))) EK_TRY(read_base64(&d->probs, v, "probs", n, EK_REPLY_PROBS));
    d->n = (int)n;
    d->n_probs = (int)(d->probs.len / EK_REPLY_PROBS);
    EK_TRY(read_tokens(d, tokens, n_vocab));
    return ek_reply_draft_check_probs(d, n_vocab);
}

/* The line's sum covers its own key. The key has to be that of the request. */
static ek_err check(const ek_reply_record *r, const json_t *v, const ek_reply_asked *asked, char sum[65])
{
    ek_reply_key content;
    ek_buf line = {0};
    size_t n = 0;
    put_line(&line, r, ek_reply_record_key(r), &asked->ask, sum);
    ek_buf_fini(&line);
    const char *given = ek_json_get_text(v, "sum", &n);
    if (!given || n != 64 || memcmp(given, sum, 64) != 0) return ek_fail(EK_EFORMAT, "its sum is wrong: it is damaged");
    ek_reply_content_key(&content, &asked->ask);
    if (memcmp(content.h, ek_reply_record_key(r)->h, sizeof content.h) != 0)
        return ek_fail(EK_EFORMAT, "its key is not that of its request");
    return EK_OK;
}

static ek_err read_line(ek_reply_record **out, const json_t *v, ek_reply_asked *asked, const char *identity,
                        int n_vocab, bool with_ask, char sum[65])
{
    static const char *const names[] = {"key", "ask", "tokens", "rows", "probs", "sum", "text", NULL};
    ek_reply_draft d = {0};
    ek_reply_key key;
    size_t n = 0;
    EK_TRY(ek_cassette_only(v, "the line", names));
    const char *hex = ek_json_get_text(v, "key", &n);
    if (!hex || !ek_reply_key_read(&key, hex, n)) return ek_fail(EK_EFORMAT, "key is no SHA-256");
    EK_TRY(ek_reply_ask_read(asked, ek_json_get(v, "ask"), identity));
    ek_err err = read_reply(&d, v, n_vocab);
    if (err) {
        ek_reply_draft_fini(&d);
        return err;
    }
    ek_buf ask = {0};
    if (with_ask) ek_reply_ask_write(&ask, &asked->ask);
    ek_reply_record *r = ek_reply_record_make(&key, &d, with_ask ? ek_buf_text(&ask) : NULL, ask.len);
    ek_buf_fini(&ask);
    err = check(r, v, asked, sum);
    if (err) {
        ek_reply_record_release(r);
        return err;
    }
    ek_reply_record_set_origin(r, EK_REPLY_FILE);
    *out = r;
    return EK_OK;
}

ek_err ek_cassette_line_read(ek_reply_record **out, const char *line, size_t n, const char *identity, int n_vocab,
                             bool with_ask, char sum[65])
{
    json_t *v;
    ek_reply_asked asked = {0};
    EK_TRY(ek_json_read(&v, line, n, EK_CASSETTE_LINE));
    const ek_err err = read_line(out, v, &asked, identity, n_vocab, with_ask, sum);
    ek_reply_asked_fini(&asked);
    json_decref(v);
    return err;
}
