/* What is done for a step: its lists, attention, draws, experts on the host, graphs. */
#ifndef EK_GPU_STEP_STEP_H
#define EK_GPU_STEP_STEP_H

#include "base/err.h"
#include "cuda/args.h"
#include "engine/executor.h"
#include "gpu/step/run.h"

/* Rows, page tables and work lists of attention of a step, in its block. */

typedef struct ek_gpu_run ek_gpu_run;

/* Puts the step into x->block; fills x->now.all, x->now.tail and what else x has of this step. */
ek_err ek_gpu_lists(ek_gpu_run *x, const ek_step *s);

/* Room that any step needs: bytes of the block; tiles and items of a list; bytes for the segments of attention, enough
 * for one row, and for all within a limit. The second needs the last. */
size_t ek_gpu_lists_bytes(const ek_gpu_run *x);
void ek_gpu_lists_max(const ek_gpu_run *x, int *tiles, int *items);
size_t ek_gpu_segment_bytes(const ek_gpu_run *x);

/* Rows of cos and sin of the positions where the device has no kernel for them: room in the block; made for a set of
 * rows of the step (those that pick names, NULL: all); and queued behind the block's copy. */
size_t ek_gpu_turns_bytes(const ek_gpu_run *x);
ek_err ek_gpu_make_turns(ek_gpu_run *x, ek_gpu_set *set, const ek_step *s, const int *pick);
ek_err ek_gpu_put_turns(ek_gpu_run *x);

/* Attention over the work lists of a step. */

/* Whether its kernel, ek_attn_half or ek_attn_int_DIM, finishes queries itself. */
bool ek_gpu_finishes(const ek_gpu_list *list);
/* Queues the kernels over the tiles of the list; a has all but what the list decides. */
void ek_gpu_attend(ek_gpu_run *x, ek_cuda_attn_args a, const ek_gpu_list *list);

/* Draws on the device: samples into the step's block, kernels, tokens from what came back. */

typedef struct ek_gpu_flight ek_gpu_flight;

size_t ek_gpu_samples_bytes(const ek_gpu_run *x); /* room in the block that any step needs */
/* Rows of draws that are left to the CPU are marked in shown. */
ek_err ek_gpu_samples(ek_gpu_run *x, const ek_step *s, bool *shown);
/* Of a step whose draws come later. */
void ek_gpu_no_samples(ek_gpu_run *x);
/* The masks, once they are made, into the places that samples gave them. */
ek_err ek_gpu_put_masks(ek_gpu_run *x, const ek_step *s);
void ek_gpu_draw(ek_gpu_run *x); /* queues the kernels */
/* The tokens of a step that ended, whose flight is f. */
ek_err ek_gpu_deliver(ek_gpu_run *x, const ek_step *s, const ek_gpu_flight *f);

/* Experts that a device has no room for: of the rows behind attention the host computes router and experts, while the
 * device computes the dense MLP, and the rows' sums go back. Rows go by way of pinned memory, and the host waits for
 * them, so a step with such layers is queued by the kernel and ends where it is queued. */

/* Memory for it, where x's device has such layers; the model's weights are packed then. */
ek_err ek_gpu_host_open(ek_gpu_run *x);
void ek_gpu_host_close(ek_gpu_run *x);

/* Queues the copy of n rows of h to the host. */
ek_err ek_gpu_host_ask(ek_gpu_run *x, int n);
/* Waits for them, computes layer i's experts, and queues the copy of their sums to x->experts.pair_out, one row each.
 */
ek_err ek_gpu_host_answer(ek_gpu_run *x, int i, int n);

/* CUDA graphs: a step of few rows that all want logits is queued by one call once a step of its form has been seen. */

typedef ek_err ek_gpu_body(ek_gpu_run *const *x, int n);
typedef enum ek_gpu_part { EK_GPU_ALL, EK_GPU_FORWARD, EK_GPU_DRAWS } ek_gpu_part; /* of a step, that body queues */

/* Queues what body queues for n devices that have the same step, for each by a graph where one was made of a step of
 * this form: body is called for one that is recorded, and for all that are queued kernel by kernel. */
ek_err ek_gpu_replay(ek_gpu_run *const *x, int n, ek_gpu_body *body, ek_gpu_part part);
void ek_gpu_graphs_fini(ek_gpu_run *x);

#endif
