#include "gpu/step/step.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "model/pass.h"

struct ek_gpu_host {
    ek_scratch *scratch;
    float *h, *sum; /* pinned, [max_rows][hidden_size] */
    CUevent there;  /* h is */
};

static size_t bytes_of(const ek_gpu_run *x, int n)
{
    return sizeof(float) * (size_t)x->g->m->config.hidden_size * (size_t)n;
}

static ek_err pinned(ek_gpu_run *x, float **out)
{
    void *p = NULL;
    EK_TRY(ek_cuda_alloc_host(x->g->c, &p, bytes_of(x, x->z.max_rows)));
    *out = p;
    return EK_OK;
}

/* Presents a row's sum to ek_experts_end as the output of its only expert, with weight 1. */
static ek_err write_pairs(ek_gpu_run *x)
{
    const size_t n = (size_t)x->z.max_rows;
    int32_t *pair = ek_alloc(sizeof *pair * n);
    float *one = ek_alloc(sizeof *one * n);
    for (size_t i = 0; i < n; i++) pair[i] = (int32_t)i, one[i] = 1;
    ek_err err = ek_cuda_upload(x->g->c, x->experts.host_pair, pair, sizeof *pair * n);
    if (!err) err = ek_cuda_upload(x->g->c, x->experts.host_weight, one, sizeof *one * n);
    const ek_err ended = ek_cuda_sync(x->g->c);
    free(pair), free(one);
    return err ? err : ended;
}

ek_err ek_gpu_host_open(ek_gpu_run *x)
{
    if (ek_gpu_experts_are_here(&x->g->share, x->g->share.first)) return EK_OK;
    ek_gpu_host *host = x->host = ek_alloc(sizeof *x->host);
    EK_TRY(ek_scratch_open(&host->scratch, x->g->m, x->z.max_rows, x->z.max_logits, x->z.max_ctx));
    EK_TRY(pinned(x, &host->h));
    EK_TRY(pinned(x, &host->sum));
    EK_TRY(ek_cuda_event_open(x->g->c, &host->there));
    return write_pairs(x);
}

void ek_gpu_host_close(ek_gpu_run *x)
{
    ek_gpu_host *host = x->host;
    if (!host) return;
    ek_cuda_free_host(x->g->c, host->h), ek_cuda_free_host(x->g->c, host->sum);
    ek_cuda_event_close(x->g->c, host->there);
    ek_scratch_close(host->scratch);
    free(host);
    x->host = NULL;
}

ek_err ek_gpu_host_ask(ek_gpu_run *x, int n)
{
    EK_TRY(ek_cuda_download(x->g->c, x->host->h, x->buf.h, bytes_of(x, n)));
    return ek_cuda_event_record(x->g->c, x->host->there);
}

/* When this layer's rows arrive, the previous layer's sums have been copied. */
ek_err ek_gpu_host_answer(ek_gpu_run *x, int i, int n)
{
    EK_TRY(ek_cuda_event_wait(x->g->c, x->host->there));
    ek_model_run_experts(x->g->m, x->host->scratch, i, x->host->h, n, x->host->sum);
    return ek_cuda_upload(x->g->c, x->experts.pair_out, x->host->sum, bytes_of(x, n));
}
