/* Kernels that run at the same time. No barrier stands between kernels whose memory is known to be disjoint, because a
 * barrier takes as long as a small kernel. */
#include "cuda/model_args.h"
#include "vulkan/state.h"

static ek_vulkan_span span(uint64_t at, int64_t bytes)
{
    return (ek_vulkan_span){at, at ? at + (uint64_t)bytes : 0};
}

static bool meet(ek_vulkan_span a, ek_vulkan_span b)
{
    return a.first < b.end && b.first < a.end;
}

/* Weights are never written, so they do not count. */
ek_vulkan_use ek_vulkan_use_product(const void *args, const uint32_t grid[3])
{
    const ek_cuda_linear_args *a = args;
    (void)grid;
    return (ek_vulkan_use){.write = span(a->y, 4 * ((a->rows - 1) * a->ldy + a->n)),
                           .read = {span(a->x.q, a->rows * a->x.ldq), span(a->f, 4 * a->rows * a->ldf)}};
}

ek_vulkan_use ek_vulkan_use_heads(const void *args, const uint32_t grid[3])
{
    const ek_cuda_heads_args *a = args;
    return (ek_vulkan_use){.write = span(a->q, 4 * a->ldq * grid[1])};
}

/* Pages are disjoint from the memory of all other kernels. */
ek_vulkan_use ek_vulkan_use_store(const void *args, const uint32_t grid[3])
{
    const ek_cuda_store_args *a = args;
    return (ek_vulkan_use){.read = {span(a->k, 4 * a->ldk * grid[1]), span(a->v, 4 * a->ldv * grid[1])}};
}

bool ek_vulkan_beside(ek_vulkan_record *r, const ek_vulkan_use *use)
{
    if (r->n_uses < 0 || r->n_uses == EK_VULKAN_BESIDE) return false;
    for (int i = 0; i < r->n_uses; i++) {
        const ek_vulkan_use *other = &r->use[i];
        if (meet(use->write, other->write)) return false;
        for (int k = 0; k < EK_VULKAN_READS; k++)
            if (meet(use->write, other->read[k]) || meet(other->write, use->read[k])) return false;
    }
    r->use[r->n_uses++] = *use;
    return true;
}
