/* The table of per-layer embeddings (E2B, E4B) on the device. */
#ifndef EK_GPU_WEIGHTS_TABLE_H
#define EK_GPU_WEIGHTS_TABLE_H

#include "gpu/weights/state.h"

/* Copies it, behind the weights, if it takes at most a quarter of what is left; else g->w.table stays empty. */
ek_err ek_gpu_table_upload(ek_gpu *g);

#endif
