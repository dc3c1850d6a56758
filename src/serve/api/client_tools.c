#include "serve/api/tools.h"

#include <string.h>

#include "base/err.h"
#include "text/json/json.h"

#define TEXT(name, about)    "\"" name "\":{\"type\":\"string\",\"description\":\"" about "\"}"
#define INTEGER(name, about) "\"" name "\":{\"type\":\"integer\",\"description\":\"" about "\"}"
#define RANGE                                                                                                        \
    "\"view_range\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"description\":\"view: the first and the " \
    "last line to show, from 1; -1 is the end of the file\"}"
#define COMMAND(words) "\"command\":{\"type\":\"string\",\"enum\":[" words "]}"
#define OBJECT(required, properties) \
    "{\"type\":\"object\",\"properties\":{" properties "},\"required\":[" required "],\"additionalProperties\":false}"
#define EDITS TEXT("old_str", "str_replace: the text to replace, which stands in the file once")

static const char bash[] = OBJECT(
    "",
    TEXT(
        "command",
        "the command to run; not needed with restart") ",\"restart\":{"
                                                       "\"type\":\"boolean\",\"description\":\"true: start the shell anew\"}");

static const char editor[] = OBJECT(
    "\"command\",\"path\"",
    COMMAND("\"view\",\"create\",\"str_replace\",\"insert\"") "," TEXT("path", "the file or folder") "," RANGE "," TEXT(
        "file_text",
        "create: what the file holds") "," EDITS
                                       "," TEXT("new_str", "str_replace: what replaces it") "," INTEGER(
                                           "insert_line",
                                           "insert: the line behind which the text goes; 0 is the beginning") "," TEXT("insert_text",
                                                                                                                       "insert: the text"));

static const char old_editor[] = OBJECT(
    "\"command\",\"path\"",
    COMMAND("\"view\",\"create\",\"str_replace\",\"insert\",\"undo_edit\"") "," TEXT("path", "the file or folder") "," RANGE "," TEXT(
        "file_text",
        "create: what the file holds") "," EDITS
                                       "," TEXT("new_str", "str_replace: what replaces it; insert: the text") "," INTEGER(
                                           "insert_line",
                                           "insert: the line behind which the text goes; 0 is the beginning"));

static const char memory[] = OBJECT(
    "\"command\"",
    COMMAND("\"view\",\"create\",\"str_replace\",\"insert\",\"delete\",\"rename\"") "," TEXT("path", "the file or folder, below /memories") "," RANGE "," TEXT(
        "file_text",
        "create: what the file holds") "," EDITS
                                       "," TEXT("new_str", "str_replace: what replaces it") "," INTEGER("insert_line", "insert: the line behind which the text goes; 0 is the beginning") "," TEXT(
                                           "insert_text",
                                           "insert: the text") "," TEXT("old_path",
                                                                        "rename: the path") "," TEXT("new_path",
                                                                                                     "rename: the new path"));

static const char local_shell[] = OBJECT(
    "\"command\"",
    "\"command\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"description\":\"the program and its arguments\"}," TEXT(
        "working_directory", "where it runs") "," INTEGER("timeout_ms", "milliseconds after which it is ended"));

static const char shell[] = OBJECT(
    "\"commands\"",
    "\"commands\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"description\":\"commands that run beside each "
    "other\"}," INTEGER("timeout_ms", "milliseconds after which they are ended") "," INTEGER(
        "max_output_length", "characters of output to return"));

static const char apply_patch[] = OBJECT(
    "\"type\",\"path\"",
    "\"type\":{\"type\":\"string\",\"enum\":[\"create_file\",\"update_file\",\"delete_file\"]}," TEXT(
        "path",
        "the file") "," TEXT("diff",
                             "create_file: its lines, each behind +; update_file: lines behind @@ that stay (blank), go (-) and "
                             "come (+)"));

static const char tool_search[] = OBJECT(
    "\"query\"", TEXT("query", "what the tool should do") "," INTEGER("limit", "how many tools to return at most"));

static const char edits[] = "Views, creates and edits files.";

static json_t *make(const char *type, const char *name, const char *description, const char *parameters)
{
    json_t *schema, *function = json_object(), *tool = json_object();
    const ek_err err = ek_json_read(&schema, parameters, strlen(parameters), 0);
    EK_ASSERT(err == EK_OK);
    json_object_set_new_nocheck(function, "name", json_string_nocheck(name));
    json_object_set_new_nocheck(function, "description", json_string_nocheck(description));
    json_object_set_new_nocheck(function, "parameters", schema);
    json_object_set_new_nocheck(function, "strict", json_true());
    json_object_set_new_nocheck(tool, "type", json_string_nocheck(type));
    json_object_set_new_nocheck(tool, "function", function);
    return tool;
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
        return make("function", name ? name : "bash", "Runs a command in a shell that keeps its state.", bash);
    if (date_of(type, "memory"))
        return make("function", name ? name : "memory", "Keeps notes in files that outlast the conversation.", memory);
    if (!(date = date_of(type, "text_editor"))) return NULL;
    if (strcmp(date, "20250429") < 0) return make("function", name ? name : "str_replace_editor", edits, old_editor);
    return make("function", name ? name : "str_replace_based_edit_tool", edits, editor);
}

json_t *ek_client_tool_openai(const char *type)
{
    static const struct {
        const char *type, *description, *parameters;
    } tools[] = {
        {"local_shell", "Runs a program on the user's machine.", local_shell},
        {"shell", "Runs commands in a shell.", shell},
        {"apply_patch", "Creates, changes or deletes a file.", apply_patch},
        {"tool_search", "Finds further tools, which can be called afterwards.", tool_search},
    };
    for (size_t i = 0; i < sizeof tools / sizeof *tools; i++)
        if (!strcmp(type, tools[i].type)) return make(type, type, tools[i].description, tools[i].parameters);
    return NULL;
}
