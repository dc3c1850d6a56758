#include "gpu/weights/weights.h"

#include <stdio.h>
#include <string.h>

#include "base/hash/rng.h"

void ek_gpu_note(ek_gpu *g, ek_err err)
{
    if (!g->err) g->err = err;
}

/* Model and drafter have one table of kernels. The kernel's limit of shared memory belongs to the driver, not to a
 * table. */
ek_gpu_kernel *ek_gpu_kernel_named(ek_gpu *g, const char *name)
{
    if (g->target) g = g->target;
    size_t at = ek_fnv1a64(name) % EK_GPU_KERNELS;
    for (int tries = 0; tries < EK_GPU_KERNELS; tries++, at = (at + 1) % EK_GPU_KERNELS) {
        ek_gpu_kernel *k = &g->kernel[at];
        if (strcmp(k->name, name) == 0) return k;
        if (k->name[0]) continue;
        EK_ASSERT(strlen(name) < sizeof k->name);
        snprintf(k->name, sizeof k->name, "%s", name);
        return k;
    }
    EK_ASSERT(0 && "more kernels than EK_GPU_KERNELS");
    return NULL;
}

static ek_err find(ek_gpu *g, ek_gpu_kernel *k, const ek_cuda_grid *grid)
{
    if (k->kernel.function && k->shared >= grid->shared) return EK_OK;
    k->shared = grid->shared;
    ek_err err = ek_cuda_find(g->c, &k->kernel, k->name, grid->shared);
    if (!err && grid->cluster) err = ek_cuda_allow_cluster(g->c, &k->kernel);
    if (err)
        k->kernel.function =
            NULL; /* the device refuses that much shared memory; a later call looks the kernel up again */
    return err;
}

void ek_gpu_launch_kernel(ek_gpu *g, ek_gpu_kernel *k, ek_cuda_grid grid, const void *args)
{
    if (g->err) return;
    ek_gpu_note(g, find(g, k, &grid));
    if (!g->err) ek_gpu_note(g, ek_cuda_launch(g->c, &k->kernel, grid, args));
}

void ek_gpu_launch(ek_gpu *g, const char *name, ek_cuda_grid grid, const void *args)
{
    if (!g->err) ek_gpu_launch_kernel(g, ek_gpu_kernel_named(g, name), grid, args);
}
