/* The launch of a product: the result of every family's plan. */
#ifndef EK_CUDA_PRODUCT_LAUNCH_H
#define EK_CUDA_PRODUCT_LAUNCH_H

#include "cuda/chip.h"
#include "cuda/driver.h"

enum { EK_CUDA_NAME = 64 }; /* maximum bytes of a kernel's name */

/* A launch: the kernel's name, its grid, and the call's fields of args (pass, levels). */
typedef struct ek_cuda_product {
    char name[EK_CUDA_NAME];
    ek_cuda_grid grid;
    size_t stack; /* scratch bytes for args.stack */
    int pass, levels;
    int share, slots;     /* ek_product_warp_*, ek_products_warp_* */
    size_t operand;       /* ek_product*_wide: scratch bytes for args.operand, */
    ek_cuda_grid arrange; /* which this launch of ek_arrange_l<limbs> writes first */
    /* parts above 1: args.split, and y is scratch memory of parts x rows x n, which ek_product_join adds */
    int split, parts;
} ek_cuda_product;

/* The operation after a product (cuda/model_args.h): the gate with given rows, or with a second matrix of the same
 * shape; n is then whole groups of 64. */
typedef enum ek_cuda_gate { EK_CUDA_GATE_NONE, EK_CUDA_GATE_ROW, EK_CUDA_GATE_MATRIX } ek_cuda_gate;

/* q, k and v for the same rows in one launch. q.name is the kernel, q's grid the launch. blocks: the blocks of each
 * product. k_tiles: tiles of rows, for the launches of experts (product/product.h). */
typedef struct ek_cuda_heads {
    ek_cuda_product q, k;
    int q_blocks, k_blocks, k_tiles;
} ek_cuda_heads;

/* The maximum number of nodes of T before a leaf while `leaves` leaves are added. */
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
