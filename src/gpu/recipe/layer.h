/* A layer: attention, MLP or experts, and its end, which leaves rows for the layer behind it. */
#ifndef EK_GPU_RECIPE_LAYER_H
#define EK_GPU_RECIPE_LAYER_H

#include "gpu/recipe/operand.h"

void ek_gpu_write_keys(ek_gpu_writer *w);  /* EK_GPU_KEYS */
void ek_gpu_write_layer(ek_gpu_writer *w); /* EK_GPU_LAYER */

/* Rows behind the last norm, as the last layer leaves them. */
ek_gpu_input ek_gpu_last_rows(ek_gpu_writer *w, int n);

#endif
