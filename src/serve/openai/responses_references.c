/* Items by reference in the Responses API (item_reference), and what later requests may refer to. */
#include <string.h>

#include "serve/openai/responses.h"
#include "text/json/json.h"

/* Its type may be left out. */
static bool is_reference(const json_t *item)
{
    const json_t *type = ek_json_get(item, "type");
    if (ek_json_is_text(type)) return !strcmp(json_string_value(type), "item_reference");
    return (!type || json_is_null(type)) && ek_json_get(item, "id") && !ek_json_get(item, "role");
}

static void see(json_t *seen, const json_t *item)
{
    size_t n;
    const char *id = ek_json_get_text(item, "id", &n);
    if (id) json_object_setn_new_nocheck(seen, id, n, json_true());
}

/* Appends what the reference stands for. */
static ek_err resolve(json_t *list, json_t *seen, const json_t *reference, const ek_api_limits *limits)
{
    size_t n = 0;
    const char *id = ek_json_get_text(reference, "id", &n);
    json_t *item;
    if (!id) return ek_fail(EK_EINVAL, "an item_reference needs an id");
    if (json_object_getn(seen, id, n)) return EK_OK;
    if (!limits->responses) return ek_fail(EK_ENOTFOUND, "there is no item here: this server stores no responses");
    EK_TRY(ek_response_store_item(limits, id, n, &item));
    see(seen, item);
    json_array_append_new(list, item);
    return EK_OK;
}

static bool has_reference(const json_t *items)
{
    for (size_t i = 0; i < json_array_size(items); i++)
        if (is_reference(json_array_get(items, i))) return true;
    return false;
}

ek_err ek_responses_resolve(json_t **items, const json_t *earlier, const ek_api_limits *limits)
{
    ek_err err = EK_OK;
    if (!has_reference(*items)) return EK_OK;
    ek_json_size ids = {.containers = json_array_size(earlier) + json_array_size(*items)}; /* seen has no more */
    if (limits->count) EK_TRY(limits->count(limits->count_arg, &ids, 0, 0));
    json_t *seen = json_object(), *list = json_array();
    for (size_t i = 0; i < json_array_size(earlier); i++) see(seen, json_array_get(earlier, i));
    for (size_t i = 0; i < json_array_size(*items) && !err; i++) {
        json_t *item = json_array_get(*items, i);
        if (is_reference(item)) {
            err = resolve(list, seen, item, limits);
            if (err) ek_fail_in(err, "input[%zu]", i);
        } else {
            see(seen, item);
            json_array_append(list, item);
        }
    }
    json_decref(seen);
    json_decref(*items);
    *items = list;
    return err;
}

void ek_responses_keep_input(ek_responses *o, const json_t *items)
{
    ek_buf_char(&o->input, '[');
    for (size_t i = 0; i < json_array_size(items); i++) {
        const json_t *item = json_array_get(items, i);
        size_t n_id;
        const char *id = ek_json_get_text(item, "id", &n_id);
        if (i > 0) ek_buf_char(&o->input, ',');
        size_t from = o->input.len;
        ek_responses_put_kept(&o->input, item);
        ek_stored_item where = {.from = from, .n = o->input.len - from};
        if (id) ek_response_store_note(o->store, o->owner, &o->items, id, n_id, where);
    }
    ek_buf_char(&o->input, ']');
    o->n_inputs = o->items.n;
}
