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
    return (ek_vulkan_use){.write = {span(a->y, 4 * ((a->rows - 1) * a->ldy + a->n))},
                           .read = {span(a->x.q, a->rows * a->x.ldq), span(a->f, 4 * a->rows * a->ldf)}};
}

ek_vulkan_use ek_vulkan_use_heads(const void *args, const uint32_t grid[3])
{
    const ek_cuda_heads_args *a = args;
    return (ek_vulkan_use){.write = {span(a->q, 4 * a->ldq * grid[1])}};
}

/* Pages are disjoint from the memory of all other kernels. */
ek_vulkan_use ek_vulkan_use_store(const void *args, const uint32_t grid[3])
{
    const ek_cuda_store_args *a = args;
    return (ek_vulkan_use){.read = {span(a->k, 4 * a->ldk * grid[1]), span(a->v, 4 * a->ldv * grid[1])}};
}

static ek_vulkan_span both(ek_vulkan_span a, ek_vulkan_span b)
{
    if (a.first == a.end || b.first == b.end) return a.first == a.end ? b : a;
    return (ek_vulkan_span){a.first < b.first ? a.first : b.first, a.end > b.end ? a.end : b.end};
}

/* Rows are at most those of all jobs. */
ek_vulkan_use ek_vulkan_use_products(const void *args, const uint32_t grid[3])
{
    const ek_cuda_products_args *a = args;
    const int64_t rows = (int64_t)grid[1] * a->a.rows, y = 4 * rows * a->a.ldy;
    const ek_vulkan_span jobs = span(a->jobs, (int64_t)sizeof(ek_cuda_job) * rows);
    return (ek_vulkan_use){.write = {span(a->a.y, y), span(a->y2, y)},
                           .read = {span(a->a.x.q, rows * a->a.x.ldq), span(a->a.f, 4 * rows * a->a.ldf),
                                    both(both(jobs, span(a->n_jobs, 4)), span(a->index, 4 * rows))}};
}

ek_vulkan_use ek_vulkan_use_gated(const void *args, const uint32_t grid[3])
{
    const ek_cuda_warp_args *a = args;
    const int64_t rows = grid[1];
    const ek_vulkan_span jobs = both(span(a->jobs, (int64_t)sizeof(ek_cuda_job) * rows), span(a->n_jobs, 4));
    return (ek_vulkan_use){.write = {span(a->to.q, rows * a->to.ldq)},
                           .read = {span(a->a.x.q, rows * a->a.x.ldq), both(jobs, span(a->index, 4 * rows)),
                                    span(a->u, 4 * rows * a->ldu)}};
}

ek_vulkan_use ek_vulkan_use_gate(const void *args, const uint32_t grid[3])
{
    const ek_cuda_gate_args *a = args;
    const int64_t rows = grid[1];
    return (ek_vulkan_use){.write = {span(a->y, 4 * rows * a->ldy), span(a->to.q, rows * a->to.ldq)},
                           .read = {span(a->g, 4 * rows * a->ldg), span(a->u, 4 * rows * a->ldu)}};
}

ek_vulkan_use ek_vulkan_use_choose(const void *args, const uint32_t grid[3])
{
    const ek_cuda_choose_args *a = args;
    const int64_t pairs = a->rows * a->top_k;
    const ek_vulkan_span rows = both(span(a->pair_row, 4 * pairs), span(a->row_pair, 4 * pairs)),
                         jobs = both(span(a->jobs, (int64_t)sizeof(ek_cuda_job) * pairs), span(a->n_jobs, 4));
    (void)grid;
    return (ek_vulkan_use){.write = {both(rows, jobs), span(a->weight, 4 * pairs)},
                           .read = {span(a->route, 4 * a->rows * a->ld)}};
}

bool ek_vulkan_beside(ek_vulkan_record *r, const ek_vulkan_use *use)
{
    if (r->n_uses < 0 || r->n_uses == EK_VULKAN_BESIDE) return false;
    for (int i = 0; i < r->n_uses; i++) {
        const ek_vulkan_use *other = &r->use[i];
        for (int k = 0; k < EK_VULKAN_WRITES; k++) {
            for (int j = 0; j < EK_VULKAN_WRITES; j++)
                if (meet(use->write[k], other->write[j])) return false;
            for (int j = 0; j < EK_VULKAN_READS; j++)
                if (meet(use->write[k], other->read[j]) || meet(other->write[k], use->read[j])) return false;
        }
    }
    r->use[r->n_uses++] = *use;
    return true;
}
