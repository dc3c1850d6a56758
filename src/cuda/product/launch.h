/* How a product is launched: what every family of kernels plans. */
#ifndef EK_CUDA_PRODUCT_LAUNCH_H
#define EK_CUDA_PRODUCT_LAUNCH_H

#include "cuda/chip.h"
#include "cuda/driver.h"

enum { EK_CUDA_NAME = 64 }; /* bytes of a kernel's name */

/* A launch: the kernel's name, its grid, and the fields of args that the call decides (pass, levels). */
typedef struct ek_cuda_product {
    char name[EK_CUDA_NAME];
    ek_cuda_grid grid;
    size_t stack; /* bytes of scratch memory for args.stack */
    int pass, levels;
    int share, slots;     /* ek_product_warp_*, ek_products_warp_* */
    size_t operand;       /* ek_product*_wide: bytes of scratch for args.operand, */
    ek_cuda_grid arrange; /* which ek_arrange_l<limbs> writes first */
    int split, parts; /* parts above 1: args.split, and y is scratch memory of parts x rows x n, which ek_product_join
                         adds */
} ek_cuda_product;

/* What a product is followed by (cuda/model_args.h): the gate of rows, or of a second matrix alike; n is then whole
 * groups of 64. */
typedef enum ek_cuda_gate { EK_CUDA_GATE_NONE, EK_CUDA_GATE_ROW, EK_CUDA_GATE_MATRIX } ek_cuda_gate;

/* q, k and v for the same rows in one launch: q.name is the kernel's; q's grid is the launch; blocks: of the product
 * alone. k_tiles: of rows, of the launches of experts (product/product.h). */
typedef struct ek_cuda_heads {
    ek_cuda_product q, k;
    int q_blocks, k_blocks, k_tiles;
} ek_cuda_heads;

/* Nodes of T that lie in front of a leaf, at most, while so many leaves are added. */
static inline int ek_cuda_nodes(int leaves)
{
    int max = 0;
    for (int leaf = 0; leaf < leaves; leaf++)
        if (__builtin_popcount((unsigned)leaf) > max) max = __builtin_popcount((unsigned)leaf);
    return max;
}

static inline int ek_cuda_over(int n, int by)
{
    return (n + by - 1) / by;
}

#endif
