/* Constants for launches of some tiles of products, besides cuda/args.h and model_args.h. */
#ifndef EK_CUDA_TILES_H
#define EK_CUDA_TILES_H

#include "cuda/args.h"

/* ek_products_mid_*_rROWS (kernels/product/jobs_mid.cu): rows of a job, at most, for which a block has as many columns,
 * in eights; gates have kernels of 24 and 32 rows. Blocks of a multiprocessor by registers, and slots of a block with
 * which as many have room if inputs have up to 48 units; bytes of the list of rows and of its place. */
enum { EK_CUDA_MID_JOB_FEW = 16, EK_CUDA_MID_JOB_MORE = 24, EK_CUDA_MID_JOB_ROWS = 32 };
#define EK_CUDA_MID_JOB_BLOCKS(rows)     ((rows) <= EK_CUDA_MID_JOB_FEW ? 5 : (rows) <= EK_CUDA_MID_JOB_MORE ? 4 : 3)
#define EK_CUDA_MID_JOB_SLOTS(rows, oct) (((oct) == 1 ? 9 : (oct) == 2 ? 8 : 7) - EK_CUDA_MID_JOB_BLOCKS(rows))
#define EK_CUDA_MID_PICKED(rows)         ((rows) ? (rows)*4 + 16 : 0)

/* ek_product_*_wide_short: tiles with half of the outputs of ek_product_*_wide: panels per tile, blocks per
 * multiprocessor, their shared memory. */
enum { EK_CUDA_SHORT_PANELS = EK_CUDA_WIDE_PANELS / 2, EK_CUDA_SHORT_BLOCKS = 4 };
#define EK_CUDA_SHORT_SHARED                                                                                    \
    (EK_CUDA_WIDE_SLOTS * EK_CUDA_WIDE_UNITS(4) * (EK_CUDA_WIDE_PAIR / 2 + EK_CUDA_SHORT_PANELS * (512 + 64)) + \
     EK_CUDA_WIDE_CONTROL)

#endif
