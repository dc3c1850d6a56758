#include "open/beside.h"

#include "engine/budget.h"
#include "gpu/tower/encoder.h"

/* Prompts of small models are read nearly twice as fast by long steps, which replies beside them do not notice. */
int ek_open_chunk(const ek_model *m, bool host)
{
    enum { LEAST = 512, LARGEST = 2048 };
    const double macs = 2.4e12; /* of a step's prompt rows: some 25 ms of a Hopper GPU */
    int n = LARGEST;
    if (host) return LEAST;
    while (n > LEAST && n * ek_model_macs_prompt_row(m) > macs) n /= 2;
    return n;
}

ek_ranks_beside ek_open_beside(const ek_model *m, ek_towers *t, const ek_drafter *d, const ek_open_opts *o, bool alone)
{
    ek_engine_opts e = ek_open_engine_opts(o);
    const ek_config *c = ek_model_config(m);
    const int max = c->max_position_embeddings, few = max < EK_BUDGET_EACH ? max : EK_BUDGET_EACH,
              ctx = o->ctx_tokens ? o->ctx_tokens
                    : alone       ? few
                                  : max,
              image = t && c->mutual && ek_towers_get(t)->image ? EK_IMAGE_TOKENS : 0;
    ek_ranks_beside out = {.step = {.max_ctx = ctx}, .drafter = d, .towers = t ? ek_gpu_encoder_bytes(t) : 0};
    ek_budget b = {.ctx = ctx};
    if (!o->chunk) e.chunk = ek_open_chunk(m, false);
    if (!o->max_requests && !alone) e.max_requests = EK_BUDGET_REQUESTS;
    ek_executor_sizes_of(&out.step, &e, c, image);
    const int each = o->ctx_tokens ? ctx : alone ? EK_PAGE_TOKENS : few;
    out.kv_bytes = ek_budget_request_bytes(ek_model_kv_layout(m), each);
    if (e.kv_bytes > 0)
        out.kv_bytes = ek_budget_plan(&b, ek_model_kv_layout(m), e.max_requests, ctx, out.step.max_rows, e.kv_bytes,
                                      o->ctx_tokens == 0)
                           ? e.kv_bytes
                           : b.bytes;
    return out;
}
