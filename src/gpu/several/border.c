#include "gpu/several/state.h"

#include <limits.h>

/* Takes only the tokens that s follows: the last device may write those of another microbatch meanwhile. */
static ek_err take_tokens(ek_gpu_run *x, const ek_step *s)
{
    const ek_gpu_run *last = x->near.last;
    int first = INT_MAX, end = 0;
    if (!s->follows || !last || last == x || !x->g->share.embed) return EK_OK;
    for (int r = 0; r < s->n_rows; r++) {
        if (s->follows[r] < 0) continue;
        first = s->follows[r] < first ? s->follows[r] : first;
        end = s->follows[r] >= end ? s->follows[r] + 1 : end;
    }
    if (end == 0) return EK_OK;
    const size_t at = sizeof(int32_t) * (size_t)first, bytes = sizeof(int32_t) * (size_t)(end - first);
    EK_TRY(ek_cuda_follow(x->g->c, ek_gpu_ended(&last->flights, x->near.drawn)));
    return ek_cuda_copy_from(x->g->c, x->buf.token + at, last->g->c, last->buf.token + at, bytes);
}

ek_err ek_gpu_border_take(ek_gpu_run *x, const ek_step *s)
{
    const size_t bytes = sizeof(float) * (size_t)x->g->m->config.hidden_size * (size_t)s->n_rows;
    EK_TRY(take_tokens(x, s));
    /* the next device must have taken the rows of the previous step before they are overwritten */
    if (x->near.behind) EK_TRY(ek_cuda_follow(x->g->c, x->near.behind->near.taken));
    if (x->near.given) return ek_cuda_upload(x->g->c, x->buf.h, x->near.given, bytes);
    if (!x->near.front) return EK_OK;
    EK_TRY(ek_cuda_follow(x->g->c, ek_gpu_ended(&x->near.front->flights, x->near.front->flights.n_begun - 1)));
    EK_TRY(ek_cuda_copy_from(x->g->c, x->buf.h, x->near.front->g->c, x->near.front->buf.h, bytes));
    return ek_cuda_event_record(x->g->c, x->near.taken);
}
