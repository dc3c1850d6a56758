/* GET and DELETE /v1/responses/{id}; the allowed methods of the paths of conversations. */
#include <stdio.h>
#include <string.h>

#include "serve/background.h"
#include "serve/routes.h"
#include "serve/store/response_store.h"
#include "serve/server_state.h"
#include "text/json/json.h"

static void failed(ek_exchange *x, ek_err err)
{
    ek_reply_failure(x, &ek_dialect_responses, err, err == EK_ENOTFOUND ? "id" : NULL, NULL);
}

void ek_responses_get(ek_server *s, ek_exchange *x, const char *rest)
{
    static const char items[] = "/input_items";
    char id[128];
    ek_span text;
    ek_response_held *held;
    size_t n = strlen(rest), k = sizeof items - 1;
    bool input = n > k && !strcmp(rest + n - k, items);
    snprintf(id, sizeof id, "%.*s", (int)(input ? n - k : n), rest);
    if (ek_background_get(s, x, id, input)) return;
    ek_err err = !ek_responses_is_id(id)
                     ? ek_fail(EK_ENOTFOUND, "there is no response %.80s here", id)
                     : ek_response_store_hold(s->responses, ek_route_owner(s, x), id, input, &text, &held);
    if (err) {
        failed(x, err);
        return;
    }
    static const char begin[] = "{\"object\":\"list\",\"data\":",
                      end[] = ",\"first_id\":null,\"last_id\":null,\"has_more\":false}";
    ek_outgoing body = {.part[1] = text, .release = ek_response_store_release, .arg = held};
    if (input) body.part[0] = (ek_span){begin, sizeof begin - 1}, body.part[2] = (ek_span){end, sizeof end - 1};
    ek_exchange_reply_from(x, 200, "application/json", &body);
}

void ek_responses_delete(ek_server *s, ek_exchange *x, const char *id)
{
    ek_buf b = {0};
    const uint64_t owner = ek_route_owner(s, x);
    const bool was = ek_background_delete(s, owner, id);
    ek_err err = !ek_responses_is_id(id) ? ek_fail(EK_ENOTFOUND, "there is no response %.80s here", id)
                                         : ek_response_store_delete(s->responses, owner, id);
    if (err && !was) {
        failed(x, err);
    } else {
        ek_buf_str(&b, "{\"id\":");
        ek_put_string(&b, id);
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
    ek_buf b = {0};
    if (tail && !(item && (!*item || one))) {
        ek_buf_fmt(&b, "there is nothing at %.200s", ek_exchange_path(x));
        ek_reply_error(x, &ek_dialect_conversations, 404, ek_buf_text(&b), NULL, NULL);
        ek_buf_fini(&b);
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
    ek_exchange_header(x, "allow", may);
    ek_buf_fmt(&b, "%.200s takes %s, not %.40s", ek_exchange_path(x), may, method);
    ek_reply_error(x, &ek_dialect_conversations, 405, ek_buf_text(&b), NULL, NULL);
    ek_buf_fini(&b);
}
