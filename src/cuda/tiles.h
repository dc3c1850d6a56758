/* Constants for launches of some tiles of products, besides cuda/args.h and model_args.h. */
#ifndef EK_CUDA_TILES_H
#define EK_CUDA_TILES_H

#include "cuda/args.h"

/* ek_products_mid_* (kernels/product/jobs_mid.cu): maximum rows of a job; a block has as many columns as the job has
 * rows, in eights. Bytes of the list of rows. Slots of a block; three such blocks fit a multiprocessor if inputs have
 * up to 64 units. */
enum { EK_CUDA_MID_JOB_ROWS = 32, EK_CUDA_MID_PICKED = 128 };
#define EK_CUDA_MID_JOB_SLOTS(oct) ((oct) == 1 ? 6 : (oct) == 2 ? 5 : 3)

/* ek_product_*_wide_short: tiles with half of the outputs of ek_product_*_wide: panels per tile, blocks per
 * multiprocessor, their shared memory. */
enum { EK_CUDA_SHORT_PANELS = EK_CUDA_WIDE_PANELS / 2, EK_CUDA_SHORT_BLOCKS = 4 };
#define EK_CUDA_SHORT_SHARED                                                                                    \
    (EK_CUDA_WIDE_SLOTS * EK_CUDA_WIDE_UNITS(4) * (EK_CUDA_WIDE_PAIR / 2 + EK_CUDA_SHORT_PANELS * (512 + 64)) + \
     EK_CUDA_WIDE_CONTROL)

#endif
