/* Weights on a device: their way there, and launches of kernels by name. */
#ifndef EK_GPU_WEIGHTS_WEIGHTS_H
#define EK_GPU_WEIGHTS_WEIGHTS_H

#include "gpu/weights/state.h"
#include "model/drafter.h"

/* The weights' way to the device. */

/* Which part of g->m g has. */
void ek_gpu_set_share(ek_gpu *g, const ek_model_share *s, ek_gpu_shard shard);
/* own is to have all of d, a drafter for the model of g, on g's device. */
void ek_gpu_set_drafter(ek_gpu *own, ek_gpu *g, const ek_drafter *d);
/* Fills layouts in g->w, and g->bytes, alone: sizes of the model are read, and nothing is taken. */
ek_err ek_gpu_upload_plan(ek_gpu *g);
/* Fills g->w; layouts and kernels of all matrices are checked before memory is taken. A deferred model that is not
 * packed is read some layers at a time, of matrices the rows that are wanted (NULL: all); nothing of it stays in host
 * memory. */
ek_err ek_gpu_upload(ek_gpu *g, const ek_rows_wanted *wanted);
/* Memory of the device that weights of Form Q go through on their way: of EK_GPU_BUFFER bytes, at least of a panel. */
enum { EK_GPU_BUFFER = 64 << 20 };

typedef struct ek_gpu_buffer {
    CUdeviceptr at;
    size_t bytes;
} ek_gpu_buffer;

/* Queues the copy of w as panels [first, …) of the matrix at `to` with layout l. */
ek_err ek_gpu_upload_matrix(ek_gpu *g, const ek_cuda_linear *l, const ek_linear *w, CUdeviceptr to, int first,
                            ek_gpu_buffer through);
/* Queues the kernel that lays out n panels of w, of Form Q, which lie at `from`, as panels [first, first + n) of the
 * matrix at `to`. */
ek_err ek_gpu_pack(ek_gpu *g, const ek_cuda_linear *l, const ek_linear *w, CUdeviceptr from, CUdeviceptr to, int first,
                   int n);

/* The table of per-layer embeddings (E2B, E4B) on the device. */

/* Whether a table of so many bytes lies on a device that has `left` behind the weights, of which `kept` are for the
 * rest. */
bool ek_gpu_table_fits(double table, double left, double kept);
/* Fills its layout in g->w.table, from sizes alone, and returns its bytes; 0: there is none, or it is computed. */
double ek_gpu_table_plan(ek_gpu *g);
/* Copies it, behind the weights, if it takes at most a quarter of what is left; else g->w.table stays empty. */
ek_err ek_gpu_table_upload(ek_gpu *g);

/* Launches of kernels by their names. */

/* The place of the kernel of that name, for the device's life; the driver is not asked. */
ek_gpu_kernel *ek_gpu_kernel_named(ek_gpu *g, const char *name);
/* Queues the kernel with its arguments, which are copied, unless g->err is set. Looks for it in the driver the first
 * time, and where the grid needs more shared memory than those before. */
void ek_gpu_launch_kernel(ek_gpu *g, ek_gpu_kernel *k, ek_cuda_grid grid, const void *args);
void ek_gpu_launch(ek_gpu *g, const char *name, ek_cuda_grid grid, const void *args); /* by name */
/* Notes a failure in g->err, the first of what is being queued. */
void ek_gpu_note(ek_gpu *g, ek_err err);

#endif
