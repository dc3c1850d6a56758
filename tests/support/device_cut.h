/* A whole call of attention as the device's work list (cuda/attn_work.h), for tests that have no step. */
#ifndef EK_TESTS_SUPPORT_DEVICE_CUT_H
#define EK_TESTS_SUPPORT_DEVICE_CUT_H

#include "cuda/attn_work.h"

/* All rows into an empty w. Without items the tiles of late rows come first, as a step has them (gpu/step/step.h). */
ek_err device_cut(ek_cuda_attn_work *w, const ek_attn_row *rows, int n_rows, int n_heads, int n_kv_heads, int tile);

#endif
