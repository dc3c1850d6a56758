/* Message threads (beta message-threads-2026-08-12): a conversation is kept under the id of its reply, and a later
 * request sends only new messages. A thread is stored like a response: each reply with the messages that it answered,
 * and the id that it continues. The first entry also has the thread's system text and tools. */
#include <string.h>

#include "base/alloc.h"
#include "serve/anthropic/anthropic.h"
#include "serve/api/field.h"
#include "text/json/json.h"

/* Whether the item is the head of a thread: {"system":…,"tools":…}, without a role, before the messages. */
static bool is_head(const json_t *item)
{
    return json_is_object(item) && !ek_json_get(item, "role");
}

static void write_input(ek_anthropic *own, const json_t *body, bool head)
{
    static const char *const kept[] = {"system", "tools"};
    const json_t *messages = ek_field(body, "messages");
    ek_buf *out = &own->input;
    ek_buf_str(out, head ? "[{" : "[");
    for (size_t i = 0, n = 0; head && i < sizeof kept / sizeof *kept; i++) {
        const json_t *v = ek_field(body, kept[i]);
        if (!v) continue;
        ek_buf_fmt(out, "%s\"%s\":", n++ ? "," : "", kept[i]);
        ek_json_write(out, v);
    }
    if (head) ek_buf_char(out, '}');
    for (size_t i = 0; i < json_array_size(messages); i++) {
        if (head || i > 0) ek_buf_char(out, ',');
        ek_json_write(out, json_array_get(messages, i));
    }
    ek_buf_char(out, ']');
}

/* The body with the thread's messages before its own. */
static json_t *join(const json_t *body, json_t *earlier)
{
    const json_t *messages = ek_field(body, "messages");
    json_t *whole = json_copy((json_t *)(uintptr_t)body), *head = json_array_get(earlier, 0);
    if (is_head(head)) {
        json_object_update(whole, head);
        json_array_remove(earlier, 0);
    }
    if (json_is_array(messages)) json_array_extend(earlier, (json_t *)(uintptr_t)messages);
    json_object_set(whole, "messages", earlier);
    return whole;
}

/* If a request that continues a thread has system or tools, they must equal the thread's. */
static ek_err check_head(ek_api_request *r, const json_t *body, const json_t *head)
{
    static const char *const kept[] = {"system", "tools"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        const json_t *v = ek_field(body, kept[i]), *was = is_head(head) ? ek_field(head, kept[i]) : NULL;
        if (!v || (was && json_equal(v, was))) continue;
        r->param = "thread";
        r->code = "thread_fingerprint_mismatch";
        return ek_fail(EK_EINVAL, "thread: %s is not what the thread was created with; leave it out", kept[i]);
    }
    return EK_OK;
}

static ek_err read_earlier(ek_api_request *r, const json_t *body, const ek_api_limits *limits, json_t *earlier)
{
    ek_anthropic *own = r->own;
    const char *id = ek_json_get_text(ek_field(body, "thread"), "previous_message_id", NULL);
    if (!id) return ek_field_wrong(r, "thread", "its previous_message_id must be the id of the previous reply");
    own->previous = ek_strdup(id);
    r->param = "thread.previous_message_id"; /* whatever is wrong */
    ek_err err = strncmp(id, EK_ANTHROPIC_ID, sizeof EK_ANTHROPIC_ID - 1) != 0
                     ? ek_fail(EK_ENOTFOUND, "ids of messages begin with " EK_ANTHROPIC_ID)
                     : ek_response_store_items(limits, id, earlier);
    size_t n = json_array_size(earlier) + json_array_size(ek_field(body, "messages"));
    if (!err && limits->max_messages > 0 && n > (size_t)limits->max_messages)
        err = ek_fail(EK_ETOOLARGE, "with it there are %zu messages, at most %d are allowed", n, limits->max_messages);
    if (err == EK_ENOTFOUND) r->code = "thread_not_found";
    if (err) return ek_fail_in(err, "thread.previous_message_id");
    r->param = NULL;
    return check_head(r, body, json_array_get(earlier, 0));
}

ek_err ek_anthropic_thread(ek_api_request *r, const json_t *body, const ek_api_limits *limits, json_t **whole)
{
    ek_anthropic *own = r->own;
    const json_t *thread = ek_field(body, "thread");
    const char *type = ek_json_get_text(thread, "type", NULL);
    *whole = json_incref((json_t *)(uintptr_t)body);
    if (!thread) return EK_OK;
    const bool create = type && !strcmp(type, "create"), goes_on = type && !strcmp(type, "continue");
    if (!limits->responses || !(create || goes_on)) {
        r->code = "thread_unsupported_request"; /* clients then send the whole conversation */
        return ek_field_wrong(r, "thread",
                              limits->responses
                                  ? "its type must be create or continue"
                                  : "this server keeps no threads; each request has the whole conversation");
    }
    own->store = limits->responses;
    own->owner = limits->owner;
    write_input(own, body, create);
    if (create) return EK_OK;
    json_t *earlier = json_array();
    ek_err err = read_earlier(r, body, limits, earlier);
    if (!err) {
        json_decref(*whole);
        *whole = join(body, earlier);
    }
    json_decref(earlier);
    return err;
}

void ek_anthropic_thread_keep(const ek_api_reply *r)
{
    ek_anthropic *own = r->own;
    if (!own->store) return;
    ek_stored_response kept = {.id = r->id, .previous = own->previous, .input = own->input};
    ek_buf_str(&kept.response, "[{\"role\":\"assistant\",\"content\":");
    ek_anthropic_put_content(&kept.response, r);
    ek_buf_str(&kept.response, "}]");
    kept.n = kept.response.len;
    ek_response_store_put(own->store, own->owner, &kept);
    own->input = (ek_buf){0};
}
