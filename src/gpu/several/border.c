#include "gpu/several/state.h"

#include <limits.h>

/* Behind the kernels of that step. */
static CUevent ended(const ek_gpu_run *x, uint64_t step)
{
    return x->flight[step % (uint64_t)x->n_flights].ended;
}

/* Those that s follows, and no others: a piece that the last device computes meanwhile may write its own. */
static ek_err take_tokens(ek_gpu_run *x, const ek_step *s)
{
    const ek_gpu_run *last = x->last;
    int first = INT_MAX, end = 0;
    if (!s->follows || !last || last == x || !x->g->share.embed) return EK_OK;
    for (int r = 0; r < s->n_rows; r++) {
        if (s->follows[r] < 0) continue;
        first = s->follows[r] < first ? s->follows[r] : first;
        end = s->follows[r] >= end ? s->follows[r] + 1 : end;
    }
    if (end == 0) return EK_OK;
    const size_t at = sizeof(int32_t) * (size_t)first, bytes = sizeof(int32_t) * (size_t)(end - first);
    EK_TRY(ek_cuda_follow(x->g->c, ended(last, x->drawn)));
    return ek_cuda_copy_from(x->g->c, x->token + at, last->g->c, last->token + at, bytes);
}

ek_err ek_gpu_border_take(ek_gpu_run *x, const ek_step *s)
{
    const size_t bytes = sizeof(float) * (size_t)x->g->m->config.hidden_size * (size_t)s->n_rows;
    EK_TRY(take_tokens(x, s));
    /* the rows of the step in front of this one must have been taken before they are written again */
    if (x->behind) EK_TRY(ek_cuda_follow(x->g->c, x->behind->taken));
    if (x->given) return ek_cuda_upload(x->g->c, x->h, x->given, bytes);
    if (!x->front) return EK_OK;
    EK_TRY(ek_cuda_follow(x->g->c, ended(x->front, x->front->n_begun - 1)));
    EK_TRY(ek_cuda_copy_from(x->g->c, x->h, x->front->g->c, x->front->h, bytes));
    return ek_cuda_event_record(x->g->c, x->taken);
}
