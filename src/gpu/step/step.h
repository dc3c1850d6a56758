/* The parts of a step: lists, attention, draws, experts on the host, graphs. */
#ifndef EK_GPU_STEP_STEP_H
#define EK_GPU_STEP_STEP_H

#include "base/err.h"
#include "cuda/args.h"
#include "engine/executor.h"
#include "gpu/step/run.h"

/* Rows, page tables and work lists of attention of a step, in its block. */

/* Writes the step into x->block and fills x's data of this step, such as x->now.all and x->now.tail. */
ek_err ek_gpu_lists(ek_gpu_run *x, const ek_step *s);

/* Sizes for any step: bytes of the block; tiles and items of a list; bytes for the segments of attention, which suffice
 * for one row, and for all rows within a limit. ek_gpu_lists_max needs ek_gpu_segment_bytes' result. */
size_t ek_gpu_lists_bytes(const ek_gpu_run *x);
void ek_gpu_lists_max(const ek_gpu_run *x, int *tiles, int *items);
size_t ek_gpu_segment_bytes(const ek_gpu_run *x);

/* Queues the copy of rows of cos and sin, after the block's, for devices without a kernel for them. */
ek_err ek_gpu_put_turns(ek_gpu_run *x);

/* Attention over the work lists of a step. */

/* Whether the list's kernel (ek_attn_half or ek_attn_int_DIM) finishes queries itself. */
bool ek_gpu_finishes(const ek_gpu_list *list);
/* Queues the kernels over the tiles of the list. a: the arguments, except those that the list decides. */
void ek_gpu_attend(ek_gpu_run *x, ek_cuda_attn_args a, const ek_gpu_list *list);

/* Draws on the device: samples in the step's block, kernels, and the resulting tokens. */

size_t ek_gpu_samples_bytes(const ek_gpu_run *x); /* bytes in the block for any step */
/* Writes the samples; marks in shown the rows whose draws the CPU makes. */
ek_err ek_gpu_samples(ek_gpu_run *x, const ek_step *s, bool *shown);
/* The same for a step whose draws come later: none. */
void ek_gpu_no_samples(ek_gpu_run *x);
/* Copies finished masks into the places that ek_gpu_samples reserved. */
ek_err ek_gpu_put_masks(ek_gpu_run *x, const ek_step *s);
void ek_gpu_draw(ek_gpu_run *x); /* queues the kernels */
/* Delivers the tokens of an ended step, whose flight is f. */
ek_err ek_gpu_deliver(ek_gpu_run *x, const ek_step *s, const ek_gpu_flight *f);

/* Experts without room on the device. The host computes router and experts of the rows after attention, while the
 * device computes the dense MLP; the rows' sums go back. Rows go through pinned memory, and the host waits for them, so
 * such a step is queued kernel by kernel and has ended when queueing returns. */

/* Takes memory if x's device has such layers; the model's weights are packed already. */
ek_err ek_gpu_host_open(ek_gpu_run *x);
void ek_gpu_host_close(ek_gpu_run *x);

/* Queues the copy of n rows of h to the host. */
ek_err ek_gpu_host_ask(ek_gpu_run *x, int n);
/* Waits for the rows, computes layer i's experts, and queues the copy of the sums to x->experts.pair_out, a row each.
 */
ek_err ek_gpu_host_answer(ek_gpu_run *x, int i, int n);

/* CUDA graphs: from the second step of a form on, one call queues a step of few rows that all want logits. */

typedef ek_err ek_gpu_body(ek_gpu_run *const *x, int n);
typedef enum ek_gpu_part {
    EK_GPU_ALL,
    EK_GPU_FORWARD,
    EK_GPU_DRAWS
} ek_gpu_part; /* the part of a step that body queues */

/* Queues body's launches for n devices with the same step: by each device's graph if one of this form exists. Otherwise
 * body is called, either to record a graph or to queue kernel by kernel. */
ek_err ek_gpu_replay(ek_gpu_run *const *x, int n, ek_gpu_body *body, ek_gpu_part part);
void ek_gpu_graphs_fini(ek_gpu_run *x);

#endif
