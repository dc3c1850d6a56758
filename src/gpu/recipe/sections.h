/* The pass, and the sections of it that recipes are written for. */
#ifndef EK_GPU_RECIPE_SECTIONS_H
#define EK_GPU_RECIPE_SECTIONS_H

#include "cuda/model_args.h"
#include "gpu/recipe/linear.h"
#include "gpu/recipe/recipe.h"
#include "gpu/step/run.h"

/* The forward pass on the device: the steps of src/model/forward.c as kernels in one stream, by recipes. */

/* Queues the forward pass of the rows in the block, up to the logits of the n_want rows: on one device, or on n whose
 * outputs are cut and whose rows are the same. */
void ek_gpu_forward(ek_gpu_run *const *x, int n);

/* Of a drafter's run: what is queued once for a draft, and for each of its tokens. */
void ek_gpu_draft_first(ek_gpu_run *x);
void ek_gpu_draft_token(ek_gpu_run *x);

/* What stands in front of the layers: embeddings, rotations, per-layer inputs. */

/* The fields of args that the matrix decides. */
ek_cuda_embed_args ek_gpu_rows_of(const ek_gpu_matrix *m);
/* to[r] = factor times elements [first, first + width) of row id[r] of m. */
void ek_gpu_embed(ek_gpu_writer *w, const ek_gpu_matrix *m, CUdeviceptr id, CUdeviceptr to, int64_t ld, int first,
                  int width, float factor, int n);
/* Of n rows of the set. */
void ek_gpu_rope_tables(ek_gpu_writer *w, bool tail, int n);
/* y[r] = from[index[r]], or from[r] without index, of n rows of so many elements. */
void ek_gpu_gather(ek_gpu_writer *w, CUdeviceptr y, int64_t ldy, CUdeviceptr from, CUdeviceptr index, int width, int n);
/* EK_GPU_BEGIN. */
void ek_gpu_write_begin(ek_gpu_writer *w);

/* The per-layer inputs of layer i, ld elements per row. */
CUdeviceptr ek_gpu_per_layer_rows(const ek_gpu_run *x, int i, int64_t *ld);

/* A layer: attention, MLP or experts, and its end, which leaves rows for the layer behind it. */

void ek_gpu_write_keys(ek_gpu_writer *w);  /* EK_GPU_KEYS */
void ek_gpu_write_layer(ek_gpu_writer *w); /* EK_GPU_LAYER */

/* Rows behind the last norm, as the last layer leaves them. */
ek_gpu_input ek_gpu_last_rows(ek_gpu_writer *w, int n);

/* Which experts rows have: pairs of (row, chosen expert), sorted by expert and cut into jobs, each of up to a tile of
 * rows of one expert, whose weights it reads once. */

typedef struct ek_gpu_work {
    int tile, jobs;    /* rows of a job, and jobs, at most */
    CUdeviceptr index; /* sorted pair -> row; 0: itself */
} ek_gpu_work;

ek_gpu_work ek_gpu_work_of(const ek_gpu_run *x, const ek_gpu_layer *l, int n);

/* Whether pairs of n rows are found by one block (ek_cuda_choose_args), and its arguments: behind so many blocks of a
 * router in the same launch, or alone. */
bool ek_gpu_few_pairs(const ek_config *c, int n);
ek_cuda_choose_args ek_gpu_choose_args(const ek_gpu_run *x, const ek_gpu_layer *l, int n, int tile, int router_blocks);

/* From the router's rows at x->experts.route to pairs and jobs. */
void ek_gpu_write_route(ek_gpu_writer *w, const ek_gpu_layer *l, int n, const ek_gpu_work *all);

/* Mixture of experts: the dense MLP and the experts of a layer. */

/* Both of layer i for n rows, from o's output in x->buf.y: the MLP's to x->buf.y, the experts' to x->experts.pair_out,
 * row_pair and weight, which `end`, the arguments of the layer's end, then names. One beside the other where they read
 * rows alike.
 */
void ek_gpu_write_moe(ek_gpu_writer *w, int i, int n, ek_cuda_stage_args *end);

/* Mixture of experts whose experts the host computes. */

/* As ek_gpu_write_moe; of a row's experts `end` names their sum, as the output of one. */
void ek_gpu_write_moe_with_host(ek_gpu_writer *w, int i, int n, ek_cuda_stage_args *end);

/* What a drafter does beside its layers. */

void ek_gpu_write_draft_first(ek_gpu_writer *w); /* EK_GPU_DRAFT_FIRST: rotations, the target's last x */
void ek_gpu_write_draft_begin(ek_gpu_writer *w); /* EK_GPU_DRAFT_BEGIN: tokens and states to h */
/* EK_GPU_DRAFT_END: the next token joins the draft, and the next state lies where it is fed. */
void ek_gpu_write_draft_end(ek_gpu_writer *w);

#endif
