/* Times of the families of products, measured on a card for which none are built in (cuda/times.h). They decide which
 * of two kernels computes a product, and no bit. */
#ifndef EK_GPU_TUNE_H
#define EK_GPU_TUNE_H

#include "cuda/driver.h"

/* How many times as long each family takes as the chip's times say, the geometric mean over some products of published
 * models' shapes; 1 where none of them could be timed. Takes 0.1 s on an H100, and some 150 MB of the device while it
 * lasts. EUNSUPPORTED: the device has no clock (an emulated one); ENOMEM; else an error of the driver. */
ek_err ek_gpu_tune(double factor[EK_CUDA_FAMILIES], ek_cuda *c);

#endif
