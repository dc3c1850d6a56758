#include "chat/form.h"

#include <string.h>

#include "text/json/json.h"

static const char *const texts[] = {[EK_TEXT_FREE] = "free",
                                    [EK_TEXT_JSON_OBJECT] = "json_object",
                                    [EK_TEXT_JSON_SCHEMA] = "json_schema",
                                    [EK_TEXT_CHOICE] = "choice"};

static bool has_schema(ek_text_form form)
{
    return form == EK_TEXT_JSON_SCHEMA || form == EK_TEXT_CHOICE;
}
enum { N_TEXTS = sizeof texts / sizeof *texts };

static void put_value(ek_buf *out, const char *key, const json_t *v)
{
    if (!v) return;
    ek_buf_fmt(out, ",\"%s\":", key);
    ek_json_write(out, v);
}

static void put_tool(ek_buf *out, const json_t *tool, const ek_reply_form *form)
{
    const json_t *f = ek_json_get(tool, "function"), *strict = ek_json_get(f, "strict");
    size_t n = 0;
    const char *name = ek_json_get_text(f, "name", &n);
    ek_buf_str(out, "{\"function\":{\"name\":");
    ek_json_quote(out, name ? name : "", n);
    put_value(out, "strict", strict);
    if (ek_grammar_reads(tool, form)) put_value(out, "parameters", ek_json_get(f, "parameters"));
    ek_buf_str(out, "}}");
}

void ek_form_write(ek_buf *out, const ek_reply_form *form, const json_t *tools, bool one_call)
{
    ek_buf_fmt(out, "{\"text\":\"%s\",\"lenient\":%s,\"calls_required\":%s,\"one_call\":%s", texts[form->text],
               form->lenient ? "true" : "false", form->calls_required ? "true" : "false", one_call ? "true" : "false");
    if (has_schema(form->text)) put_value(out, "schema", form->schema);
    put_value(out, "only", form->only);
    if (tools) ek_buf_str(out, ",\"tools\":[");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        if (i > 0) ek_buf_char(out, ',');
        put_tool(out, json_array_get(tools, i), form);
    }
    ek_buf_str(out, tools ? "]}" : "}");
}

static ek_err read_form(const json_t *o, ek_reply_form *form, bool *one_call)
{
    const char *text = ek_json_get_text(o, "text", NULL);
    int i = 0;
    while (text && i < N_TEXTS && strcmp(text, texts[i])) i++;
    if (!text || i == N_TEXTS)
        return ek_fail(EK_EINVAL, "form: its text is none of free, json_object, json_schema, choice");
    *form = (ek_reply_form){.text = (ek_text_form)i,
                            .schema = ek_json_get(o, "schema"),
                            .lenient = json_is_true(ek_json_get(o, "lenient")),
                            .calls_required = json_is_true(ek_json_get(o, "calls_required")),
                            .only = ek_json_get(o, "only")};
    *one_call = json_is_true(ek_json_get(o, "one_call"));
    if (has_schema(form->text) && !form->schema) return ek_fail(EK_EINVAL, "form: a schema is needed");
    return EK_OK;
}

ek_err ek_form_grammar(ek_grammar **out, ek_vocab *v, const char *text, size_t n)
{
    json_t *o;
    ek_reply_form form;
    bool one_call = false;
    EK_TRY(ek_json_read(&o, text, n, 0));
    ek_err err = read_form(o, &form, &one_call);
    if (!err) err = ek_grammar_open(out, v, &form, ek_json_get(o, "tools"), one_call);
    json_decref(o);
    return err;
}
