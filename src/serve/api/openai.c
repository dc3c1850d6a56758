#include "serve/api/openai.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "serve/api/field.h"
#include "text/json/json.h"

enum { MAX_BIAS = 4096 };

static ek_err read_bias(ek_api_request *r, const json_t *body, int n_vocab)
{
    json_t *map = (json_t *)(uintptr_t)ek_field(body, "logit_bias");
    if (!map) return EK_OK;
    if (!json_is_object(map)) return ek_field_wrong(r, "logit_bias", "an object of token ids and numbers is needed");
    if (json_object_size(map) > MAX_BIAS) return ek_field_wrong(r, "logit_bias", "at most 4096 entries");
    r->bias = ek_alloc((json_object_size(map) + 1) * sizeof *r->bias);
    ek_sampling *s = &r->turn.sampling;
    const char *key;
    json_t *value;
    json_object_foreach(map, key, value)
    {
        char *end;
        long id = strtol(key, &end, 10);
        double b = json_is_number(value) ? json_number_value(value) : NAN;
        if (*key < '0' || *key > '9' || *end || id >= n_vocab)
            return ek_field_wrong_text(r, "logit_bias", "no token of this model has the id", key, "");
        if (!(b >= -100 && b <= 100))
            return ek_field_wrong(r, "logit_bias", "each value must be a number from -100 to 100");
        /* the API spells "never" as -100 */
        r->bias[s->n_bias++] = (ek_logit_bias){(int32_t)id, b <= -100 ? -INFINITY : (float)b};
    }
    s->bias = r->bias;
    return EK_OK;
}

ek_err ek_openai_sampling(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    ek_sampling *s = &r->turn.sampling;
    *s = limits->defaults;
    EK_TRY(ek_field_number(r, body, "temperature", 0, 100, &s->temperature));
    EK_TRY(ek_field_number(r, body, "top_p", 0, 1, &s->top_p));
    EK_TRY(ek_field_number(r, body, "min_p", 0, 1, &s->min_p));
    EK_TRY(ek_field_number(r, body, "presence_penalty", -2, 2, &s->presence_penalty));
    EK_TRY(ek_field_number(r, body, "frequency_penalty", -2, 2, &s->frequency_penalty));
    EK_TRY(ek_field_number(r, body, "repetition_penalty", 1e-3, 1000, &s->repetition_penalty));
    int64_t v;
    bool found;
    EK_TRY(ek_field_int(r, body, "top_k", -1, INT_MAX, &v, &found));
    if (found) s->top_k = v < 0 ? 0 : (int)v;
    EK_TRY(ek_field_int(r, body, "seed", INT64_MIN, INT64_MAX, &v, &r->has_seed));
    if (r->has_seed) s->seed = (uint64_t)v;
    return read_bias(r, body, limits->n_vocab);
}

ek_err ek_openai_counts(ek_api_request *r, const json_t *body)
{
    int64_t v;
    bool found;
    r->turn.max_tokens = INT_MAX;
    EK_TRY(ek_field_int(r, body, "max_tokens", -1, INT64_MAX, &v, &found));
    if (found && v >= 0 && v < INT_MAX) r->turn.max_tokens = (int)v;
    EK_TRY(ek_field_int(r, body, "max_completion_tokens", -1, INT64_MAX, &v, &found)); /* wins over max_tokens */
    if (found) r->turn.max_tokens = v >= 0 && v < INT_MAX ? (int)v : INT_MAX;
    r->n = 1;
    EK_TRY(ek_field_int(r, body, "n", 1, EK_OPENAI_CHOICES_MAX, &v, &found));
    if (found) r->n = (int)v;
    return EK_OK;
}

static ek_err add_stop(ek_api_request *r, const json_t *v, const char *key)
{
    ek_turn_opts *t = &r->turn;
    if (!ek_json_is_text(v)) return ek_field_wrong(r, key, "a text or a list of texts is needed");
    size_t n = json_string_length(v);
    if (n == 0) return EK_OK;
    if (t->n_stop == EK_STOP_MAX) return ek_field_wrong(r, key, "at most 64 stop strings");
    if (n > EK_STOP_BYTES) return ek_field_wrong(r, key, "each may have at most 4096 bytes");
    char *copy = r->stop[t->n_stop] = ek_alloc(n + 1);
    memcpy(copy, json_string_value(v), n);
    t->stop[t->n_stop] = copy;
    t->stop_len[t->n_stop++] = n;
    return EK_OK;
}

ek_err ek_openai_stop(ek_api_request *r, const json_t *body, const char *key)
{
    const json_t *v = ek_field(body, key);
    if (!v) return EK_OK;
    if (!json_is_array(v)) return add_stop(r, v, key);
    for (size_t i = 0; i < json_array_size(v); i++) EK_TRY(add_stop(r, json_array_get(v, i), key));
    return EK_OK;
}

ek_err ek_openai_include_usage(ek_api_request *r, const json_t *body, bool *out)
{
    const json_t *options = ek_field(body, "stream_options");
    if (options && !json_is_object(options)) return ek_field_wrong(r, "stream_options", "an object is needed");
    return ek_field_bool(r, options, "include_usage", out);
}

ek_err ek_openai_encode(ek_ids *out, const ek_chat_model *m, const char *text, size_t n, bool bos, size_t max)
{
    static const char mark[] = "<bos>";
    const size_t len = sizeof mark - 1;
    bool there = n >= len && !memcmp(text, mark, len);
    if (bos && !there) ek_ids_add(out, ek_tokenizer_id(m->tokenizer, mark));
    return ek_encode_max(m->tokenizer, text, n, NULL, EK_CONTROL_ALL, max, out);
}

ek_err ek_openai_text_prompt(ek_turn_prompt *out, const ek_chat_model *m, const char *text, size_t n, bool bos,
                             const ek_prompt_opts *opts)
{
    size_t ctx = (size_t)opts->ctx_tokens;
    bool added = bos && strncmp(text, "<bos>", 5) != 0, fits = n <= ek_prompt_max_text(m, opts);
    if (fits) EK_TRY(ek_openai_encode(&out->ids, m, text, n, bos, 2 * ctx));
    if (fits && out->ids.len < ctx) return EK_OK;
    return ek_prompt_too_long(m, text, n, NULL, EK_CONTROL_ALL, added, opts);
}

/* --- tools and the form of a reply: functions, tool_choice and response formats --- */

/* The tool's name of {"type": "function", "function": {"name"}}, or of {"type": "function", "name"}; likewise for
 * custom tools. A tool that has only a type is named by it. */
static const char *tool_name(const json_t *v)
{
    const char *type = ek_json_get_text(v, "type", NULL);
    if (!type) return NULL;
    if (strcmp(type, "function") && strcmp(type, "custom")) return ek_field(v, "name") ? NULL : type;
    const json_t *f = ek_json_get(v, type);
    return ek_json_get_text(f ? f : v, "name", NULL);
}

/* The tools' names as keys, so that looking up many takes linear time. A new reference. */
static json_t *names_of_tools(const ek_api_request *r)
{
    json_t *names = json_object();
    for (size_t i = 0; i < json_array_size(r->tools); i++) {
        const char *n = ek_json_get_text(ek_json_get(json_array_get(r->tools, i), "function"), "name", NULL);
        if (n) json_object_set_new_nocheck(names, n, json_true());
    }
    return names;
}

static ek_err add_only(ek_api_request *r, const json_t *names, const json_t *v)
{
    const char *name = tool_name(v);
    if (!name)
        return ek_field_wrong(r, "tool_choice", "{\"type\": \"function\", \"function\": {\"name\": …}} is needed");
    if (!json_object_get(names, name)) return ek_field_wrong_text(r, "tool_choice", "no tool is named", name, "");
    if (!r->only) r->only = json_array();
    json_array_append_new(r->only, json_string_nocheck(name));
    return EK_OK;
}

static ek_err read_word(ek_api_request *r, const char *word)
{
    if (!strcmp(word, "none")) r->turn.tools_active = false;
    else if (!strcmp(word, "required")) r->form.calls_required = true;
    else if (strcmp(word, "auto"))
        return ek_field_wrong(r, "tool_choice", "\"none\", \"auto\", \"required\" or a function is needed");
    return EK_OK;
}

/* {"type": "allowed_tools", "allowed_tools": {"mode", "tools"}}, or both members beside the type. */
static ek_err read_allowed(ek_api_request *r, const json_t *names, const json_t *choice)
{
    const json_t *inner = ek_field(choice, "allowed_tools"), *at = inner ? inner : choice;
    const json_t *list = ek_field(at, "tools");
    const char *mode = ek_json_get_text(at, "mode", NULL);
    if (!mode || (strcmp(mode, "auto") && strcmp(mode, "required")) || json_array_size(list) == 0)
        return ek_field_wrong(r, "tool_choice", "allowed_tools needs a mode, auto or required, and a list of tools");
    for (size_t i = 0; i < json_array_size(list); i++) EK_TRY(add_only(r, names, json_array_get(list, i)));
    return read_word(r, mode);
}

static ek_err read_choice_object(ek_api_request *r, const json_t *choice)
{
    const char *type = ek_json_get_text(choice, "type", NULL);
    bool allowed = type && !strcmp(type, "allowed_tools");
    json_t *names = names_of_tools(r);
    ek_err err = allowed ? read_allowed(r, names, choice) : add_only(r, names, choice);
    json_decref(names);
    if (!err && !allowed) r->form.calls_required = r->turn.one_call = true;
    return err;
}

ek_err ek_openai_tool_choice(ek_api_request *r, const json_t *body)
{
    const json_t *choice = ek_field(body, "tool_choice");
    r->turn.tools_active = r->tools != NULL;
    if (!choice) return EK_OK;
    if (json_is_object(choice)) EK_TRY(read_choice_object(r, choice));
    else EK_TRY(read_word(r, ek_json_is_text(choice) ? json_string_value(choice) : ""));
    if (r->form.calls_required && !r->tools)
        return ek_field_wrong(r, "tool_choice", "a call is required, but there are no tools");
    return EK_OK;
}

ek_err ek_openai_calls(ek_api_request *r, const json_t *body)
{
    bool parallel = true;
    EK_TRY(ek_openai_tool_choice(r, body));
    EK_TRY(ek_field_bool(r, body, "parallel_tool_calls", &parallel));
    if (!parallel) r->turn.one_call = true;
    return EK_OK;
}

json_t *ek_openai_function(const json_t *name, const json_t *description, const json_t *parameters,
                           const json_t *strict)
{
    const json_t *values[] = {name, description, parameters, strict};
    static const char *const keys[] = {"name", "description", "parameters", "strict"};
    json_t *f = json_object(), *one = json_object();
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (values[i]) json_object_set_nocheck(f, keys[i], (json_t *)(uintptr_t)values[i]);
    json_object_set_new_nocheck(one, "type", json_string_nocheck("function"));
    json_object_set_new_nocheck(one, "function", f);
    return one;
}

static void set_schema(ek_api_request *r, const json_t *schema, bool strict, const char *param)
{
    r->form.text = EK_TEXT_JSON_SCHEMA;
    r->form.lenient = !strict;
    r->form_param = param;
    r->schema = json_incref((json_t *)(uintptr_t)schema);
}

ek_err ek_openai_format(ek_api_request *r, const json_t *format, const char *param)
{
    const char *type = ek_json_get_text(format, "type", NULL);
    if (!format || (type && !strcmp(type, "text"))) return EK_OK;
    r->form_param = param;
    bool object = type && !strcmp(type, "json_object");
    if (!object && (!type || strcmp(type, "json_schema")))
        return ek_field_wrong_text(r, param, "type \"text\", \"json_object\" or \"json_schema\" is needed, not",
                                   type ? type : "", "");
    const json_t *inner = ek_field(format, "json_schema"), *at = inner ? inner : format,
                 *schema = ek_field(at, "schema");
    if (!schema && !object) return ek_field_wrong(r, param, "json_schema needs a member \"schema\"");
    if (schema) set_schema(r, schema, json_is_true(json_object_get(at, "strict")), param);
    else r->form.text = EK_TEXT_JSON_OBJECT;
    return EK_OK;
}

/* --- the same in other servers' fields --- */

/* v: a schema, or JSON text of one. */
static ek_err read_schema(ek_api_request *r, const json_t *v, const char *param, const ek_api_limits *limits)
{
    json_t *schema = NULL;
    if (!ek_json_is_text(v)) {
        set_schema(r, v, false, param);
        return EK_OK;
    }
    ek_err err = ek_field_json(&schema, json_string_value(v), json_string_length(v), limits);
    if (err == EK_EINVAL) return ek_field_wrong(r, param, "a schema, or JSON text of one, is needed");
    if (!err) set_schema(r, schema, false, param);
    json_decref(schema);
    return err;
}

static ek_err read_choices(ek_api_request *r, const json_t *v, const char *param)
{
    bool texts = json_array_size(v) > 0;
    for (size_t i = 0; i < json_array_size(v); i++)
        texts &= ek_json_is_text(json_array_get(v, i)) && json_string_length(json_array_get(v, i)) > 0;
    if (!texts) return ek_field_wrong(r, param, "a list of texts that are not empty is needed");
    r->form.text = EK_TEXT_CHOICE;
    r->form_param = param;
    r->schema = json_incref((json_t *)(uintptr_t)v);
    return EK_OK;
}

typedef enum wish { SCHEMA, OBJECT, CHOICE, NONE } wish;

/* key: a literal, because r->param keeps the pointer. */
static ek_err read_wish(ek_api_request *r, const json_t *v, wish what, const char *param, const ek_api_limits *limits)
{
    if (!v || (what != CHOICE && json_is_false(v)) || (what == NONE && json_is_string(v) && !json_string_length(v)))
        return EK_OK;
    if (what == NONE)
        return ek_field_wrong(r, param, "not supported: a schema (response_format) or guided_choice can be given");
    if (r->form.text != EK_TEXT_FREE) return ek_field_wrong(r, param, "the reply is given another form beside it");
    if (what == CHOICE) return read_choices(r, v, param);
    if (what == SCHEMA) return read_schema(r, v, param, limits);
    if (!json_is_true(v)) return ek_field_wrong(r, param, "true or false is needed");
    r->form.text = EK_TEXT_JSON_OBJECT;
    return EK_OK;
}

ek_err ek_openai_guided(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    static const struct {
        const char *key, *param;
        bool inner;
        wish what;
    } wishes[] = {
        {"guided_json", "guided_json", false, SCHEMA},
        {"json_schema", "json_schema", false, SCHEMA},
        {"guided_json_object", "guided_json_object", false, OBJECT},
        {"guided_choice", "guided_choice", false, CHOICE},
        {"guided_regex", "guided_regex", false, NONE},
        {"guided_grammar", "guided_grammar", false, NONE},
        {"guided_whitespace_pattern", "guided_whitespace_pattern", false, NONE},
        {"grammar", "grammar", false, NONE},
        {"regex", "regex", false, NONE},
        {"ebnf", "ebnf", false, NONE},
        {"structural_tag", "structural_tag", false, NONE},
        {"json", "structured_outputs.json", true, SCHEMA},
        {"json_object", "structured_outputs.json_object", true, OBJECT},
        {"choice", "structured_outputs.choice", true, CHOICE},
        {"regex", "structured_outputs.regex", true, NONE},
        {"grammar", "structured_outputs.grammar", true, NONE},
        {"structural_tag", "structured_outputs.structural_tag", true, NONE},
        {"whitespace_pattern", "structured_outputs.whitespace_pattern", true, NONE},
        {"disable_any_whitespace", "structured_outputs.disable_any_whitespace", true, NONE},
        {"disable_additional_properties", "structured_outputs.disable_additional_properties", true, NONE},
    };
    const json_t *inner = ek_field(body, "structured_outputs");
    if (inner && !json_is_object(inner)) return ek_field_wrong(r, "structured_outputs", "an object is needed");
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++)
        EK_TRY(read_wish(r, ek_field(wishes[i].inner ? inner : body, wishes[i].key), wishes[i].what, wishes[i].param,
                         limits));
    return EK_OK;
}
