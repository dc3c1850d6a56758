/* Drafts by a drafter model on the device. */
#ifndef EK_GPU_DRAFT_H
#define EK_GPU_DRAFT_H

#include "engine/executor.h"

/* ek_executor.draft. */
ek_err ek_gpu_draft(void *run, ek_draft *draft, int n);

#endif
