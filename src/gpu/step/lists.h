/* Rows, page tables and work lists of attention of a step, in its block. */
#ifndef EK_GPU_STEP_LISTS_H
#define EK_GPU_STEP_LISTS_H

#include "engine/executor.h"

typedef struct ek_gpu_run ek_gpu_run;

/* Puts the step into x->block; fills x->all, x->tail and what else x has of this step. */
ek_err ek_gpu_lists(ek_gpu_run *x, const ek_step *s);

/* Room that any step needs: bytes of the block; tiles and items of a list; bytes for the segments of attention, enough
 * for one row, and for all within a limit. The second needs the last. */
size_t ek_gpu_lists_bytes(const ek_gpu_run *x);
void ek_gpu_lists_max(const ek_gpu_run *x, int *tiles, int *items);
size_t ek_gpu_segment_bytes(const ek_gpu_run *x);

#endif
