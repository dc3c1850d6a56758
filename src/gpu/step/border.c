#include "gpu/step/border.h"

/* Behind the kernels of the step that x began last. */
static CUevent ended(const ek_gpu_run *x)
{
    return x->flight[(x->n_begun - 1) % (uint64_t)x->n_flights].ended;
}

static ek_err take_tokens(ek_gpu_run *x, const ek_step *s)
{
    const ek_gpu_run *last = x->last;
    if (!s->follows || !last || last == x || !x->g->share.embed) return EK_OK;
    EK_TRY(ek_cuda_follow(x->g->c, ended(last)));
    return ek_cuda_copy_from(x->g->c, x->token, last->g->c, last->token, sizeof(int32_t) * (size_t)x->z.max_logits);
}

ek_err ek_gpu_border_take(ek_gpu_run *x, const ek_step *s)
{
    const size_t bytes = sizeof(float) * (size_t)x->g->m->config.hidden_size * (size_t)s->n_rows;
    EK_TRY(take_tokens(x, s));
    /* the rows of the step in front of this one must have been taken before they are written again */
    if (x->behind) EK_TRY(ek_cuda_follow(x->g->c, x->behind->taken));
    if (x->given) return ek_cuda_upload(x->g->c, x->h, x->given, bytes);
    if (!x->front) return EK_OK;
    EK_TRY(ek_cuda_follow(x->g->c, ended(x->front)));
    EK_TRY(ek_cuda_copy_from(x->g->c, x->h, x->front->g->c, x->front->h, bytes));
    return ek_cuda_event_record(x->g->c, x->taken);
}
