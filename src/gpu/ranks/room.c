#include "gpu/ranks/room.h"

#include <math.h>

double ek_ranks_pages_for(const ek_ranks *r, const size_t own[EK_PAGE_KINDS], double room)
{
    const ek_kv_layout *l = &r->m->layout;
    double most = 0;
    for (int k = 0; k < EK_PAGE_KINDS; k++) {
        const double part = l->page_bytes[k] ? (double)own[k] / (double)l->page_bytes[k] : 0;
        most = part > most ? part : most;
    }
    return most > 0 ? room / most : INFINITY;
}

double ek_ranks_room(const ek_ranks *r, int i, double free)
{
    const ek_gpu *g = r->gpu[i];
    const double left = (r->max_bytes - ek_gpu_bytes(g)) * EK_GPU_KEYS_SHARE - g->reserved;
    const double own = r->max_bytes > 0 && left < free ? left : free;
    return ek_ranks_pages_for(r, g->share.kv_bytes, own > 1 ? own : 1);
}

ek_err ek_ranks_check_taken(const ek_ranks *r, int i, const ek_gpu_run *run)
{
    const double weights = ek_gpu_bytes(run->g) + r->gpu[i]->reserved,
                 step = (double)(run->scratch_bytes + run->block.bytes);
    double kv = 0;
    for (int k = 0; k < EK_PAGE_KINDS; k++) kv += (double)run->page_bytes[k] * run->z.n_pages[k];
    if (r->max_bytes == 0 || weights + kv + step <= r->max_bytes) return EK_OK;
    return ek_fail(
        EK_ENOMEM,
        "cuda:%d may give %.2f GB; weights take %.2f GB, keys and values %.2f GB and a step %.2f GB (fewer with "
        "a smaller --ctx, --chunk, --max-requests or --kv-memory)",
        ek_cuda_ordinal(run->g->c), r->max_bytes / 1e9, weights / 1e9, kv / 1e9, step / 1e9);
}
