/* What a step's buffers on a device take, and where in its memory each begins. */
#ifndef EK_GPU_SIZES_H
#define EK_GPU_SIZES_H

#include "gpu/step/run.h"

void ek_gpu_set_sizes(ek_gpu_run *x, const ek_executor_sizes *z);
/* Sizes of all buffers, of x->z, before any is taken; then where in x->scratch they begin. */
void ek_gpu_size_step(ek_gpu_run *x);
void ek_gpu_lay_out(ek_gpu_run *x);
/* Makes x a run of the drafter of target's device, with its sizes; pages are the target's. */
void ek_gpu_size_drafter(ek_gpu_run *x, ek_gpu_run *target);
/* Entries of ek_gpu_run.ended (ek_cuda_attn_args): one per tile, or of attention in integers per leaf. */
size_t ek_gpu_max_ended(const ek_gpu_run *x);

/* Bytes that a share of a model takes of a device. */
typedef struct ek_gpu_planned {
    double weights, step;         /* without the table: */
    double table;                 /* of per-layer embeddings, where it lies on the device */
    double drafter, drafter_step; /* weights; 0: there is none */
    size_t page_bytes[EK_PAGE_KINDS];
} ek_gpu_planned;

/* The same bytes as of an executor of these sizes, with d, which drafts for m, or NULL, before anything is taken: of
 * models only sizes are read. Errors: a matrix that the kernels do not take. */
ek_err ek_gpu_plan(ek_gpu_planned *out, ek_cuda *c, ek_model *m, const ek_model_share *share, ek_gpu_cut cut,
                   const ek_executor_sizes *z, const ek_drafter *d);

#endif
