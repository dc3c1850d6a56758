/* What stands in front of the layers: embeddings, rotations, per-layer inputs. */
#ifndef EK_GPU_RECIPE_EMBED_H
#define EK_GPU_RECIPE_EMBED_H

#include "cuda/model_args.h"
#include "gpu/recipe/recipe.h"

/* The fields of args that the matrix decides. */
ek_cuda_embed_args ek_gpu_rows_of(const ek_gpu_matrix *m);
/* to[r] = factor times elements [first, first + width) of row id[r] of m. */
void ek_gpu_embed(ek_gpu_writer *w, const ek_gpu_matrix *m, CUdeviceptr id, CUdeviceptr to, int64_t ld, int first,
                  int width, float factor, int n);
/* Of n rows of the set. */
void ek_gpu_rope_tables(ek_gpu_writer *w, bool tail, int n);
/* y[r] = from[index[r]], or from[r] without index, of n rows of so many elements. */
void ek_gpu_gather(ek_gpu_writer *w, CUdeviceptr y, int64_t ldy, CUdeviceptr from, CUdeviceptr index, int width, int n);
/* EK_GPU_BEGIN. */
void ek_gpu_write_begin(ek_gpu_writer *w);

/* The per-layer inputs of layer i, ld elements per row. */
CUdeviceptr ek_gpu_per_layer_rows(const ek_gpu_run *x, int i, int64_t *ld);

#endif
