#include "serve/api/tools.h"

#include <string.h>

#include "serve/api/field.h"
#include "serve/api/openai.h"
#include "text/json/json.h"
#include "text/regex/regex.h"

/* Reads a grammar: a pattern of the whole input, and a description for the model. */
static ek_err read_grammar(ek_api_request *r, const json_t *format, ek_buf *pattern, ek_buf *says)
{
    const json_t *inner = ek_field(format, "grammar"), *at = inner ? inner : format; /* the form of chat completions */
    const char *syntax = ek_json_get_text(at, "syntax", NULL);
    size_t n = 0;
    const char *definition = ek_json_get_text(at, "definition", &n);
    if (!definition) return ek_field_wrong(r, "tools", "the grammar of a custom tool needs a text definition");
    if (syntax && !strcmp(syntax, "regex")) {
        ek_buf_str(pattern, "^(?:");
        ek_buf_add(pattern, definition, n);
        ek_buf_str(pattern, ")$");
        ek_buf_str(says, "The input matches this regular expression:\n");
    } else if (syntax && !strcmp(syntax, "lark")) {
        ek_err err = ek_lark_pattern(pattern, definition, n);
        r->param = "tools";
        if (err) return ek_fail_in(err, "tools: the format of a custom tool");
        r->param = NULL;
        ek_buf_str(says, "The input follows this grammar in the notation of Lark:\n");
    } else {
        return ek_field_wrong_text(r, "tools", "the syntax of a custom tool's grammar must be lark or regex, not",
                                   syntax ? syntax : "", "");
    }
    ek_buf_add(says, definition, n);
    return EK_OK;
}

static ek_err read_format(ek_api_request *r, const json_t *format, ek_buf *pattern, ek_buf *says)
{
    const char *type = ek_json_get_text(format, "type", NULL);
    if (!format || (type && !strcmp(type, "text"))) return EK_OK;
    if (type && !strcmp(type, "grammar")) return read_grammar(r, format, pattern, says);
    return ek_field_wrong_text(r, "tools", "the format of a custom tool must be text or grammar, not", type ? type : "",
                               "");
}

static json_t *text_of(const ek_buf *b)
{
    return json_stringn_nocheck(ek_buf_text(b), b->len);
}

static json_t *make(const json_t *name, const json_t *description, const ek_buf *pattern, const ek_buf *says)
{
    ek_buf all = {0};
    json_t *input = json_object(), *properties = json_object(), *parameters = json_object();
    if (ek_json_is_text(description)) ek_buf_add(&all, json_string_value(description), json_string_length(description));
    if (all.len && says->len) ek_buf_str(&all, "\n");
    ek_buf_add(&all, ek_buf_text(says), says->len);
    json_object_set_new_nocheck(input, "type", json_string_nocheck("string"));
    if (pattern->len) json_object_set_new_nocheck(input, "pattern", text_of(pattern));
    json_object_set_new_nocheck(properties, "input", input);
    json_object_set_new_nocheck(parameters, "type", json_string_nocheck("object"));
    json_object_set_new_nocheck(parameters, "properties", properties);
    json_object_set_new_nocheck(parameters, "required", json_pack("[s]", "input"));
    json_object_set_new_nocheck(parameters, "additionalProperties", json_false());
    json_t *about = text_of(&all), *tool = ek_openai_function(name, all.len ? about : NULL, parameters, json_true());
    json_object_set_new_nocheck(tool, "type", json_string_nocheck("custom"));
    json_decref(about);
    json_decref(parameters);
    ek_buf_fini(&all);
    return tool;
}

ek_err ek_custom_tool(ek_api_request *r, const json_t *name, const json_t *description, const json_t *t, json_t **tool)
{
    ek_buf pattern = {0}, says = {0};
    ek_err err = read_format(r, ek_field(t, "format"), &pattern, &says);
    if (!err) *tool = make(name, description, &pattern, &says);
    ek_buf_fini(&pattern);
    ek_buf_fini(&says);
    return err;
}

json_t *ek_custom_arguments(const char *input, size_t n)
{
    json_t *arguments = json_object();
    json_object_set_new_nocheck(arguments, "input", json_stringn_nocheck(input, n));
    return arguments;
}

/* --- inputs --- */

/* The length of the escape that is being held; for the first half of a surrogate pair, the length of both. */
static int escape_length(const ek_custom_input *c)
{
    if (c->n_held < 2 || c->held[1] != 'u') return 2;
    bool high = c->n_held >= 4 && strchr("dD", c->held[2]) && strchr("89abAB", c->held[3]);
    return high ? 12 : 6;
}

static void end_escape(ek_custom_input *c, ek_buf *out)
{
    char quoted[sizeof c->held + 2];
    json_t *v;
    quoted[0] = quoted[c->n_held + 1] = '"';
    memcpy(quoted + 1, c->held, (size_t)c->n_held);
    if (!ek_json_read_lenient(&v, quoted, (size_t)c->n_held + 2, 0))
        ek_buf_add(out, json_string_value(v), json_string_length(v));
    json_decref(v);
    c->n_held = 0;
}

void ek_custom_input_add(ek_custom_input *c, ek_buf *out, const char *args, size_t n)
{
    static const char before[] = "{\"input\":\"";
    enum { BEFORE = sizeof before - 1 };
    for (size_t i = 0; i < n && c->at >= 0; i++) {
        if (c->at < BEFORE) {
            c->at = args[i] == before[c->at] ? c->at + 1 : -1; /* other arguments are not the input */
        } else if (c->n_held > 0 || args[i] == '\\') {
            c->held[c->n_held++] = args[i];
            if (c->n_held == escape_length(c)) end_escape(c, out);
        } else if (args[i] == '"') {
            c->at = -1;
        } else {
            ek_buf_char(out, args[i]);
        }
    }
}

void ek_custom_input_of(ek_buf *out, const ek_buf *args)
{
    ek_custom_input c = {0};
    ek_custom_input_add(&c, out, ek_buf_text(args), args->len);
}
