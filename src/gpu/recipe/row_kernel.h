/* The row-wise kernels between two linear layers (cuda/model_args.h, ek_stage; cuda/operand_args.h), and how they leave
 * rows for those that read them. */
#ifndef EK_GPU_RECIPE_ROW_KERNEL_H
#define EK_GPU_RECIPE_ROW_KERNEL_H

#include "gpu/recipe/operand.h"

/* Who reads the norm of h in a layer. */
typedef enum ek_gpu_readers { EK_GPU_TO_HEADS, EK_GPU_TO_MLP } ek_gpu_readers;

/* Of n rows of the layer. drops: its queries are of other rows. */
typedef struct ek_gpu_reading {
    int layer, n;
    ek_gpu_readers by;
    bool drops;
} ek_gpu_reading;

/* How rows are left for them: where they lie, and which operands hold them. The kernel in front writes this, and the
 * readers, perhaps in another recipe, find it. */
ek_gpu_input ek_gpu_left_for(ek_gpu_writer *w, const ek_gpu_reading *r);

/* What `a` says for n rows, by ek_stage or of prompts. */
void ek_gpu_write_rows(ek_gpu_writer *w, ek_cuda_stage_args a, int n);
/* And behind what `a` says x = norm(h), for m, to x->x or to `to`. all: m's records are all that is read of x, which is
 * then not written as floats. */
ek_gpu_input ek_gpu_write_rows_to(ek_gpu_writer *w, ek_cuda_stage_args a, CUdeviceptr norm, const ek_gpu_matrix *m,
                                  bool all, CUdeviceptr to, int n);
/* The same for all that r says. */
ek_gpu_input ek_gpu_write_rows_for(ek_gpu_writer *w, ek_cuda_stage_args a, const ek_gpu_reading *r);
/* Whether records of rows for q of a layer are what k and v read, too. */
bool ek_gpu_serves_heads(const ek_gpu_layer *l);

#endif
