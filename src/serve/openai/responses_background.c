/* Background responses: the reply before they run, and the stored response. */
#include "serve/openai/responses.h"

void ek_responses_keep(const ek_api_reply *r, ek_buf *response)
{
    ek_responses *o = r->own;
    if (!o->store) return;
    ek_stored_response kept = {.id = r->id,
                               .previous = o->previous,
                               .input = o->input,
                               .response = *response,
                               .from = o->output_from,
                               .n = o->n_output,
                               .background = o->background,
                               .items = o->items};
    ek_response_store_put(o->store, o->owner, &kept);
    o->input = *response = (ek_buf){0};
    o->items = (ek_stored_items){0};
    o->store = NULL;
}

void ek_responses_queued(ek_buf *out, const ek_api_reply *r, bool events)
{
    static const char *const types[EK_RESPONSES_QUEUED] = {"created", "queued"};
    ek_responses *o = r->own;
    for (int i = 0; i < EK_RESPONSES_QUEUED && events; i++) {
        ek_responses_frame_open(out, r, types[i]);
        ek_buf_str(out, ",\"response\":");
        ek_responses_put(out, r, "queued", NULL);
        ek_responses_frame_close(out, r);
    }
    if (!events) ek_responses_put(out, r, "queued", NULL);
    o->queued = events;
}

void ek_responses_cancelled(ek_buf *out, const ek_api_reply *r)
{
    ek_responses *o = r->own;
    ek_buf copy = {0};
    o->items.n = o->n_inputs; /* nothing of the written items is kept */
    ek_responses_put(out, r, "cancelled", NULL);
    ek_buf_add(&copy, out->data, out->len);
    ek_responses_keep(r, &copy);
    ek_buf_fini(&copy);
}
