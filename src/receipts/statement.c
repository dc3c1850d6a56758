#include "receipts/statement.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/encoding.h"
#include "base/hash/hash.h"
#include "receipts/canonical.h"

enum { PAYLOAD_LIMIT = 8 << 20, MAX_VALUES = 1 << 20, MAX_NAME = 1024 };

static const char type[] = "https://in-toto.io/Statement/v1", predicate_type[] = "urn:evenkeel:receipt:1";
static const char *const sources[EK_SEED_SOURCES] = {"none", "client", "nonce", "server"};

bool ek_nonce_fits(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (text[i] < ' ' || text[i] > '~') return false;
    return n > 0 && n <= EK_NONCE_MAX;
}

uint64_t ek_nonce_seed(const char *nonce, const int32_t *prompt, size_t n)
{
    ek_sha256_state s;
    uint8_t h[32];
    ek_sha256_init(&s);
    ek_sha256_add(&s, nonce, strlen(nonce));
    for (size_t i = 0; i < n; i++) {
        uint8_t b[4];
        ek_put_le(b, (uint32_t)prompt[i], 4);
        ek_sha256_add(&s, b, sizeof b);
    }
    ek_sha256_end_bytes(&s, h);
    return ek_get_le(h, 8) >> 11;
}

void ek_statement_time(char out[EK_STATEMENT_TIME], int64_t seconds)
{
    const time_t t = (time_t)seconds;
    struct tm tm;
    gmtime_r(&t, &tm);
    strftime(out, EK_STATEMENT_TIME, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

/* --- writing --- */

static json_t *hex_of(const ek_hash *h)
{
    char text[65];
    ek_hash_text(text, h);
    return json_string(text);
}

static json_t *float_of(float x)
{
    char text[9];
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    snprintf(text, sizeof text, "%08x", bits);
    return json_string(text);
}

static json_t *sampling_of(const ek_statement *s)
{
    char seed[24];
    json_t *o = json_object(), *bias = json_array();
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)s->sampling.seed);
    for (int i = 0; i < s->sampling.n_bias; i++) {
        json_t *pair = json_array();
        json_array_append_new(pair, json_integer(s->sampling.bias[i].token));
        json_array_append_new(pair, float_of(s->sampling.bias[i].bias));
        json_array_append_new(bias, pair);
    }
    json_object_set_new(o, "bias", bias);
    json_object_set_new(o, "temperature", float_of(s->sampling.temperature));
    json_object_set_new(o, "top_p", float_of(s->sampling.top_p));
    json_object_set_new(o, "min_p", float_of(s->sampling.min_p));
    json_object_set_new(o, "repetition_penalty", float_of(s->sampling.repetition_penalty));
    json_object_set_new(o, "presence_penalty", float_of(s->sampling.presence_penalty));
    json_object_set_new(o, "frequency_penalty", float_of(s->sampling.frequency_penalty));
    json_object_set_new(o, "top_k", json_integer(s->sampling.top_k));
    json_object_set_new(o, "seed", json_string(seed));
    json_object_set_new(o, "seed_from", json_string(sources[s->sampling.from]));
    return o;
}

static json_t *predicate_of(const ek_statement *s)
{
    json_t *o = json_object(), *part = json_object();
    json_object_set_new(o, "version", json_integer(EK_STATEMENT_VERSION));
    json_object_set_new(o, "weights_sha256", json_string(s->weights));
    json_object_set_new(o, "tokenizer_sha256", json_string(s->tokenizer));
    json_object_set_new(o, "profile", json_string(s->profile));
    json_object_set_new(o, "program", json_string(s->program));
    json_object_set_new(o, "api", json_string(s->api));
    if (!s->hides) json_object_set_new(part, "n", json_integer(s->prompt.n));
    if (!s->hides) json_object_set_new(part, "media", json_integer(s->prompt.n_media));
    json_object_set_new(part, "commitment", hex_of(&s->prompt.commitment));
    json_object_set_new(o, "prompt", part);
    json_object_set_new(o, "sampling", sampling_of(s));
    part = json_object();
    json_object_set_new(part, "any", json_boolean(s->form.any));
    json_object_set_new(part, "thinking", json_boolean(s->form.thinking));
    json_object_set_new(part, "max_thinking", json_integer(s->form.max_thinking));
    json_object_set_new(part, "commitment", hex_of(&s->form.commitment));
    json_object_set_new(o, "form", part);
    part = json_object();
    json_object_set_new(part, "max_tokens", json_integer(s->ends.max_tokens));
    json_object_set_new(part, "context", json_integer(s->ends.context));
    json_object_set_new(part, "ignore_eos", json_boolean(s->ends.ignore_eos));
    json_object_set_new(part, "special", json_boolean(s->ends.special));
    json_object_set_new(part, "plain", json_boolean(s->ends.plain));
    json_object_set_new(part, "calls", json_boolean(s->ends.calls));
    json_object_set_new(part, "one_call", json_boolean(s->ends.one_call));
    json_object_set_new(part, "stop", hex_of(&s->ends.stop));
    json_object_set_new(o, "ends", part);
    part = json_object();
    if (!s->hides) json_object_set_new(part, "n", json_integer(s->reply.n));
    json_object_set_new(part, "commitment", hex_of(&s->reply.commitment));
    json_object_set_new(part, "text", hex_of(&s->reply.text));
    json_object_set_new(part, "finish", json_string(s->reply.finish));
    json_object_set_new(o, "reply", part);
    part = json_object();
    json_object_set_new(part, "tree", json_string(EK_ROW_TREE));
    json_object_set_new(part, "root", hex_of(&s->rows));
    json_object_set_new(o, "rows", part);
    json_object_set_new(o, "time", json_string(s->time));
    json_object_set_new(o, "nonce", json_string(s->nonce));
    json_object_set_new(o, "key", json_string(s->key));
    if (s->log) json_object_set_new(o, "log", json_string(s->log));
    return o;
}

void ek_statement_write(ek_buf *out, const ek_statement *s)
{
    json_t *o = json_object(), *subject = json_object(), *digest = json_object(), *list = json_array();
    json_object_set_new(digest, "sha256", hex_of(&s->reply.commitment));
    json_object_set_new(subject, "name", json_string("reply"));
    json_object_set_new(subject, "digest", digest);
    json_array_append_new(list, subject);
    json_object_set_new(o, "_type", json_string(type));
    json_object_set_new(o, "subject", list);
    json_object_set_new(o, "predicateType", json_string(predicate_type));
    json_object_set_new(o, "predicate", predicate_of(s));
    const ek_err err = ek_canonical_write(out, o);
    EK_ASSERT(!err);
    json_decref(o);
}

/* --- reading --- */

/* An object whose read members are counted. A member that was not read is unknown. */
typedef struct reader {
    const json_t *o;
    const char *name;
    size_t n_read;
} reader;

static ek_err open_object(reader *r, const json_t *o, const char *name)
{
    *r = (reader){.o = o, .name = name};
    return json_is_object(o) ? EK_OK : ek_fail(EK_EFORMAT, "%s: an object is needed", name);
}

static ek_err all_read(const reader *r)
{
    if (json_object_size(r->o) == r->n_read) return EK_OK;
    return ek_fail(EK_EFORMAT, "%s has %zu members and %zu are known: it may mean something else", r->name,
                   json_object_size(r->o), r->n_read);
}

static const json_t *member(reader *r, const char *key)
{
    const json_t *v = json_object_get(r->o, key);
    r->n_read += v != NULL;
    return v;
}

static ek_err wrong(const reader *r, const char *key, const char *need)
{
    return ek_fail(EK_EFORMAT, "%s.%s: %s is needed", r->name, key, need);
}

static ek_err get_int(int *out, reader *r, const char *key, int min)
{
    const json_t *v = member(r, key);
    if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) >= INT_MAX)
        return ek_fail(EK_EFORMAT, "%s.%s: an integer from %d to 2^31 - 2 is needed", r->name, key, min);
    *out = (int)json_integer_value(v);
    return EK_OK;
}

static ek_err get_bool(bool *out, reader *r, const char *key)
{
    const json_t *v = member(r, key);
    if (!json_is_boolean(v)) return wrong(r, key, "true or false");
    *out = json_is_true(v);
    return EK_OK;
}

/* A text of at most max bytes, without NUL. */
static ek_err get_text(const char **out, reader *r, const char *key, size_t max)
{
    const json_t *v = member(r, key);
    if (!json_is_string(v) || json_string_length(v) > max || strlen(json_string_value(v)) != json_string_length(v))
        return ek_fail(EK_EFORMAT, "%s.%s: a text of at most %zu bytes is needed", r->name, key, max);
    *out = json_string_value(v);
    return EK_OK;
}

static ek_err get_hash(ek_hash *out, reader *r, const char *key)
{
    const char *text = "";
    EK_TRY(get_text(&text, r, key, 64));
    return ek_hash_read(out, text, strlen(text)) ? EK_OK : wrong(r, key, "64 hexadecimal digits");
}

static ek_err get_hex(char out[65], reader *r, const char *key)
{
    ek_hash h;
    EK_TRY(get_hash(&h, r, key));
    ek_hash_text(out, &h);
    return EK_OK;
}

static ek_err get_copy(char **out, reader *r, const char *key)
{
    const char *text = "";
    EK_TRY(get_text(&text, r, key, MAX_NAME));
    *out = ek_strdup(text);
    return EK_OK;
}

static bool read_float(float *out, const char *text)
{
    uint32_t bits = 0;
    for (int i = 0; i < 8; i++) {
        const char c = text[i];
        const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) return false;
        bits = bits << 4 | (uint32_t)digit;
    }
    memcpy(out, &bits, sizeof bits);
    return text[8] == '\0';
}

static ek_err get_float(float *out, reader *r, const char *key)
{
    const char *text = "";
    EK_TRY(get_text(&text, r, key, 8));
    return strlen(text) == 8 && read_float(out, text) ? EK_OK : wrong(r, key, "8 hexadecimal digits");
}

static ek_err read_bias(ek_statement *s, reader *r)
{
    const json_t *list = member(r, "bias");
    if (!json_is_array(list)) return wrong(r, "bias", "a list");
    const size_t n = json_array_size(list);
    s->sampling.bias = ek_alloc((n + 1) * sizeof *s->sampling.bias);
    for (size_t i = 0; i < n; i++) {
        const json_t *pair = json_array_get(list, i), *token = json_array_get(pair, 0), *bias = json_array_get(pair, 1);
        ek_stated_bias *b = &s->sampling.bias[i];
        if (json_array_size(pair) != 2 || !json_is_integer(token) || json_integer_value(token) < 0 ||
            json_integer_value(token) > INT_MAX || json_string_length(bias) != 8 ||
            !read_float(&b->bias, json_string_value(bias)))
            return wrong(r, "bias", "a list of [token, 8 hexadecimal digits]");
        b->token = (int32_t)json_integer_value(token);
        s->sampling.n_bias++;
    }
    return EK_OK;
}

static ek_err read_sampling(ek_statement *s, const json_t *o)
{
    reader r;
    const char *seed = "", *from = "";
    char *end;
    EK_TRY(open_object(&r, o, "sampling"));
    EK_TRY(get_float(&s->sampling.temperature, &r, "temperature"));
    EK_TRY(get_float(&s->sampling.top_p, &r, "top_p"));
    EK_TRY(get_float(&s->sampling.min_p, &r, "min_p"));
    EK_TRY(get_float(&s->sampling.repetition_penalty, &r, "repetition_penalty"));
    EK_TRY(get_float(&s->sampling.presence_penalty, &r, "presence_penalty"));
    EK_TRY(get_float(&s->sampling.frequency_penalty, &r, "frequency_penalty"));
    EK_TRY(get_int(&s->sampling.top_k, &r, "top_k", 0));
    EK_TRY(get_text(&seed, &r, "seed", 20));
    EK_TRY(get_text(&from, &r, "seed_from", 8));
    EK_TRY(read_bias(s, &r));
    errno = 0;
    s->sampling.seed = strtoull(seed, &end, 10);
    char again[24];
    snprintf(again, sizeof again, "%llu", (unsigned long long)s->sampling.seed);
    if (errno || *end || strcmp(again, seed) != 0) return wrong(&r, "seed", "a decimal number of 64 bits");
    while (s->sampling.from < EK_SEED_SOURCES && strcmp(sources[s->sampling.from], from)) s->sampling.from++;
    if (s->sampling.from == EK_SEED_SOURCES) return wrong(&r, "seed_from", "client, nonce, server or none");
    return all_read(&r);
}

static ek_err read_prompt(ek_statement *s, const json_t *o)
{
    reader r;
    EK_TRY(open_object(&r, o, "prompt"));
    s->hides = !json_object_get(o, "n");
    s->prompt.n = s->prompt.n_media = -1;
    if (!s->hides) EK_TRY(get_int(&s->prompt.n, &r, "n", 1));
    if (!s->hides) EK_TRY(get_int(&s->prompt.n_media, &r, "media", 0));
    EK_TRY(get_hash(&s->prompt.commitment, &r, "commitment"));
    return all_read(&r);
}

static ek_err read_form(ek_statement *s, const json_t *o)
{
    reader r;
    EK_TRY(open_object(&r, o, "form"));
    EK_TRY(get_bool(&s->form.any, &r, "any"));
    EK_TRY(get_bool(&s->form.thinking, &r, "thinking"));
    EK_TRY(get_int(&s->form.max_thinking, &r, "max_thinking", 0));
    EK_TRY(get_hash(&s->form.commitment, &r, "commitment"));
    return all_read(&r);
}

static ek_err read_ends(ek_statement *s, const json_t *o)
{
    reader r;
    EK_TRY(open_object(&r, o, "ends"));
    EK_TRY(get_int(&s->ends.max_tokens, &r, "max_tokens", 0));
    EK_TRY(get_int(&s->ends.context, &r, "context", 1));
    EK_TRY(get_bool(&s->ends.ignore_eos, &r, "ignore_eos"));
    EK_TRY(get_bool(&s->ends.special, &r, "special"));
    EK_TRY(get_bool(&s->ends.plain, &r, "plain"));
    EK_TRY(get_bool(&s->ends.calls, &r, "calls"));
    EK_TRY(get_bool(&s->ends.one_call, &r, "one_call"));
    EK_TRY(get_hash(&s->ends.stop, &r, "stop"));
    return all_read(&r);
}

static ek_err read_reply(ek_statement *s, const json_t *o)
{
    reader r;
    const char *finish = "";
    EK_TRY(open_object(&r, o, "reply"));
    s->reply.n = -1;
    if (!s->hides) EK_TRY(get_int(&s->reply.n, &r, "n", 0));
    EK_TRY(get_hash(&s->reply.commitment, &r, "commitment"));
    EK_TRY(get_hash(&s->reply.text, &r, "text"));
    EK_TRY(get_text(&finish, &r, "finish", EK_FINISH_TEXT - 1));
    snprintf(s->reply.finish, sizeof s->reply.finish, "%s", finish);
    return all_read(&r);
}

static ek_err read_rows(ek_statement *s, const json_t *o)
{
    reader r;
    const char *tree = "";
    EK_TRY(open_object(&r, o, "rows"));
    EK_TRY(get_text(&tree, &r, "tree", 64));
    if (strcmp(tree, EK_ROW_TREE)) return wrong(&r, "tree", EK_ROW_TREE);
    EK_TRY(get_hash(&s->rows, &r, "root"));
    return all_read(&r);
}

/* Checks the places of digits, so that comparing two times as texts compares the times. */
static bool is_time(const char *t)
{
    static const char form[] = "0000-00-00T00:00:00Z";
    for (int i = 0; form[i]; i++)
        if (form[i] == '0' ? t[i] < '0' || t[i] > '9' : t[i] != form[i]) return false;
    return t[sizeof form - 1] == '\0';
}

static ek_err read_predicate(ek_statement *s, const json_t *o)
{
    reader r;
    int version = 0;
    const char *text = "";
    EK_TRY(open_object(&r, o, "predicate"));
    EK_TRY(get_int(&version, &r, "version", 0));
    if (version != EK_STATEMENT_VERSION)
        return ek_fail(EK_EFORMAT, "a receipt of version %d; this program knows version %d", version,
                       EK_STATEMENT_VERSION);
    EK_TRY(get_hex(s->weights, &r, "weights_sha256"));
    EK_TRY(get_hex(s->tokenizer, &r, "tokenizer_sha256"));
    EK_TRY(get_copy(&s->profile, &r, "profile"));
    EK_TRY(get_copy(&s->program, &r, "program"));
    EK_TRY(get_copy(&s->api, &r, "api"));
    EK_TRY(read_prompt(s, member(&r, "prompt")));
    EK_TRY(read_sampling(s, member(&r, "sampling")));
    EK_TRY(read_form(s, member(&r, "form")));
    EK_TRY(read_ends(s, member(&r, "ends")));
    EK_TRY(read_reply(s, member(&r, "reply")));
    EK_TRY(read_rows(s, member(&r, "rows")));
    EK_TRY(get_text(&text, &r, "time", EK_STATEMENT_TIME - 1));
    if (!is_time(text)) return wrong(&r, "time", "a time such as 2026-11-29T12:00:00Z");
    snprintf(s->time, sizeof s->time, "%s", text);
    EK_TRY(get_text(&text, &r, "nonce", EK_NONCE_MAX));
    if (*text && !ek_nonce_fits(text, strlen(text))) return wrong(&r, "nonce", "a text of ASCII characters");
    snprintf(s->nonce, sizeof s->nonce, "%s", text);
    EK_TRY(get_hex(s->key, &r, "key"));
    if (json_object_get(r.o, "log")) EK_TRY(get_copy(&s->log, &r, "log"));
    return all_read(&r);
}

static ek_err read_statement(ek_statement *s, const json_t *o)
{
    reader r, subject, digest;
    const char *text = "";
    ek_hash hash;
    EK_TRY(open_object(&r, o, "statement"));
    EK_TRY(get_text(&text, &r, "_type", MAX_NAME));
    if (strcmp(text, type)) return wrong(&r, "_type", type);
    EK_TRY(get_text(&text, &r, "predicateType", MAX_NAME));
    if (strcmp(text, predicate_type)) return wrong(&r, "predicateType", predicate_type);
    EK_TRY(read_predicate(s, member(&r, "predicate")));
    const json_t *list = member(&r, "subject");
    if (json_array_size(list) != 1) return wrong(&r, "subject", "a list of one");
    EK_TRY(open_object(&subject, json_array_get(list, 0), "subject"));
    EK_TRY(get_text(&text, &subject, "name", MAX_NAME));
    EK_TRY(open_object(&digest, member(&subject, "digest"), "digest"));
    EK_TRY(get_hash(&hash, &digest, "sha256"));
    EK_TRY(all_read(&digest));
    EK_TRY(all_read(&subject));
    if (strcmp(text, "reply") || !ek_hash_equal(&hash, &s->reply.commitment))
        return wrong(&r, "subject", "the reply's commitment");
    return all_read(&r);
}

ek_err ek_statement_read(ek_statement *out, const char *text, size_t n)
{
    json_t *o;
    *out = (ek_statement){0};
    if (n > PAYLOAD_LIMIT)
        return ek_fail(EK_EFORMAT, "a statement of %zu bytes, at most %d are taken", n, PAYLOAD_LIMIT);
    EK_TRY(ek_canonical_read(&o, text, n, MAX_VALUES));
    const ek_err err = read_statement(out, o);
    json_decref(o);
    return err;
}

void ek_statement_fini(ek_statement *s)
{
    free(s->profile);
    free(s->program);
    free(s->api);
    free(s->log);
    free(s->sampling.bias);
    *s = (ek_statement){0};
}
