/* What is kept of a request's items, for requests that continue it and for clients that read it again: the members that
 * this server reads or that the API's own types have. What else a client sends is its own: it would fill the store. */
#include <string.h>

#include "serve/api/field.h"
#include "serve/openai/responses.h"
#include "text/json/json.h"

enum { MAX_LABEL = 512 }; /* bytes of an id or a status: longer ones are not ours */

/* Members by the type of an item, NULL at the end. Items of other types are kept whole. */
static const struct {
    const char *type;
    const char *member[10];
} items[] = {
    {"message", {"role", "content", "phase"}},
    {"reasoning", {"content", "summary", "encrypted_content"}},
    {"function_call", {"call_id", "name", "namespace", "arguments"}},
    {"function_call_output", {"call_id", "output"}},
    {"custom_tool_call", {"call_id", "name", "namespace", "input"}},
    {"custom_tool_call_output", {"call_id", "output"}},
    {"item_reference", {NULL}},
};

/* Of the parts of contents, outputs and summaries, whatever their type. */
static const char *const part_members[] = {
    "text",      "refusal",     "title",     "source", "image_url", "detail",      "file_id",    "file_url", "filename",
    "file_data", "input_audio", "audio_url", "video",  "video_url", "input_video", "timestamps", "fps",      NULL};

static bool is_label(const char *key)
{
    return !strcmp(key, "type") || !strcmp(key, "id") || !strcmp(key, "status");
}

static bool is_listed(const char *const *list, const char *key)
{
    while (*list && strcmp(*list, key) != 0) list++;
    return *list != NULL;
}

static bool is_kept(const char *const *members, const char *key, const json_t *v)
{
    if (is_label(key)) return !json_is_string(v) || json_string_length(v) <= MAX_LABEL;
    return is_listed(members, key);
}

static void put_parts(ek_buf *out, const json_t *list);

/* {…} of what is kept. parts: lists in it are lists of parts. */
static void put_object(ek_buf *out, const json_t *o, const char *const *members, bool parts)
{
    json_t *v;
    const char *key;
    size_t n;
    bool any = false;
    ek_buf_char(out, '{');
    json_object_keylen_foreach((json_t *)(uintptr_t)o, key, n, v)
    {
        bool none = parts == false &&
                    !strcmp(key, "annotations"); /* the type of a text needs them, but none are read */
        if (strlen(key) != n || (!none && !is_kept(members, key, v))) continue;
        if (any) ek_buf_char(out, ',');
        any = true;
        ek_json_quote(out, key, n);
        ek_buf_char(out, ':');
        if (none) ek_buf_str(out, "[]");
        else if (parts && json_is_array(v)) put_parts(out, v);
        else ek_json_write(out, v);
    }
    ek_buf_char(out, '}');
}

static void put_parts(ek_buf *out, const json_t *list)
{
    ek_buf_char(out, '[');
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        if (i > 0) ek_buf_char(out, ',');
        if (json_is_object(v)) put_object(out, v, part_members, false);
        else ek_json_write(out, v);
    }
    ek_buf_char(out, ']');
}

void ek_responses_put_kept(ek_buf *out, const json_t *item)
{
    const char *type = ek_json_get_text(item, "type", NULL);
    for (size_t i = 0; i < sizeof items / sizeof *items; i++) {
        if (strcmp(type ? type : "message", items[i].type) != 0) continue;
        put_object(out, item, items[i].member, true);
        return;
    }
    ek_json_write(out, item);
}
