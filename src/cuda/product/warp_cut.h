/* What a panel of a product by the family `warp` is cut into (product/warp.h), and the memory of a block. */
#ifndef EK_CUDA_PRODUCT_WARP_CUT_H
#define EK_CUDA_PRODUCT_WARP_CUT_H

#include "cuda/product/layout.h"
#include "cuda/product/launch.h"

enum {
    EK_CUDA_WARPS = 8,      /* of a block that shares its multiprocessor; one alone has twice as many, and room */
    EK_CUDA_WARP_BLOCKS = 2 /* of a multiprocessor */
};

/* Bytes of such a block in shared memory, a little less than half of what there is, and of a share's leaves among them:
 * 100 and 24 KB of the 228 of capability 9.0. */
static inline size_t ek_cuda_warp_room(const ek_cuda_chip *chip)
{
    return chip->shared / 2 - (14 << 10);
}

static inline int ek_cuda_warp_sums(const ek_cuda_chip *chip)
{
    return (int)(ek_cuda_warp_room(chip) / 25 * 6);
}

typedef struct ek_cuda_cut {
    int chunks, leaves, leaf_chunks; /* of a panel; of a leaf */
    int slots;                       /* chunks that a warp has on their way, at most */
    size_t chunk_bytes, leaf_bytes;  /* sums of a leaf */
} ek_cuda_cut;

/* Chunks of so many groups of weights, for tiles of so many rows. */
ek_cuda_cut ek_cuda_cut_of(const ek_cuda_linear *l, int groups, int per_tile, int slots);
/* Panels of a share for so many on so many places, as long as the leaves of one fit into `sums`. */
int ek_cuda_cut_share(const ek_cuda_cut *c, int panels, int places, int sums);
/* Slots and shared memory of p's warps, with p's share and `shares` per block: of so many blocks of a multiprocessor, 2
 * or 1. Fewer warps where a block may not have the memory. */
void ek_cuda_cut_ring(ek_cuda_product *p, const ek_cuda_cut *c, int shares, int warps, size_t room,
                      const ek_cuda_chip *chip);

#endif
