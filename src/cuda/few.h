/* Constants for launches of ek_product_*_r* and ek_products_*_r* of Form F (kernels/product/product_f.cuh). A tile has
 * 1, 2, 4 or 8 rows.
 *
 * In this order: outputs per tile; inputs per slot; bytes of a slot, for weights of `bytes` each and rows; shared
 * memory, for a number of warps and of slots per warp, with `levels` nodes of T before leaves that are added together.
 * A block has one warp per leaf of 256 inputs: a power of two of warps, or the number of leaves.
 *
 * Arguments: ek_cuda_linear_args with `slots`, grid (groups of outputs x parts x tiles of rows), tiles first; or
 * ek_cuda_products_args. */
#ifndef EK_CUDA_FEW_H
#define EK_CUDA_FEW_H

enum { EK_CUDA_FEW_WARPS = 8, EK_CUDA_FEW_MAX_SLOTS = 12 }; /* slots: 3, 4, 6 or 12 */
#define EK_CUDA_FEW_OUTPUTS(rows)     ((rows) <= 2 ? 64 : 128)
#define EK_CUDA_FEW_STEP(rows)        (1024 / EK_CUDA_FEW_OUTPUTS(rows))
#define EK_CUDA_FEW_PIECE(bytes)      (1024 * (bytes))
#define EK_CUDA_FEW_SLOT(rows, bytes) (EK_CUDA_FEW_PIECE(bytes) + (rows)*EK_CUDA_FEW_STEP(rows) * 4)
#define EK_CUDA_FEW_SHARED(rows, bytes, warps, slots, levels) \
    ((warps) * (slots)*EK_CUDA_FEW_SLOT(rows, bytes) + ((warps) + (levels)) * (rows)*EK_CUDA_FEW_OUTPUTS(rows) * 4)

#endif
