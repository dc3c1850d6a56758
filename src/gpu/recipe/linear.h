/* Linear layers in recipes: rows in the forms of kernels, products, gates, heads, and the row kernels between them. */
#ifndef EK_GPU_RECIPE_LINEAR_H
#define EK_GPU_RECIPE_LINEAR_H

#include "cuda/model_args.h"
#include "cuda/product/launch.h"
#include "cuda/product/layout.h"
#include "gpu/recipe/recipe.h"

/* The input rows of a linear layer, in the forms that kernels read: floats, records (cuda/args.h), and operands, which
 * are rows in the order of wgmma (cuda/kernels/product/wide_product.cuh). */

typedef struct ek_gpu_input {
    CUdeviceptr f; /* floats; 0: none */
    int64_t ld;
    int n, k;
    ek_cuda_acts acts; /* records; q 0: none */
    uint64_t number;   /* number in w->holds if an operand has these rows; 0: none */
    bool operand;      /* an operand alone has them */
} ek_gpu_input;

ek_gpu_input ek_gpu_rows(CUdeviceptr f, int64_t ld, int n, int k);
/* The records that a kernel has to write for m: q 0 for Form F. Stores them in `in`. */
ek_cuda_acts ek_gpu_acts_for(const ek_gpu_writer *w, ek_gpu_input *in, const ek_gpu_matrix *m);
/* Records of n rows of k elements, which a kernel writes for m while it reads the present ones. */
ek_gpu_input ek_gpu_turn_acts(ek_gpu_writer *w, int k, int n, const ek_gpu_matrix *m);
/* The same for an operand of one limb. Its records are not read. */
ek_gpu_input ek_gpu_turn_operand(ek_gpu_writer *w, int k, int n, const ek_gpu_matrix *m);
/* Notes that an operand with `limbs` limbs has the rows of `in`, in groups of a_group. */
void ek_gpu_hold(ek_gpu_writer *w, ek_gpu_input *in, int limbs, int a_group);

/* Writes records of n rows of floats at x. */
void ek_gpu_quantize_to(ek_gpu_writer *w, const ek_cuda_acts *to, CUdeviceptr x, int64_t ldx, int n);
/* Writes records for m, unless they exist. */
void ek_gpu_quantize(ek_gpu_writer *w, ek_gpu_input *in, const ek_gpu_matrix *m);
/* Writes `in` in the form that product p of m reads, unless it exists: as records, or as an operand, which is made
 * directly from floats if there are no records. with: jobs and index of experts, or nothing. */
void ek_gpu_arrange(ek_gpu_writer *w, const ek_gpu_matrix *m, ek_gpu_input *in, const ek_cuda_product *p,
                    ek_cuda_arrange_args with);

typedef struct ek_gpu_exchange ek_gpu_exchange; /* gpu/recipe/exchange.h */

/* --- linear layers: the choice of the kernel, its arguments, and the preparation of its rows --- */

/* Whether the device has only kernels that need nothing of CUDA (cuda/chip.h). */
static inline bool ek_gpu_is_plain(const ek_gpu_run *x)
{
    return ek_cuda_chip_of(x->g->c)->plain;
}

enum { EK_GPU_PROMPT_ROWS = 256 }; /* number of rows from which on kernels for prompts do the work between products */

/* The arguments of product p of m, which reads `in`. */
ek_cuda_linear_args ek_gpu_linear_args(const ek_gpu_writer *w, const ek_gpu_matrix *m, const ek_gpu_input *in,
                                       const ek_cuda_product *p, CUdeviceptr y, int64_t ldy);
void ek_gpu_project(ek_gpu_writer *w, const ek_gpu_matrix *m, ek_gpu_input *in, CUdeviceptr y, int64_t ldy);
/* Two matrices of one shape that read the same rows: in one launch if possible. */
void ek_gpu_project_two(ek_gpu_writer *w, const ek_gpu_matrix *m, const ek_gpu_matrix *m2, ek_gpu_input *in,
                        CUdeviceptr y, CUdeviceptr y2, int64_t ldy);
/* The product of m alone for n rows. */
ek_cuda_product ek_gpu_product_of(const ek_gpu_run *x, const ek_gpu_matrix *m, int n);
/* Whether m reads n rows as an operand in groups of 64; and whether two matrices share a launch that reads records. */
bool ek_gpu_reads_operand(const ek_gpu_run *x, const ek_gpu_matrix *m, int n);
bool ek_gpu_reads_in_pairs(const ek_gpu_run *x, const ek_gpu_matrix *m, const ek_gpu_matrix *m2, int n);

/* --- row kernels between two linear layers (cuda/model_args.h, ek_stage; cuda/operand_args.h), and the form of their
 * results for the readers --- */

/* The readers of the norm of h in a layer. */
typedef enum ek_gpu_readers { EK_GPU_TO_HEADS, EK_GPU_TO_MLP } ek_gpu_readers;

/* Readers of n rows of the layer. drops: the layer's queries are of other rows. */
typedef struct ek_gpu_reading {
    int layer, n;
    ek_gpu_readers by;
    bool drops;
} ek_gpu_reading;

/* The form in which earlier kernels left the rows for these readers: their place, and the operands that hold them. The
 * writing kernel creates the form. The readers, possibly in another recipe, find it. */
ek_gpu_input ek_gpu_left_for(ek_gpu_writer *w, const ek_gpu_reading *r);

/* Writes a's result for n rows, by ek_stage or the kernel for prompts. */
void ek_gpu_write_rows(ek_gpu_writer *w, ek_cuda_stage_args a, int n);
/* Also writes x = norm(h) for m, to x->buf.x or to `to`. all: only m's records of x are read, so floats are not
 * written. */
ek_gpu_input ek_gpu_write_rows_to(ek_gpu_writer *w, ek_cuda_stage_args a, CUdeviceptr norm, const ek_gpu_matrix *m,
                                  bool all, CUdeviceptr to, int n);
/* The same for all readers of r. */
ek_gpu_input ek_gpu_write_rows_for(ek_gpu_writer *w, ek_cuda_stage_args a, const ek_gpu_reading *r);
/* Whether k and v of a layer can read the records of rows for q. */
bool ek_gpu_serves_heads(const ek_gpu_layer *l);

/* --- a product with its gate: gelu(gate) times a second product, or times given rows, as the input of the next matrix;
 * in one launch if a kernel does it --- */

/* The computation: for rows, or for jobs of experts (jobs above 0) of up to `tile` rows. */
typedef struct ek_gpu_gating {
    const ek_gpu_matrix *gate, *upper; /* upper NULL: times given rows */
    const ek_gpu_matrix *next;         /* reads the result */
    int tile, jobs;                    /* number of rows, or of jobs */
    ek_cuda_acts to;                   /* the result as records that others read too; q 0: the recipe chooses */
} ek_gpu_gating;

typedef enum ek_gpu_gate_by {
    EK_GPU_GATE_APART, /* separate products, then ek_gpu_gate */
    EK_GPU_GATE_FEW,   /* records to records */
    EK_GPU_GATE_WIDE   /* an operand to an operand, by wgmma */
} ek_gpu_gate_by;

typedef struct ek_gpu_gated {
    ek_gpu_gate_by by;
    ek_cuda_product p;
} ek_gpu_gated;

ek_gpu_gated ek_gpu_choose_gated(const ek_gpu_run *x, const ek_gpu_gating *g);
/* The launch of a choice other than APART. with: jobs and index of experts; else u and ldu, or nothing. */
ek_gpu_input ek_gpu_write_gated(ek_gpu_writer *w, const ek_gpu_gated *by, const ek_gpu_gating *g,
                                ek_cuda_warp_args with, ek_gpu_input *in, int rows_out);
/* The gate of g and u as the input of m. */
ek_gpu_input ek_gpu_gate(ek_gpu_writer *w, CUdeviceptr g, CUdeviceptr u, int64_t ldg, int64_t ldu, int n, int k,
                         const ek_gpu_matrix *m);
/* The same for k elements of rows ld apart, to records, or (to->q 0) in place. */
void ek_gpu_gate_to(ek_gpu_writer *w, const ek_cuda_acts *to, CUdeviceptr g, CUdeviceptr u, int64_t ld, int n, int k);

/* The dense MLP of layer i, from its gate's input rows to x->buf.y. */
ek_gpu_gated ek_gpu_choose_mlp(const ek_gpu_run *x, int i, int n);
void ek_gpu_write_mlp(ek_gpu_writer *w, int i, ek_gpu_input *in, int n);

/* The same on devices with shards, in two halves: the gated rows here are a part of exchange e; after the exchange down
 * reads all of them, and its outputs here go to x->buf.y. */
ek_gpu_input ek_gpu_write_mlp_part(ek_gpu_writer *w, int i, ek_gpu_input *in, int n, ek_gpu_exchange *e);
void ek_gpu_write_down_part(ek_gpu_writer *w, int i, ek_gpu_input *gated);

/* --- queries, keys and values of a layer: products, the kernels that finish and store them, attention. The subject's
 * `finishes` and `single` tell what attention's own kernel does. --- */

typedef enum ek_gpu_heads_by {
    EK_GPU_HEADS_APART,    /* separate products; k and v may share one */
    EK_GPU_HEADS_TOGETHER, /* one launch, which reads records */
    EK_GPU_HEADS_WIDE      /* one launch by wgmma, which reads operands; only k and v if q has other rows */
} ek_gpu_heads_by;

typedef struct ek_gpu_heads {
    ek_gpu_heads_by by;
    ek_cuda_heads p;
} ek_gpu_heads;

/* For n rows of layer i. keys_alone: q has other rows. */
ek_gpu_heads ek_gpu_choose_heads(const ek_gpu_run *x, int i, bool keys_alone, int n);
/* Writes x->buf.q, x->buf.k and x->buf.v, if the layer has them. */
void ek_gpu_write_heads(ek_gpu_writer *w, int i, bool keys_alone, ek_gpu_input *in);
void ek_gpu_write_queries(ek_gpu_writer *w, int i, ek_gpu_input *in); /* q alone */

/* Stores keys and values from x->buf.k and x->buf.v in their pages, and finishes queries in x->buf.q. Does not do what
 * attention's kernel does itself. */
void ek_gpu_write_store(ek_gpu_writer *w, int i, int n);
void ek_gpu_write_finish(ek_gpu_writer *w, int i, int n);
/* Attention, and its result as rows. */
ek_gpu_input ek_gpu_write_attend(ek_gpu_writer *w, int i, int n);

#endif
