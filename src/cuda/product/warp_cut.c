#include "cuda/product/warp_cut.h"

enum { UNIT = 64 };

ek_cuda_cut ek_cuda_cut_of(const ek_cuda_linear *l, int groups, int per_tile, int slots)
{
    const int inputs = groups * l->group, leaf_chunks = EK_KBLOCK_Q / inputs;
    const int chunks = ek_cuda_over(l->units * UNIT, inputs);
    return (ek_cuda_cut){.chunks = chunks,
                         .leaf_chunks = leaf_chunks,
                         .leaves = ek_cuda_over(chunks, leaf_chunks),
                         .slots = slots,
                         .chunk_bytes = (size_t)(inputs / UNIT * l->bits * 128) +
                                        (size_t)groups * EK_PANEL * ek_cuda_linear_scale(l),
                         .leaf_bytes = sizeof(float) * EK_PANEL * (size_t)per_tile};
}

int ek_cuda_cut_share(const ek_cuda_cut *c, int panels, int places, int sums)
{
    const int share = ek_cuda_over(panels, places), max = sums / (int)((size_t)c->leaves * c->leaf_bytes);
    return share <= max ? share : max ? max : 1;
}

void ek_cuda_cut_ring(ek_cuda_product *p, const ek_cuda_cut *c, int shares, int warps, size_t room,
                      const ek_cuda_chip *chip)
{
    const int arrived = p->share * c->leaves * (c->leaf_chunks - 1); /* barriers of chunks that wait for others */
    const size_t sums = 2 * (size_t)(p->share * c->leaves) * c->leaf_bytes, fixed = (size_t)arrived * 8 + 256 + sums;
    p->slots = ek_cuda_over(shares * p->share * c->chunks, warps);
    if (p->slots > c->slots) p->slots = c->slots;
    while (p->slots > 1 && fixed + (size_t)(warps * p->slots) * (c->chunk_bytes + 8) > room) p->slots--;
    const size_t slots = (size_t)(warps * p->slots);
    p->grid.threads = (unsigned)warps * 32;
    p->grid.shared = ((slots + (size_t)arrived) * 8 + 127) / 128 * 128 + slots * c->chunk_bytes + sums;
    if (p->grid.shared > chip->block_shared && warps > EK_CUDA_WARPS)
        ek_cuda_cut_ring(p, c, shares, EK_CUDA_WARPS, room, chip);
}
