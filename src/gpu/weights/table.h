/* The table of per-layer embeddings (E2B, E4B) on the device. */
#ifndef EK_GPU_WEIGHTS_TABLE_H
#define EK_GPU_WEIGHTS_TABLE_H

#include "gpu/weights/state.h"

/* Whether a table of so many bytes lies on a device that has `left` behind the weights, of which `kept` are for the
 * rest. */
bool ek_gpu_table_fits(double table, double left, double kept);
/* Fills its layout in g->w.table, from sizes alone, and returns its bytes; 0: there is none, or it is computed. */
double ek_gpu_table_plan(ek_gpu *g);
/* Copies it, behind the weights, if it takes at most a quarter of what is left; else g->w.table stays empty. */
ek_err ek_gpu_table_upload(ek_gpu *g);

#endif
