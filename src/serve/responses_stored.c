/* GET and DELETE /v1/responses/{id}; the allowed methods of the paths of conversations. */
#include <stdio.h>
#include <string.h>

#include "serve/background.h"
#include "serve/routes.h"
#include "serve/store/conversations.h"
#include "serve/server_state.h"
#include "text/json/json.h"

static void failed(ek_exchange *x, ek_err err, const char *param)
{
    ek_reply_failure(x, &ek_dialect_responses, err, err == EK_ENOTFOUND || err == EK_EINVAL ? param : NULL, NULL);
}

/* Whole, or a page of its input. */
static ek_err hold(ek_outgoing *out, ek_server *s, const ek_exchange *x, const char *id, bool input, const char **param)
{
    const uint64_t owner = ek_route_owner(s, x);
    ek_api_request r = {.param = "id"};
    ek_item_page page = {0};
    ek_err err;
    if (!ek_responses_is_id(id)) {
        err = ek_fail(EK_ENOTFOUND, "there is no response %.80s here", id);
    } else if (input) {
        err = ek_item_page_read(&r, &page, ek_exchange_target(x));
        if (!err) err = ek_response_lend_page(out, s->responses, owner, id, &page);
    } else {
        ek_response_held *held;
        err = ek_response_store_hold(s->responses, owner, id, false, &out->part[0], &held);
        out->release = ek_response_store_release, out->arg = held;
    }
    *param = r.param;
    return err;
}

void ek_responses_get(ek_server *s, ek_exchange *x, const char *rest)
{
    static const char items[] = "/input_items";
    char id[128];
    const char *param;
    ek_outgoing body = {0};
    size_t n = strlen(rest), k = sizeof items - 1;
    bool input = n > k && !strcmp(rest + n - k, items);
    snprintf(id, sizeof id, "%.*s", (int)(input ? n - k : n), rest);
    if (ek_background_get(s, x, id, input)) return;
    ek_err err = hold(&body, s, x, id, input, &param);
    if (err) failed(x, err, param);
    else ek_exchange_reply_from(x, 200, "application/json", &body);
}

void ek_responses_delete(ek_server *s, ek_exchange *x, const char *id)
{
    ek_buf b = {0};
    const uint64_t owner = ek_route_owner(s, x);
    const bool was = ek_background_delete(s, owner, id);
    ek_err err = !ek_responses_is_id(id) ? ek_fail(EK_ENOTFOUND, "there is no response %.80s here", id)
                                         : ek_response_store_delete(s->responses, owner, id);
    if (err && !was) {
        failed(x, err, "id");
    } else {
        ek_put_string_after(&b, "{\"id\":", id);
        ek_buf_str(&b, ",\"object\":\"response\",\"deleted\":true}");
        ek_reply_json(x, 200, &b);
    }
    ek_buf_fini(&b);
}

void ek_conversations_route(ek_server *s, ek_exchange *x, const char *rest)
{
    static const char *const allowed[] = {"POST", "GET, POST, DELETE", "GET, POST", "GET, DELETE"};
    static const char items[] = "/items";
    const char *method = ek_exchange_method(x), *tail = strchr(rest, '/');
    const bool has_items = tail && !strncmp(tail, items, sizeof items - 1);
    const char *item = has_items ? tail + sizeof items - 1 : NULL;
    const bool one = item && *item == '/' && item[1] && !strchr(item + 1, '/');
    if (tail && !(item && (!*item || one))) {
        ek_reply_error(x, &ek_dialect_conversations, 404, NULL, NULL, "there is nothing at %.200s",
                       ek_exchange_path(x));
        return;
    }
    const char *may = allowed[!*rest  ? 0
                              : !tail ? 1
                              : one   ? 3
                                      : 2],
               *found = strstr(may, strcmp(method, "HEAD") ? method : "GET");
    const size_t n = strlen(strcmp(method, "HEAD") ? method : "GET");
    if (n > 0 && found && (!found[n] || found[n] == ',')) {
        ek_route_api(s, x, &ek_dialect_conversations);
        return;
    }
    ek_reply_wrong_method(x, &ek_dialect_conversations, ek_exchange_path(x), may);
}
