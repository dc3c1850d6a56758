#include "serve/chat_request.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/json.h"

/* The member, NULL when absent or null. */
static const json_t *member(const json_t *o, const char *key)
{
    const json_t *v = ek_json_get(o, key);
    return json_is_null(v) ? NULL : v;
}

static ek_err bad(ek_chat_request *r, const char *param, const char *need)
{
    r->param = param;
    return ek_fail(EK_EINVAL, "%s: %s", param, need);
}

/* The same with the client's own text in it: escaped, so that a sentence stays one line. */
static ek_err bad_text(ek_chat_request *r, const char *param, const char *before, const char *text, const char *after)
{
    ek_buf quoted = {0};
    ek_json_quote(&quoted, text, strnlen(text, 40));
    r->param = param;
    ek_err err = ek_fail(EK_EINVAL, "%s: %s %s %s", param, before, quoted.data, after);
    ek_buf_fini(&quoted);
    return err;
}

static ek_err get_bool(ek_chat_request *r, const json_t *o, const char *key, bool *out)
{
    const json_t *v = member(o, key);
    if (!v) return EK_OK;
    if (!json_is_boolean(v)) return bad(r, key, "true or false is needed");
    *out = json_is_true(v);
    return EK_OK;
}

static ek_err get_num(ek_chat_request *r, const char *key, double least, double most, float *out)
{
    const json_t *v = member(r->body, key);
    if (!v) return EK_OK;
    double x = json_is_number(v) ? json_number_value(v) : NAN;
    if (!(x >= least && x <= most)) {
        r->param = key;
        return ek_fail(EK_EINVAL, "%s: a number from %g to %g is needed", key, least, most);
    }
    *out = (float)x;
    return EK_OK;
}

/* A whole number, also spelled 1e3; *found tells whether it was there. */
static ek_err get_int(ek_chat_request *r, const char *key, int64_t least, int64_t most, int64_t *out, bool *found)
{
    const json_t *v = member(r->body, key);
    *found = v != NULL;
    if (!v) return EK_OK;
    bool ok = json_is_integer(v);
    int64_t x = ok ? json_integer_value(v) : 0;
    if (json_is_real(v)) {
        double d = json_real_value(v);
        ok = d >= -9e15 && d <= 9e15 && d == floor(d);
        x = ok ? (int64_t)d : 0;
    }
    if (!ok || x < least || x > most) {
        r->param = key;
        return ek_fail(EK_EINVAL, "%s: a whole number from %lld to %lld is needed", key, (long long)least,
                       (long long)most);
    }
    *out = x;
    return EK_OK;
}

static ek_err read_sampling(ek_chat_request *r)
{
    ek_sampling *s = &r->sampling;
    EK_TRY(get_num(r, "temperature", 0, 100, &s->temperature));
    EK_TRY(get_num(r, "top_p", 0, 1, &s->top_p));
    EK_TRY(get_num(r, "min_p", 0, 1, &s->min_p));
    EK_TRY(get_num(r, "presence_penalty", -2, 2, &s->presence_penalty));
    EK_TRY(get_num(r, "frequency_penalty", -2, 2, &s->frequency_penalty));
    EK_TRY(get_num(r, "repetition_penalty", 1e-3, 1000, &s->repetition_penalty));
    int64_t v;
    bool found;
    EK_TRY(get_int(r, "top_k", -1, INT_MAX, &v, &found));
    if (found) s->top_k = v < 0 ? 0 : (int)v;
    EK_TRY(get_int(r, "seed", INT64_MIN, INT64_MAX, &v, &r->has_seed));
    if (r->has_seed) s->seed = (uint64_t)v;
    return EK_OK;
}

static ek_err read_bias(ek_chat_request *r, int n_vocab)
{
    json_t *map = (json_t *)(uintptr_t)member(r->body, "logit_bias");
    if (!map) return EK_OK;
    if (!json_is_object(map)) return bad(r, "logit_bias", "an object of token ids and numbers is needed");
    if (json_object_size(map) > EK_CHAT_MAX_BIAS) return bad(r, "logit_bias", "at most 4096 entries");
    r->bias = ek_alloc((json_object_size(map) + 1) * sizeof *r->bias);
    const char *key;
    json_t *value;
    json_object_foreach(map, key, value)
    {
        char *end;
        long id = strtol(key, &end, 10);
        double b = json_is_number(value) ? json_number_value(value) : NAN;
        if (*key < '0' || *key > '9' || *end || id >= n_vocab)
            return bad_text(r, "logit_bias", "no token of this model has the id", key, "");
        if (!(b >= -100 && b <= 100)) return bad(r, "logit_bias", "each value must be a number from -100 to 100");
        /* -100 is how the API spells "never". */
        r->bias[r->sampling.n_bias++] = (ek_logit_bias){(int32_t)id, b <= -100 ? -INFINITY : (float)b};
    }
    r->sampling.bias = r->bias;
    return EK_OK;
}

static ek_err add_stop(ek_chat_request *r, const json_t *v)
{
    if (!ek_json_is_text(v)) return bad(r, "stop", "a text or a list of texts is needed");
    if (r->n_stop == EK_STOP_MAX) return bad(r, "stop", "at most 64 stop strings");
    if (json_string_length(v) == 0 || json_string_length(v) > EK_STOP_BYTES)
        return bad(r, "stop", "each must have 1 to 4096 bytes");
    r->stop[r->n_stop] = json_string_value(v);
    r->stop_len[r->n_stop++] = json_string_length(v);
    return EK_OK;
}

static ek_err read_stop(ek_chat_request *r)
{
    const json_t *v = member(r->body, "stop");
    if (!v) return EK_OK;
    if (!json_is_array(v)) return add_stop(r, v);
    for (size_t i = 0; i < json_array_size(v); i++) EK_TRY(add_stop(r, json_array_get(v, i)));
    return EK_OK;
}

static ek_err read_limits(ek_chat_request *r)
{
    int64_t v;
    bool found;
    r->max_tokens = INT_MAX;
    EK_TRY(get_int(r, "max_tokens", 1, INT64_MAX, &v, &found));
    if (found && v < INT_MAX) r->max_tokens = (int)v;
    EK_TRY(get_int(r, "max_completion_tokens", 1, INT64_MAX, &v, &found)); /* wins over max_tokens */
    if (found) r->max_tokens = v < INT_MAX ? (int)v : INT_MAX;
    r->n = 1;
    EK_TRY(get_int(r, "n", 1, EK_CHAT_MAX_N, &v, &found));
    if (found) r->n = (int)v;
    return EK_OK;
}

static ek_err read_tools(ek_chat_request *r)
{
    const json_t *tools = member(r->body, "tools");
    if (member(r->body, "functions") || member(r->body, "function_call"))
        return bad(r, "functions", "the legacy form is not taken; use tools and tool_choice");
    if (tools && !json_is_array(tools)) return bad(r, "tools", "a list is needed");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *t = json_array_get(tools, i), *f = ek_json_get(t, "function");
        const char *type = ek_json_get_text(t, "type", NULL);
        size_t n = 0;
        if (!type || strcmp(type, "function"))
            return bad(r, "tools", "each must be {\"type\": \"function\", \"function\": {…}}");
        if (!ek_json_get_text(f, "name", &n) || n == 0) return bad(r, "tools", "each function needs a name");
    }
    if (json_array_size(tools) > 0) r->tools = tools;
    r->tools_active = r->tools != NULL;

    const json_t *choice = member(r->body, "tool_choice");
    if (choice) {
        const char *word = ek_json_is_text(choice) ? json_string_value(choice) : "";
        if (!strcmp(word, "none")) r->tools_active = false;
        else if (!strcmp(word, "required") || json_is_object(choice))
            return bad(r, "tool_choice",
                       "only \"none\" and \"auto\" are supported: forcing a call needs constrained decoding");
        else if (strcmp(word, "auto")) return bad(r, "tool_choice", "\"none\" or \"auto\" is needed");
    }
    bool parallel = true;
    EK_TRY(get_bool(r, r->body, "parallel_tool_calls", &parallel));
    r->one_call = !parallel;
    return EK_OK;
}

static ek_err read_thinking(ek_chat_request *r, bool asked_in_system)
{
    r->enable_thinking = asked_in_system;
    const json_t *effort = member(r->body, "reasoning_effort"), *kwargs = member(r->body, "chat_template_kwargs");
    if (effort) {
        if (!ek_json_is_text(effort))
            return bad(r, "reasoning_effort", "a text is needed, such as \"none\" or \"medium\"");
        const char *e = json_string_value(effort);
        r->enable_thinking = strcmp(e, "none") && strcmp(e, "minimal");
    }
    if (kwargs && !json_is_object(kwargs)) return bad(r, "chat_template_kwargs", "an object is needed");
    EK_TRY(get_bool(r, kwargs, "enable_thinking", &r->enable_thinking));
    return get_bool(r, kwargs, "preserve_thinking", &r->preserve_thinking);
}

static ek_err check_part(ek_chat_request *r, const json_t *part, size_t at)
{
    const char *type = ek_json_get_text(part, "type", NULL);
    r->param = "messages";
    if (!type) return ek_fail(EK_EINVAL, "messages[%zu]: a content part needs a type", at);
    if (!strcmp(type, "text")) {
        if (!ek_json_get_text(part, "text", NULL))
            return ek_fail(EK_EINVAL, "messages[%zu]: a text part needs a text", at);
        return EK_OK;
    }
    if (!strcmp(type, "refusal")) return EK_OK;
    return bad_text(r, "messages", "content parts of type", type, "are not taken; this server takes text");
}

static ek_err check_message(ek_chat_request *r, const json_t *m, size_t at)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", "function"};
    const char *role = ek_json_get_text(m, "role", NULL);
    bool known = false;
    for (size_t i = 0; role && i < sizeof roles / sizeof *roles; i++) known |= !strcmp(role, roles[i]);
    r->param = "messages";
    if (!known)
        return ek_fail(EK_EINVAL,
                       "messages[%zu]: role must be one of system, developer, user, assistant, tool, function", at);
    const json_t *content = member(m, "content");
    if (!content || ek_json_is_text(content)) return EK_OK;
    if (!json_is_array(content))
        return ek_fail(EK_EINVAL, "messages[%zu]: content must be a text or a list of parts", at);
    for (size_t i = 0; i < json_array_size(content); i++) EK_TRY(check_part(r, json_array_get(content, i), at));
    return EK_OK;
}

static ek_err read_messages(ek_chat_request *r)
{
    const json_t *list = member(r->body, "messages");
    if (!json_is_array(list) || json_array_size(list) == 0)
        return bad(r, "messages", "a list of at least one message is needed");
    for (size_t i = 0; i < json_array_size(list); i++) EK_TRY(check_message(r, json_array_get(list, i), i));
    bool thinking = false;
    EK_TRY(ek_chat_prepare(&r->messages, list, &thinking));
    r->param = NULL;
    EK_TRY(read_thinking(r, thinking));
    r->add_generation_prompt = true;
    EK_TRY(get_bool(r, r->body, "add_generation_prompt", &r->add_generation_prompt));
    return get_bool(r, r->body, "continue_final_message", &r->continue_final);
}

/* What would change the answer's form and does not exist here yet. */
static ek_err refuse_unsupported(ek_chat_request *r)
{
    bool logprobs = false;
    EK_TRY(get_bool(r, r->body, "logprobs", &logprobs));
    if (logprobs || member(r->body, "top_logprobs")) return bad(r, "logprobs", "not supported");
    const json_t *format = member(r->body, "response_format");
    const char *type = ek_json_get_text(format, "type", NULL);
    if (format && (!type || strcmp(type, "text")))
        return bad(r, "response_format",
                   "only {\"type\": \"text\"} is supported: anything else needs constrained decoding");
    const json_t *modalities = member(r->body, "modalities");
    for (size_t i = 0; i < json_array_size(modalities); i++) {
        const json_t *m = json_array_get(modalities, i);
        if (!ek_json_is_text(m) || strcmp(json_string_value(m), "text"))
            return bad(r, "modalities", "only \"text\" is supported");
    }
    return EK_OK;
}

static ek_err read_body(ek_chat_request *r, int n_vocab)
{
    const json_t *model = member(r->body, "model");
    if (model && !ek_json_is_text(model)) return bad(r, "model", "a text is needed");
    r->model = model ? json_string_value(model) : "";
    EK_TRY(refuse_unsupported(r));
    EK_TRY(read_tools(r));
    EK_TRY(read_messages(r));
    EK_TRY(read_limits(r));
    EK_TRY(read_stop(r));
    EK_TRY(read_sampling(r));
    EK_TRY(read_bias(r, n_vocab));
    EK_TRY(get_bool(r, r->body, "ignore_eos", &r->ignore_eos));
    EK_TRY(get_bool(r, r->body, "stream", &r->stream));
    const json_t *options = member(r->body, "stream_options"), *ours = member(r->body, "evenkeel");
    if (options && !json_is_object(options)) return bad(r, "stream_options", "an object is needed");
    EK_TRY(get_bool(r, options, "include_usage", &r->include_usage));
    if (ours && !json_is_object(ours)) return bad(r, "evenkeel", "an object is needed");
    return get_bool(r, ours, "digest", &r->digest);
}

ek_err ek_chat_request_parse(ek_chat_request *r, const char *body, size_t n, const ek_sampling *defaults, int n_vocab)
{
    *r = (ek_chat_request){.sampling = *defaults};
    if (ek_json_read_lenient(&r->body, body, n, 0)) return ek_fail_in(EK_EPARSE, "the body is not valid JSON");
    if (!json_is_object(r->body)) return ek_fail(EK_EINVAL, "the body must be a JSON object");
    return read_body(r, n_vocab);
}

void ek_chat_request_fini(ek_chat_request *r)
{
    json_decref(r->body);
    json_decref(r->messages);
    free(r->bias);
    *r = (ek_chat_request){0};
}
