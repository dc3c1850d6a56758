/* A product with its gate: gelu(gate) times a second product, or times rows that are there, as the input of the matrix
 * that follows: in one launch where a kernel does it. */
#ifndef EK_GPU_RECIPE_GATED_H
#define EK_GPU_RECIPE_GATED_H

#include "gpu/recipe/exchange.h"
#include "gpu/recipe/product.h"

/* What is computed: for rows, or for jobs of experts (jobs above 0) of up to `tile` rows. */
typedef struct ek_gpu_gating {
    const ek_gpu_matrix *gate, *upper; /* upper NULL: times rows */
    const ek_gpu_matrix *next;         /* reads the result */
    int tile, jobs;                    /* rows, or of experts */
    ek_cuda_acts to; /* where the result goes as records, which others read as well; q 0: where the recipe says */
} ek_gpu_gating;

typedef enum ek_gpu_gate_by {
    EK_GPU_GATE_APART, /* products, then ek_gpu_gate */
    EK_GPU_GATE_FEW,   /* records to records */
    EK_GPU_GATE_WIDE   /* an operand to an operand, by wgmma */
} ek_gpu_gate_by;

typedef struct ek_gpu_gated {
    ek_gpu_gate_by by;
    ek_cuda_product p;
} ek_gpu_gated;

ek_gpu_gated ek_gpu_choose_gated(const ek_gpu_run *x, const ek_gpu_gating *g);
/* The launch of a choice that is not apart. with: of experts jobs and index, else u and ldu, or nothing. */
ek_gpu_input ek_gpu_write_gated(ek_gpu_writer *w, const ek_gpu_gated *by, const ek_gpu_gating *g,
                                ek_cuda_warp_args with, ek_gpu_input *in, int rows_out);
/* The gate of g and u as the input of m. */
ek_gpu_input ek_gpu_gate(ek_gpu_writer *w, CUdeviceptr g, CUdeviceptr u, int64_t ldg, int64_t ldu, int n, int k,
                         const ek_gpu_matrix *m);
/* The same of k elements of rows ld apart, to records, or, with to->q 0, in place. */
void ek_gpu_gate_to(ek_gpu_writer *w, const ek_cuda_acts *to, CUdeviceptr g, CUdeviceptr u, int64_t ld, int n, int k);

/* The dense MLP of layer i, from rows that its gate reads to x->y. */
ek_gpu_gated ek_gpu_choose_mlp(const ek_gpu_run *x, int i, int n);
void ek_gpu_write_mlp(ek_gpu_writer *w, int i, ek_gpu_input *in, int n);

/* The same of devices whose outputs are cut, in two halves: what is gated here is a piece of e, and behind the exchange
 * all of it is what down reads, whose outputs here go to x->y. */
ek_gpu_input ek_gpu_write_mlp_part(ek_gpu_writer *w, int i, ek_gpu_input *in, int n, ek_gpu_exchange *e);
void ek_gpu_write_down_part(ek_gpu_writer *w, int i, ek_gpu_input *gated);

#endif
