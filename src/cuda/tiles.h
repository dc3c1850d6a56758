/* What launches of some tiles of products must know beside cuda/args.h and model_args.h. */
#ifndef EK_CUDA_TILES_H
#define EK_CUDA_TILES_H

#include "cuda/args.h"

/* ek_products_mid_* (kernels/product/jobs_mid.cu): rows of a job at most, of which a block has columns for as many as
 * there are, in eights; bytes of the list of them; slots of a block, of which three have room in a multiprocessor if
 * inputs are up to 64 units. */
enum { EK_CUDA_MID_JOB_ROWS = 32, EK_CUDA_MID_PICKED = 128 };
#define EK_CUDA_MID_JOB_SLOTS(oct) ((oct) == 1 ? 6 : (oct) == 2 ? 5 : 3)

#endif
