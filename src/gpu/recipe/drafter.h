/* What a drafter does beside its layers. */
#ifndef EK_GPU_RECIPE_DRAFTER_H
#define EK_GPU_RECIPE_DRAFTER_H

#include "gpu/recipe/recipe.h"

void ek_gpu_write_draft_first(ek_gpu_writer *w); /* EK_GPU_DRAFT_FIRST: rotations, the target's last x */
void ek_gpu_write_draft_begin(ek_gpu_writer *w); /* EK_GPU_DRAFT_BEGIN: tokens and states to h */
/* EK_GPU_DRAFT_END: the next token joins the draft, and the next state lies where it is fed. */
void ek_gpu_write_draft_end(ek_gpu_writer *w);

#endif
