#include "gpu/several/state.h"

#include <math.h>

double ek_ranks_pages_for(const ek_ranks *r, const size_t own[EK_PAGE_KINDS], double room)
{
    const double max = ek_fit_part_of_pages(&r->m->layout, own);
    return max > 0 ? room / max : INFINITY;
}

static double keys_of(const ek_gpu *g, double left)
{
    const ek_fit_parts kept = {.step = g->kept_step, .keys = g->kept_keys, .towers = g->reserved};
    return ek_fit_keys_within(&kept, left);
}

double ek_ranks_room(const ek_ranks *r, int i)
{
    ek_gpu *g = r->gpu[i];
    double own = keys_of(g, ek_gpu_room(g));
    if (r->max_bytes > 0) own = fmin(own, keys_of(g, r->max_bytes - ek_gpu_bytes(g)));
    own = fmin(own, (double)ek_cuda_max_block(g->c)); /* all pages of a kind lie in one block */
    return ek_ranks_pages_for(r, g->share.kv_bytes, own > 1 ? own : 1);
}

ek_err ek_ranks_check_taken(const ek_ranks *r, int i, const ek_gpu_run *run)
{
    const double weights = ek_gpu_bytes(run->g) + r->gpu[i]->reserved;
    double kv = 0, step = 0;
    for (const ek_gpu_run *x = run; x; x = x->drafter) step += (double)(x->buf.scratch_bytes + x->block.bytes);
    for (int k = 0; k < EK_PAGE_KINDS; k++) kv += (double)run->buf.page_bytes[k] * run->z.n_pages[k];
    if (r->max_bytes == 0 || weights + kv + step <= r->max_bytes) return EK_OK;
    return ek_fit_fail_taken(run->g->c, r->max_bytes, &(ek_fit_parts){.weights = weights, .keys = kv, .step = step});
}
