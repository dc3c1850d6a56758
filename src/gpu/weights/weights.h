/* Uploads weights to a device, and launches kernels by name. */
#ifndef EK_GPU_WEIGHTS_WEIGHTS_H
#define EK_GPU_WEIGHTS_WEIGHTS_H

#include "gpu/weights/state.h"
#include "model/drafter.h"

/* --- weights */

/* Sets the part of g->m that g holds. */
void ek_gpu_set_share(ek_gpu *g, const ek_model_share *s, ek_gpu_shard shard);
/* Sets own to hold all of d, a drafter for g's model, on g's device. */
void ek_gpu_set_drafter(ek_gpu *own, ek_gpu *g, const ek_drafter *d);
/* Fills only the layouts in g->w, and g->bytes, from the model's sizes; takes no memory. */
ek_err ek_gpu_upload_plan(ek_gpu *g);
/* Fills g->w. Layouts and kernels of all matrices are checked before memory is taken. A deferred model that is not
 * packed is read some layers at a time, and only the wanted rows of matrices (NULL: all); none of its weights stay in
 * host memory. */
ek_err ek_gpu_upload(ek_gpu *g, const ek_rows_wanted *wanted);
/* Device memory that weights of Form Q pass through during the upload: EK_GPU_BUFFER bytes, or a panel if that is more.
 */
enum { EK_GPU_BUFFER = 64 << 20 };

typedef struct ek_gpu_buffer {
    CUdeviceptr at;
    size_t bytes;
} ek_gpu_buffer;

/* Queues the copy of w as panels [first, …) of the matrix at `to` with layout l. */
ek_err ek_gpu_upload_matrix(ek_gpu *g, const ek_cuda_linear *l, const ek_linear *w, CUdeviceptr to, int first,
                            ek_gpu_buffer through);
/* Queues the kernel that lays out n panels of w (Form Q) from `from` as panels [first, first + n) of the matrix at
 * `to`.
 */
ek_err ek_gpu_pack(ek_gpu *g, const ek_cuda_linear *l, const ek_linear *w, CUdeviceptr from, CUdeviceptr to, int first,
                   int n);

/* --- the table of per-layer embeddings (E2B, E4B) */

/* Whether a table of `table` bytes may lie on the device. left: bytes beside the weights, `kept` of them reserved. */
bool ek_gpu_table_fits(double table, double left, double kept);
/* Fills the layout in g->w.table from sizes alone and returns the table's bytes; 0: there is no table, it is computed,
 * or it is larger than the device's largest block. */
double ek_gpu_table_plan(ek_gpu *g);
/* Copies the table, after the weights, if it takes at most a quarter of the remaining memory; else g->w.table stays
 * empty. */
ek_err ek_gpu_table_upload(ek_gpu *g);

/* --- launches by name */

/* The entry of a kernel, valid for the device's life; does not ask the driver. */
ek_gpu_kernel *ek_gpu_kernel_named(ek_gpu *g, const char *name);
/* Queues the kernel with its arguments, which are copied, unless g->err is set. Asks the driver for the kernel the
 * first time, and again when a grid needs more shared memory. */
void ek_gpu_launch_kernel(ek_gpu *g, ek_gpu_kernel *k, ek_cuda_grid grid, const void *args);
void ek_gpu_launch(ek_gpu *g, const char *name, ek_cuda_grid grid, const void *args); /* by name */
/* Keeps a failure in g->err, unless an earlier one is there. */
void ek_gpu_note(ek_gpu *g, ek_err err);

#endif
