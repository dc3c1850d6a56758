/* What launches of some tiles of products must know beside cuda/args.h and model_args.h. */
#ifndef EK_CUDA_TILES_H
#define EK_CUDA_TILES_H

#include "cuda/args.h"

/* ek_products_mid_* (kernels/product/jobs_mid.cu): rows of a job at most, of which a block has columns for as many as
 * there are, in eights; bytes of the list of them; slots of a block, of which three have room in a multiprocessor if
 * inputs are up to 64 units. */
enum { EK_CUDA_MID_JOB_ROWS = 32, EK_CUDA_MID_PICKED = 128 };
#define EK_CUDA_MID_JOB_SLOTS(oct) ((oct) == 1 ? 6 : (oct) == 2 ? 5 : 3)

/* ek_product_*_wide_short: tiles of half as many outputs as those of ek_product_*_wide: panels of one, blocks that a
 * multiprocessor takes, their shared memory. */
enum { EK_CUDA_SHORT_PANELS = EK_CUDA_WIDE_PANELS / 2, EK_CUDA_SHORT_BLOCKS = 4 };
#define EK_CUDA_SHORT_SHARED                                                                                    \
    (EK_CUDA_WIDE_SLOTS * EK_CUDA_WIDE_UNITS(4) * (EK_CUDA_WIDE_PAIR / 2 + EK_CUDA_SHORT_PANELS * (512 + 64)) + \
     EK_CUDA_WIDE_CONTROL)

#endif
