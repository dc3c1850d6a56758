/* Queries, keys and values of a layer: their products, what finishes and stores them, attention. Which of the last
 * three attention's own kernel does is the subject's: finishes, single. */
#ifndef EK_GPU_RECIPE_HEADS_H
#define EK_GPU_RECIPE_HEADS_H

#include "gpu/recipe/product.h"

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
/* To x->q, x->k and x->v, as the layer has them. */
void ek_gpu_write_heads(ek_gpu_writer *w, int i, bool keys_alone, ek_gpu_input *in);
void ek_gpu_write_queries(ek_gpu_writer *w, int i, ek_gpu_input *in); /* q alone */

/* Keys and values from x->k and x->v into their pages; queries in x->q; each unless attention does it. */
void ek_gpu_write_store(ek_gpu_writer *w, int i, int n);
void ek_gpu_write_finish(ek_gpu_writer *w, int i, int n);
/* Attention, and the rows that come of it. */
ek_gpu_input ek_gpu_write_attend(ek_gpu_writer *w, int i, int n);

#endif
