/* The arguments of kernels that write rows in the order of products by wgmma (kernels/product/operand.cu), under the
 * rules of cuda/args.h. An operand has units of 64 inputs in pairs per EK_CUDA_WIDE_COLUMNS columns, with a column per
 * limb of a row (kernels/product/wide_product.cuh). */
#ifndef EK_CUDA_OPERAND_ARGS_H
#define EK_CUDA_OPERAND_ARGS_H

#include "cuda/model_args.h"

/* Operands with one and with two limbs; 0: not needed. */
typedef struct ek_cuda_operands {
    ek_cuda_ptr one, two;
} ek_cuda_operands;

/* ek_stage_rows, and with pair_out ek_stage_rows_experts: the work of ek_stage for many rows of up to
 * EK_CUDA_STAGE_ROWS_WIDTH, and operands of the result. grid (rows), 32 threads per 256 elements. */
enum { EK_CUDA_STAGE_ROWS_WIDTH = 5376 };

typedef struct ek_cuda_stage_rows_args {
    ek_cuda_stage_args s;
    ek_cuda_operands to;
} ek_cuda_stage_rows_args;

/* ek_quantize_operands: grid (ceil(k / 2048), rows), 256 threads. */
typedef struct ek_cuda_quantize_operands_args {
    ek_cuda_operands to;
    ek_cuda_ptr x; /* f32 */
    int64_t ldx;
    int32_t k; /* inputs, whole groups of 64 */
} ek_cuda_quantize_operands_args;

/* ek_product_heads_*_wide: the products of wide_product.cuh for q with one limb, k and v with two; rows 0: absent. */
typedef struct ek_cuda_wide_heads_args {
    ek_cuda_linear_args q, k, v;
} ek_cuda_wide_heads_args;

#endif
