/* Tools other than functions: those that clients run and whose schemas the APIs publish, and custom tools. */
#include "serve/api/tools.h"

#include <string.h>

#include "serve/api/field.h"
#include "serve/api/openai.h"
#include "text/json/json.h"
#include "text/regex/regex.h"

/* --- tools that clients run --- */

enum {
    BASH = 1,
    EDITOR = 2,
    OLD_EDITOR = 4,
    MEMORY = 8,
    LOCAL_SHELL = 16,
    SHELL = 32,
    APPLY_PATCH = 64,
    TOOL_SEARCH = 128,
    EDITS = EDITOR | OLD_EDITOR | MEMORY
};

typedef enum kind { TEXT, INTEGER, TRUTH, TEXTS, INTEGERS, WORD } kind;

/* A property of the parameters of some tools. about: its description; of a WORD the possible ones, separated by
 * blanks. */
typedef struct property {
    int tools;
    const char *name;
    kind kind;
    bool required;
    const char *about;
} property;

static const property properties[] = {
    {BASH, "command", TEXT, false, "the command to run; not needed with restart"},
    {BASH, "restart", TRUTH, false, "true: start the shell anew"},
    {EDITOR, "command", WORD, true, "view create str_replace insert"},
    {OLD_EDITOR, "command", WORD, true, "view create str_replace insert undo_edit"},
    {MEMORY, "command", WORD, true, "view create str_replace insert delete rename"},
    {EDITOR | OLD_EDITOR, "path", TEXT, true, "the file or folder"},
    {MEMORY, "path", TEXT, false, "the file or folder, below /memories"},
    {EDITS, "view_range", INTEGERS, false,
     "view: the first and the last line to show, from 1; -1 is the end of the file"},
    {EDITS, "file_text", TEXT, false, "create: what the file holds"},
    {EDITS, "old_str", TEXT, false, "str_replace: the text to replace, which stands in the file once"},
    {EDITOR | MEMORY, "new_str", TEXT, false, "str_replace: what replaces it"},
    {OLD_EDITOR, "new_str", TEXT, false, "str_replace: what replaces it; insert: the text"},
    {EDITS, "insert_line", INTEGER, false, "insert: the line behind which the text goes; 0 is the beginning"},
    {EDITOR | MEMORY, "insert_text", TEXT, false, "insert: the text"},
    {MEMORY, "old_path", TEXT, false, "rename: the path"},
    {MEMORY, "new_path", TEXT, false, "rename: the new path"},
    {LOCAL_SHELL, "command", TEXTS, true, "the program and its arguments"},
    {LOCAL_SHELL, "working_directory", TEXT, false, "where it runs"},
    {LOCAL_SHELL, "timeout_ms", INTEGER, false, "milliseconds after which it is ended"},
    {SHELL, "commands", TEXTS, true, "commands that run beside each other"},
    {SHELL, "timeout_ms", INTEGER, false, "milliseconds after which they are ended"},
    {SHELL, "max_output_length", INTEGER, false, "characters of output to return"},
    {APPLY_PATCH, "type", WORD, true, "create_file update_file delete_file"},
    {APPLY_PATCH, "path", TEXT, true, "the file"},
    {APPLY_PATCH, "diff", TEXT, false,
     "create_file: its lines, each behind +; update_file: lines behind @@ that stay (blank), go (-) and come (+)"},
    {TOOL_SEARCH, "query", TEXT, true, "what the tool should do"},
    {TOOL_SEARCH, "limit", INTEGER, false, "how many tools to return at most"},
};

static const char edits[] = "Views, creates and edits files.";

static json_t *value_of(const property *p)
{
    static const char *const types[] = {"string", "integer", "boolean", "array", "array", "string"};
    json_t *v = json_pack("{s:s}", "type", types[p->kind]), *words = p->kind == WORD ? json_array() : NULL;
    if (p->kind == TEXTS || p->kind == INTEGERS)
        json_object_set_new_nocheck(v, "items", json_pack("{s:s}", "type", types[p->kind == TEXTS ? TEXT : INTEGER]));
    for (const char *w = p->about; words && *w; w += strcspn(w, " "), w += *w == ' ')
        json_array_append_new(words, json_stringn_nocheck(w, strcspn(w, " ")));
    json_object_set_new_nocheck(v, words ? "enum" : "description", words ? words : json_string_nocheck(p->about));
    return v;
}

/* An object with these properties and no others. Takes both over. */
static json_t *parameters_of(json_t *all, json_t *required)
{
    return json_pack("{s:s, s:o, s:o, s:b}", "type", "object", "properties", all, "required", required,
                     "additionalProperties", 0);
}

static json_t *make(const char *type, const char *name, const char *description, int of)
{
    json_t *all = json_object(), *required = json_array();
    for (size_t i = 0; i < sizeof properties / sizeof *properties; i++) {
        const property *p = &properties[i];
        if (!(p->tools & of)) continue;
        json_object_set_new_nocheck(all, p->name, value_of(p));
        if (p->required) json_array_append_new(required, json_string_nocheck(p->name));
    }
    return json_pack("{s:s, s:{s:s, s:s, s:o, s:b}}", "type", type, "function", "name", name, "description",
                     description, "parameters", parameters_of(all, required), "strict", 1);
}

/* FAMILY_YYYYMMDD */
static const char *date_of(const char *type, const char *family)
{
    size_t n = strlen(family);
    const char *date = !strncmp(type, family, n) && type[n] == '_' ? type + n + 1 : NULL;
    return date && strlen(date) == 8 && strspn(date, "0123456789") == 8 ? date : NULL;
}

json_t *ek_client_tool_anthropic(const char *type, const char *name)
{
    const char *date;
    if (date_of(type, "bash"))
        return make("function", name ? name : "bash", "Runs a command in a shell that keeps its state.", BASH);
    if (date_of(type, "memory"))
        return make("function", name ? name : "memory", "Keeps notes in files that outlast the conversation.", MEMORY);
    if (!(date = date_of(type, "text_editor"))) return NULL;
    if (strcmp(date, "20250429") < 0) return make("function", name ? name : "str_replace_editor", edits, OLD_EDITOR);
    return make("function", name ? name : "str_replace_based_edit_tool", edits, EDITOR);
}

json_t *ek_client_tool_openai(const char *type)
{
    static const struct {
        const char *type, *description;
        int of;
    } tools[] = {
        {"local_shell", "Runs a program on the user's machine.", LOCAL_SHELL},
        {"shell", "Runs commands in a shell.", SHELL},
        {"apply_patch", "Creates, changes or deletes a file.", APPLY_PATCH},
        {"tool_search", "Finds further tools, which can be called afterwards.", TOOL_SEARCH},
    };
    for (size_t i = 0; i < sizeof tools / sizeof *tools; i++)
        if (!strcmp(type, tools[i].type)) return make(type, type, tools[i].description, tools[i].of);
    return NULL;
}

/* --- custom tools --- */

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

static json_t *make_custom(const json_t *name, const json_t *description, const ek_buf *pattern, const ek_buf *says)
{
    ek_buf all = {0};
    json_t *input = json_pack("{s:s}", "type", "string");
    if (ek_json_is_text(description)) ek_buf_add(&all, json_string_value(description), json_string_length(description));
    if (all.len && says->len) ek_buf_str(&all, "\n");
    ek_buf_add(&all, ek_buf_text(says), says->len);
    if (pattern->len) json_object_set_new_nocheck(input, "pattern", text_of(pattern));
    json_t *parameters = parameters_of(json_pack("{s:o}", "input", input), json_pack("[s]", "input"));
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
    if (!err) *tool = make_custom(name, description, &pattern, &says);
    ek_buf_fini(&pattern);
    ek_buf_fini(&says);
    return err;
}

json_t *ek_custom_arguments(const char *input, size_t n)
{
    return json_pack("{s:o}", "input", json_stringn_nocheck(input, n));
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
