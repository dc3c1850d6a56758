/* The weights' way to the device. */
#ifndef EK_GPU_WEIGHTS_UPLOAD_H
#define EK_GPU_WEIGHTS_UPLOAD_H

#include "gpu/weights/state.h"
#include "model/drafter.h"

/* Which part of g->m g has. */
void ek_gpu_set_share(ek_gpu *g, const ek_model_share *s, ek_gpu_cut cut);
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

#endif
