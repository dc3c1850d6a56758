/* Which experts rows have: pairs of (row, chosen expert), sorted by expert and cut into jobs, each of up to a tile of
 * rows of one expert, whose weights it reads once. */
#ifndef EK_GPU_RECIPE_ROUTE_H
#define EK_GPU_RECIPE_ROUTE_H

#include "cuda/model_args.h"
#include "gpu/recipe/recipe.h"

typedef struct ek_gpu_work {
    int tile, jobs;    /* rows of a job, and jobs, at most */
    CUdeviceptr index; /* sorted pair -> row; 0: itself */
} ek_gpu_work;

ek_gpu_work ek_gpu_work_of(const ek_gpu_run *x, const ek_gpu_layer *l, int n);

/* Whether pairs of n rows are found by one block (ek_cuda_choose_args), and its arguments: behind so many blocks of a
 * router in the same launch, or alone. */
bool ek_gpu_few_pairs(const ek_config *c, int n);
ek_cuda_choose_args ek_gpu_choose_args(const ek_gpu_run *x, const ek_gpu_layer *l, int n, int tile, int router_blocks);

/* From the router's rows at x->route to pairs and jobs. */
void ek_gpu_write_route(ek_gpu_writer *w, const ek_gpu_layer *l, int n, const ek_gpu_work *all);

#endif
