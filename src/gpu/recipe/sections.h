/* The forward pass, and its sections, each of which has a recipe. */
#ifndef EK_GPU_RECIPE_SECTIONS_H
#define EK_GPU_RECIPE_SECTIONS_H

#include "cuda/model_args.h"
#include "gpu/recipe/linear.h"
#include "gpu/recipe/recipe.h"
#include "gpu/step/run.h"

/* --- the forward pass on the device: the steps of src/model/forward.c as kernels in one stream, by recipes --- */

/* Queues the forward pass of the block's rows, up to the logits of the n_want rows: on one device, or on n devices with
 * shards and the same rows. */
void ek_gpu_forward(ek_gpu_run *const *x, int n);

/* For a drafter's run: queues the work of a draft's beginning, and that of each of its tokens. */
void ek_gpu_draft_first(ek_gpu_run *x);
void ek_gpu_draft_token(ek_gpu_run *x);

/* --- before the layers: embeddings, rotations, per-layer inputs --- */

/* The fields of args that follow from the matrix. */
ek_cuda_embed_args ek_gpu_rows_of(const ek_gpu_matrix *m);
/* to[r] = factor times elements [first, first + width) of row id[r] of m. */
void ek_gpu_embed(ek_gpu_writer *w, const ek_gpu_matrix *m, CUdeviceptr id, CUdeviceptr to, int64_t ld, int first,
                  int width, float factor, int n);
/* Rotations of n rows. */
void ek_gpu_rope_tables(ek_gpu_writer *w, bool tail, int n);
/* y[r] = from[index[r]], or from[r] without index, for n rows of `width` elements. */
void ek_gpu_gather(ek_gpu_writer *w, CUdeviceptr y, int64_t ldy, CUdeviceptr from, CUdeviceptr index, int width, int n);
/* Writes EK_GPU_BEGIN. */
void ek_gpu_write_begin(ek_gpu_writer *w);

/* The per-layer inputs of layer i, ld elements per row. */
CUdeviceptr ek_gpu_per_layer_rows(const ek_gpu_run *x, int i, int64_t *ld);

/* --- a layer: attention, MLP or experts, and its end, which writes the rows of the next layer --- */

void ek_gpu_write_keys(ek_gpu_writer *w);  /* EK_GPU_KEYS */
void ek_gpu_write_layer(ek_gpu_writer *w); /* EK_GPU_LAYER */

/* Rows after the last norm, as the last layer writes them. */
ek_gpu_input ek_gpu_last_rows(ek_gpu_writer *w, int n);

/* Whether one block finds the pairs of (row, chosen expert) of n rows. */
bool ek_gpu_few_pairs(const ek_config *c, int n);

/* --- mixture of experts: the dense MLP and the experts of a layer --- */

/* Writes the dense MLP and the experts of n rows of layer i, from o's output in x->buf.y. The MLP's result goes to
 * x->buf.y. The experts' results go to x->experts.pair_out, row_pair and weight, which are set in `end`, the arguments
 * of the layer's end. Both run at the same time if they read rows in the same form. */
void ek_gpu_write_moe(ek_gpu_writer *w, int i, int n, ek_cuda_stage_args *end);

/* --- a drafter's work besides its layers --- */

void ek_gpu_write_draft_first(ek_gpu_writer *w); /* EK_GPU_DRAFT_FIRST: rotations, the target's last x */
void ek_gpu_write_draft_begin(ek_gpu_writer *w); /* EK_GPU_DRAFT_BEGIN: tokens and states to h */
/* EK_GPU_DRAFT_END: appends the next token to the draft, and writes the next state to its input. */
void ek_gpu_write_draft_end(ek_gpu_writer *w);

#endif
