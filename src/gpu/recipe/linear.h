/* Linear layers in recipes: rows in the forms that kernels read them in, products, gates, heads, and the row kernels
 * between them. */
#ifndef EK_GPU_RECIPE_LINEAR_H
#define EK_GPU_RECIPE_LINEAR_H

#include "cuda/model_args.h"
#include "cuda/product/launch.h"
#include "cuda/product/layout.h"
#include "gpu/recipe/recipe.h"

/* Rows that a linear layer reads, in the forms that its kernels read them in: floats, records (cuda/args.h), and
 * operands, which are rows in the order of wgmma (kernels/wide_product.cuh). */

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

typedef struct ek_gpu_exchange ek_gpu_exchange; /* gpu/recipe/exchange.h */

/* Linear layers: which kernel, its arguments, and what must be done with its rows first. */

/* Whether the device has the kernels alone that need nothing of CUDA (cuda/chip.h). */
static inline bool ek_gpu_is_plain(const ek_gpu_run *x)
{
    return ek_cuda_chip_of(x->g->c)->plain;
}

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

/* The row-wise kernels between two linear layers (cuda/model_args.h, ek_stage; cuda/operand_args.h), and how they leave
 * rows for those that read them. */

/* Who reads the norm of h in a layer. */
typedef enum ek_gpu_readers { EK_GPU_TO_HEADS, EK_GPU_TO_MLP } ek_gpu_readers;

/* Of n rows of the layer. drops: its queries are of other rows. */
typedef struct ek_gpu_reading {
    int layer, n;
    ek_gpu_readers by;
    bool drops;
} ek_gpu_reading;

/* How rows are left for them: where they lie, and which operands hold them. The kernel in front writes this, and the
 * readers, perhaps in another recipe, find it. */
ek_gpu_input ek_gpu_left_for(ek_gpu_writer *w, const ek_gpu_reading *r);

/* What `a` says for n rows, by ek_stage or of prompts. */
void ek_gpu_write_rows(ek_gpu_writer *w, ek_cuda_stage_args a, int n);
/* And behind what `a` says x = norm(h), for m, to x->buf.x or to `to`. all: m's records are all that is read of x,
 * which is then not written as floats. */
ek_gpu_input ek_gpu_write_rows_to(ek_gpu_writer *w, ek_cuda_stage_args a, CUdeviceptr norm, const ek_gpu_matrix *m,
                                  bool all, CUdeviceptr to, int n);
/* The same for all that r says. */
ek_gpu_input ek_gpu_write_rows_for(ek_gpu_writer *w, ek_cuda_stage_args a, const ek_gpu_reading *r);
/* Whether records of rows for q of a layer are what k and v read, too. */
bool ek_gpu_serves_heads(const ek_gpu_layer *l);

/* A product with its gate: gelu(gate) times a second product, or times rows that are there, as the input of the matrix
 * that follows: in one launch where a kernel does it. */

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

/* The dense MLP of layer i, from rows that its gate reads to x->buf.y. */
ek_gpu_gated ek_gpu_choose_mlp(const ek_gpu_run *x, int i, int n);
void ek_gpu_write_mlp(ek_gpu_writer *w, int i, ek_gpu_input *in, int n);

/* The same of devices whose outputs are cut, in two halves: what is gated here is a piece of e, and behind the exchange
 * all of it is what down reads, whose outputs here go to x->buf.y. */
ek_gpu_input ek_gpu_write_mlp_part(ek_gpu_writer *w, int i, ek_gpu_input *in, int n, ek_gpu_exchange *e);
void ek_gpu_write_down_part(ek_gpu_writer *w, int i, ek_gpu_input *gated);

/* Queries, keys and values of a layer: their products, what finishes and stores them, attention. Which of the last
 * three attention's own kernel does is the subject's: finishes, single. */

typedef enum ek_gpu_heads_by {
    EK_GPU_HEADS_APART,    /* products of their own; k and v may share one */
    EK_GPU_HEADS_TOGETHER, /* one launch that reads records */
    EK_GPU_HEADS_WIDE      /* one that reads operands, by wgmma; of k and v alone where q has other rows */
} ek_gpu_heads_by;

typedef struct ek_gpu_heads {
    ek_gpu_heads_by by;
    ek_cuda_heads p;
} ek_gpu_heads;

/* For n rows of layer i; keys_alone: q is of other rows. */
ek_gpu_heads ek_gpu_choose_heads(const ek_gpu_run *x, int i, bool keys_alone, int n);
/* To x->buf.q, x->buf.k and x->buf.v, as the layer has them. */
void ek_gpu_write_heads(ek_gpu_writer *w, int i, bool keys_alone, ek_gpu_input *in);
void ek_gpu_write_queries(ek_gpu_writer *w, int i, ek_gpu_input *in); /* q alone */

/* Keys and values from x->buf.k and x->buf.v into their pages; queries in x->buf.q; each unless attention does it. */
void ek_gpu_write_store(ek_gpu_writer *w, int i, int n);
void ek_gpu_write_finish(ek_gpu_writer *w, int i, int n);
/* Attention, and the rows that come of it. */
ek_gpu_input ek_gpu_write_attend(ek_gpu_writer *w, int i, int n);

#endif
