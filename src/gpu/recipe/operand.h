/* Rows that a linear layer reads, in the forms that its kernels read them in: floats, records (cuda/args.h), and
 * operands, which are rows in the order of wgmma (kernels/wide_product.cuh). */
#ifndef EK_GPU_RECIPE_OPERAND_H
#define EK_GPU_RECIPE_OPERAND_H

#include "cuda/model_args.h"
#include "cuda/product/layout.h"
#include "cuda/product/launch.h"
#include "gpu/recipe/recipe.h"

typedef struct ek_gpu_input {
    CUdeviceptr f; /* floats; 0: there are none */
    int64_t ld;
    int n, k;
    ek_cuda_acts acts; /* records; q 0: there are none */
    uint64_t number;   /* in w->holds where an operand is of these rows; 0: none was */
} ek_gpu_input;

ek_gpu_input ek_gpu_rows(CUdeviceptr f, int64_t ld, int n, int k);
/* The records that a kernel shall write for m: q 0 for Form F. Notes them in `in`. */
ek_cuda_acts ek_gpu_acts_for(const ek_gpu_writer *w, ek_gpu_input *in, const ek_gpu_matrix *m);
/* Of n rows of k elements, which a kernel writes for m while it reads the records that are there. */
ek_gpu_input ek_gpu_turn_acts(ek_gpu_writer *w, int k, int n, const ek_gpu_matrix *m);
/* The same of an operand of one limb; nobody reads its records. */
ek_gpu_input ek_gpu_turn_operand(ek_gpu_writer *w, int k, int n, const ek_gpu_matrix *m);
/* Notes that an operand of so many limbs is of `in`, in groups of a_group. */
void ek_gpu_hold(ek_gpu_writer *w, ek_gpu_input *in, int limbs, int a_group);

/* Writes records of n rows of floats at x. */
void ek_gpu_quantize_to(ek_gpu_writer *w, const ek_cuda_acts *to, CUdeviceptr x, int64_t ldx, int n);
/* Writes records for m, unless they are there. */
void ek_gpu_quantize(ek_gpu_writer *w, ek_gpu_input *in, const ek_gpu_matrix *m);
/* Writes `in` as product p of m reads it, unless it is there: as records, or as an operand, which comes straight from
 * floats where there are no records. with: jobs and index of experts, or nothing. */
void ek_gpu_arrange(ek_gpu_writer *w, const ek_gpu_matrix *m, ek_gpu_input *in, const ek_cuda_product *p,
                    ek_cuda_arrange_args with);

#endif
