/* What a response repeats of its request. None of it but the instructions has to fit the context, and each event about
 * the response repeats it all, so that it has a limit of its own. */
#include "serve/api/field.h"
#include "serve/openai/responses.h"
#include "text/json/json.h"
#include "text/utf8.h"

enum { MAX_PAIRS = 16, MAX_KEY = 64, MAX_VALUE = 512 }; /* of metadata; in characters */
enum { MAX_BYTES = 512 << 10 };

static ek_err check_pair(const char *key, size_t n_key, const json_t *value)
{
    size_t n = ek_utf8_count(key, n_key);
    if (n > MAX_KEY)
        return ek_fail(EK_EINVAL, "metadata: a key has %zu characters, at most %d are allowed", n, MAX_KEY);
    ek_buf quoted = {0};
    ek_err err = EK_OK;
    ek_json_quote(&quoted, key, n_key);
    if (!ek_json_is_text(value)) {
        err = ek_fail(EK_EINVAL, "metadata: the value of %s is not a text", quoted.data);
    } else {
        n = ek_utf8_count(json_string_value(value), json_string_length(value));
        if (n > MAX_VALUE)
            err = ek_fail(EK_EINVAL, "metadata: the value of %s has %zu characters, at most %d are allowed",
                          quoted.data, n, MAX_VALUE);
    }
    ek_buf_fini(&quoted);
    return err;
}

ek_err ek_responses_check_metadata(ek_api_request *r, const json_t *body)
{
    json_t *map = (json_t *)(uintptr_t)ek_field(body, "metadata"), *value;
    const char *key;
    size_t n;
    ek_err err = EK_OK;
    if (!map) return EK_OK;
    r->param = "metadata";
    if (!json_is_object(map)) return ek_field_wrong(r, "metadata", "an object of texts is needed");
    if (json_object_size(map) > MAX_PAIRS)
        return ek_fail(EK_EINVAL, "metadata: %zu pairs, at most %d are allowed", json_object_size(map), MAX_PAIRS);
    json_object_keylen_foreach(map, key, n, value)
    {
        if (!err) err = check_pair(key, n, value);
    }
    if (!err) r->param = NULL;
    return err;
}

static void put_member(ek_buf *out, const json_t *body, const char *key, const char *absent)
{
    const json_t *v = ek_field(body, key);
    ek_buf_fmt(out, ",\"%s\":", key);
    if (v) ek_json_write(out, v);
    else ek_buf_str(out, absent);
}

ek_err ek_responses_echo(ek_api_request *r, const json_t *body)
{
    static const struct {
        const char *key, *absent;
    } members[] = {{"metadata", "{}"},
                   {"max_output_tokens", "null"},
                   {"parallel_tool_calls", "true"},
                   {"previous_response_id", "null"},
                   {"reasoning", "{\"effort\":null,\"summary\":null}"},
                   {"text", "{\"format\":{\"type\":\"text\"}}"},
                   {"tool_choice", "\"auto\""},
                   {"tools", "[]"},
                   {"truncation", "\"disabled\""},
                   {"user", "null"}};
    ek_responses *o = r->own;
    ek_buf *out = &o->echo;
    put_member(out, body, "instructions", "null");
    size_t n = out->len;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        put_member(out, body, members[i].key, members[i].absent);
    n = out->len - n;
    if (n > MAX_BYTES)
        return ek_fail(EK_ETOOLARGE,
                       "tools, text, user and what else a response repeats have %zu bytes, at most %d are allowed", n,
                       MAX_BYTES);
    ek_buf_fmt(out, ",\"temperature\":%g,\"top_p\":%g,\"top_logprobs\":%d,\"store\":%s,\"background\":false",
               (double)r->turn.sampling.temperature, (double)r->turn.sampling.top_p, r->turn.n_top,
               o->store ? "true" : "false");
    return EK_OK;
}
