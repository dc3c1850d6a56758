#include "cuda/product/product.h"

#include <stdio.h>

enum { MAX_LEAVES = 128 }; /* of a panel, in shared memory */

bool ek_cuda_affine_64(const ek_cuda_linear *l)
{
    return l->units && l->group == 64 && l->a_group == 64 && l->biased && !l->f32_scales && !l->f16_scales;
}

bool ek_cuda_half_32(const ek_cuda_linear *l)
{
    return l->units && l->group == 32 && l->a_group == 32 && l->f16_scales && !l->biased && l->k % 64 == 0;
}

bool ek_cuda_own_scales(const ek_cuda_linear *l)
{
    if (!l->units || l->group != l->a_group || l->k > MAX_LEAVES * EK_KBLOCK_Q) return false;
    if (l->group == 16) return l->bits == 8 && l->f32_scales && !l->biased;
    /* no type has 4 bits without biases unless scales are f16 */
    return l->group == 32 && (l->biased || l->f16_scales || l->bits == 8);
}

ek_cuda_kind ek_cuda_kind_of(const ek_cuda_linear *l)
{
    const char *const scales = l->f16_scales ? "h" : l->f32_scales ? "f" : "b";
    ek_cuda_kind k;
    if (ek_cuda_affine_64(l)) snprintf(k.name, sizeof k.name, "q%d", l->bits);
    else snprintf(k.name, sizeof k.name, "q%d%s%s_%d", l->bits, scales, l->biased ? "m" : "", l->group);
    return k;
}

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
    const int arrived = p->share * c->leaves * (c->leaf_chunks - 1); /* barriers of chunks that wait for other chunks */
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
