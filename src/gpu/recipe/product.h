/* Linear layers: which kernel, its arguments, and what must be done with its rows first. */
#ifndef EK_GPU_RECIPE_PRODUCT_H
#define EK_GPU_RECIPE_PRODUCT_H

#include "gpu/recipe/operand.h"

enum { EK_GPU_PROMPT_ROWS = 256 }; /* from so many on kernels of prompts take what lies between products */

/* Arguments of product p of m, which reads `in`. */
ek_cuda_linear_args ek_gpu_linear_args(const ek_gpu_writer *w, const ek_gpu_matrix *m, const ek_gpu_input *in,
                                       const ek_cuda_product *p, CUdeviceptr y, int64_t ldy);
void ek_gpu_project(ek_gpu_writer *w, const ek_gpu_matrix *m, ek_gpu_input *in, CUdeviceptr y, int64_t ldy);
/* Two matrices of one shape that read the same rows: in one launch where that is possible. */
void ek_gpu_project_two(ek_gpu_writer *w, const ek_gpu_matrix *m, const ek_gpu_matrix *m2, ek_gpu_input *in,
                        CUdeviceptr y, CUdeviceptr y2, int64_t ldy);
/* How m alone is computed for n rows. */
ek_cuda_product ek_gpu_product_of(const ek_gpu_run *x, const ek_gpu_matrix *m, int n);
/* Whether m reads n rows as an operand in groups of 64, and whether two matrices share a launch that reads records. */
bool ek_gpu_reads_operand(const ek_gpu_run *x, const ek_gpu_matrix *m, int n);
bool ek_gpu_reads_in_pairs(const ek_gpu_run *x, const ek_gpu_matrix *m, const ek_gpu_matrix *m2, int n);

#endif
