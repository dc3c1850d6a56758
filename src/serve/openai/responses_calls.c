/* Writes the calls of a response, each as an item of its tool's own type: functions and custom tools while they arrive;
 * the others, whose items are objects, after their end. */
#include <string.h>

#include "serve/api/tools.h"
#include "serve/openai/responses.h"
#include "text/json/json.h"

enum { FUNCTION, CUSTOM, LOCAL_SHELL, SHELL, APPLY_PATCH, TOOL_SEARCH, N_KINDS };

static const struct {
    const char *tool, *item, *prefix;
} kinds[N_KINDS] = {
    [FUNCTION] = {"function", "function_call", "fc_"},
    [CUSTOM] = {"custom", "custom_tool_call", "ctc_"},
    [LOCAL_SHELL] = {"local_shell", "local_shell_call", "lsh_"},
    [SHELL] = {"shell", "shell_call", "sh_"},
    [APPLY_PATCH] = {"apply_patch", "apply_patch_call", "apc_"},
    [TOOL_SEARCH] = {"tool_search", "tool_search_call", "tsc_"},
};

/* The kind of the call, by the type of its tool's declaration. */
static int kind_of(const ek_api_reply *r, const ek_buf *name)
{
    const char *type = ek_tools_type(r->turn->tools, ek_buf_text(name), name->len);
    for (int i = 0; i < N_KINDS; i++)
        if (!strcmp(type, kinds[i].tool)) return i;
    return FUNCTION;
}

void ek_responses_put_id(ek_buf *out, const ek_api_reply *r, const char *prefix, int index)
{
    char id[48];
    ek_call_id(id, prefix, r->id, index);
    ek_buf_fmt(out, "\"%s\"", id);
}

/* --- items --- */

typedef struct member {
    const char *key, *absent; /* the value of an absent member */
} member;

/* Writes members of an object; n: their number. */
static void put_members(ek_buf *out, const json_t *object, const member *m, int n)
{
    for (int i = 0; i < n; i++) {
        const json_t *v = ek_json_get(object, m[i].key);
        ek_buf_fmt(out, "%s\"%s\":", i ? "," : "", m[i].key);
        if (v) ek_json_write(out, v);
        else ek_buf_str(out, m[i].absent);
    }
}

static void put_action(ek_buf *out, int kind, const json_t *args)
{
    static const member local[] = {{"command", "[]"}, {"env", "{}"}, {"timeout_ms", "null"}},
                        where[] = {{"working_directory", "null"}},
                        shell[] = {{"commands", "[]"}, {"timeout_ms", "null"}, {"max_output_length", "null"}};
    if (kind == LOCAL_SHELL) {
        ek_buf_str(out, ",\"action\":{\"type\":\"exec\",");
        put_members(out, args, local, 3);
        ek_buf_str(out, ",\"user\":null,");
        put_members(out, args, where, 1);
    } else {
        ek_buf_str(out, ",\"action\":{");
        put_members(out, args, shell, 3);
    }
    ek_buf_char(out, '}');
}

static void put_operation(ek_buf *out, const json_t *args)
{
    static const member all[] = {{"type", "\"update_file\""}, {"path", "\"\""}, {"diff", "\"\""}};
    const char *type = ek_json_get_text(args, "type", NULL);
    ek_buf_str(out, ",\"operation\":{");
    put_members(out, args, all, type && !strcmp(type, "delete_file") ? 2 : 3);
    ek_buf_char(out, '}');
}

/* Writes the call's action; args: a JSON object, or its beginning, which c->closing completes. */
static void put_what(ek_buf *out, const ek_responses_call *c, int kind)
{
    ek_buf all = {0};
    json_t *args;
    ek_buf_add(&all, ek_buf_text(c->args), c->args->len);
    ek_buf_add(&all, ek_buf_text(c->closing), c->closing->len);
    if (ek_json_read(&args, ek_buf_text(&all), all.len, 0)) args = json_object(); /* the object has not begun */
    if (kind == APPLY_PATCH) {
        put_operation(out, args);
    } else if (kind == TOOL_SEARCH) {
        ek_buf_str(out, ",\"execution\":\"client\",\"arguments\":");
        ek_json_write(out, args);
    } else {
        put_action(out, kind, args);
        if (kind == SHELL) ek_buf_str(out, ",\"environment\":{\"type\":\"local\"}");
    }
    json_decref(args);
    ek_buf_fini(&all);
}

static void put_item(ek_buf *out, const ek_api_reply *r, const ek_responses_call *c, int kind, const char *status)
{
    if (kind == APPLY_PATCH && !strcmp(status, "incomplete")) status = "in_progress"; /* no other status fits */
    ek_buf_str(out, "{\"id\":");
    ek_responses_put_id(out, r, kinds[kind].prefix, c->index);
    ek_buf_fmt(out, ",\"type\":\"%s\",\"status\":\"%s\",\"call_id\":", kinds[kind].item, status);
    ek_responses_put_id(out, r, "call_", c->call);
    if (kind == FUNCTION) {
        ek_responses_put_name(out, r->own, c->name);
        ek_put_text_after(out, ",\"arguments\":", ek_buf_text(c->args), c->args->len);
    } else if (kind == CUSTOM) {
        ek_buf input = {0};
        ek_custom_input_of(&input, c->args);
        ek_responses_put_name(out, r->own, c->name);
        ek_put_text_after(out, ",\"input\":", ek_buf_text(&input), input.len);
        ek_buf_fini(&input);
    } else {
        put_what(out, c, kind);
    }
    ek_buf_char(out, '}');
}

void ek_responses_put_call(ek_buf *out, const ek_api_reply *r, const ek_responses_call *c)
{
    put_item(out, r, c, kind_of(r, c->name), c->closing->len ? "incomplete" : "completed");
}

/* --- a stream --- */

static void put_added_or_done(ek_buf *out, const ek_api_reply *r, const char *event, const char *status)
{
    ek_responses *o = r->own;
    const ek_responses_call c = {o->blocks.n - 1, o->call, &o->name, &o->args, &o->closing};
    ek_responses_frame_open(out, r, event);
    ek_buf_fmt(out, ",\"output_index\":%d,\"item\":", c.index);
    put_item(out, r, &c, o->kind, status);
    ek_responses_frame_close(out, r);
}

static void event_open(ek_buf *out, const ek_api_reply *r, const char *event)
{
    const ek_responses *o = r->own;
    ek_responses_item_open(out, r, event, kinds[o->kind].prefix);
}

void ek_responses_open_call(ek_buf *out, const ek_api_reply *r, const ek_reply_event *e)
{
    ek_responses *o = r->own;
    o->call = e->call;
    ek_buf_clear(&o->args);
    ek_buf_clear(&o->closing);
    ek_buf_clear(&o->name);
    ek_buf_add(&o->name, e->text, e->n);
    o->kind = kind_of(r, &o->name);
    o->custom = (ek_custom_input){0};
    if (o->kind == FUNCTION || o->kind == CUSTOM) put_added_or_done(out, r, "output_item.added", "in_progress");
}

static void put_delta(ek_buf *out, const ek_api_reply *r, const char *event, const char *s, size_t n)
{
    if (n == 0) return;
    event_open(out, r, event);
    ek_put_text_after(out, ",\"delta\":", s, n);
    ek_responses_frame_close(out, r);
}

void ek_responses_call_piece(ek_buf *out, const ek_api_reply *r, const char *s, size_t n)
{
    ek_responses *o = r->own;
    ek_buf_add(&o->args, s, n);
    if (o->kind == FUNCTION) {
        put_delta(out, r, "function_call_arguments.delta", s, n);
    } else if (o->kind == CUSTOM) {
        ek_buf piece = {0};
        ek_custom_input_add(&o->custom, &piece, s, n);
        put_delta(out, r, "custom_tool_call_input.delta", ek_buf_text(&piece), piece.len);
        ek_buf_fini(&piece);
    }
}

void ek_responses_close_call(ek_buf *out, const ek_api_reply *r)
{
    ek_responses *o = r->own;
    const char *status = o->cut ? "incomplete" : "completed";
    if (o->kind == FUNCTION) {
        event_open(out, r, "function_call_arguments.done");
        ek_responses_put_name(out, o, &o->name);
        ek_put_text_after(out, ",\"arguments\":", ek_buf_text(&o->args), o->args.len);
        ek_responses_frame_close(out, r);
    } else if (o->kind == CUSTOM) {
        ek_buf input = {0};
        ek_custom_input_of(&input, &o->args);
        event_open(out, r, "custom_tool_call_input.done");
        ek_put_text_after(out, ",\"input\":", ek_buf_text(&input), input.len);
        ek_responses_frame_close(out, r);
        ek_buf_fini(&input);
    } else {
        put_added_or_done(out, r, "output_item.added", "in_progress");
    }
    put_added_or_done(out, r, "output_item.done", status);
}
