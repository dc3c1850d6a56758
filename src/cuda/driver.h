/* A CUDA device: the driver, found at run time, the built-in kernels, launches, and errors as sentences; memory and
 * copies are in cuda/memory.h. Nothing of CUDA is linked: without a driver ek_cuda_load fails with a sentence, and the
 * program continues without a device.
 *
 * One thread uses a device at a time: the one that opened it, or the last one that entered it. Work is queued into one
 * stream and runs in order. Some errors make the driver refuse all further work (an illegal address, a hardware error).
 * They break the device: this call and all later ones fail with the first sentence, so that no later result can be
 * taken for an answer. */
#ifndef EK_CUDA_DRIVER_H
#define EK_CUDA_DRIVER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "cuda/api.h"
#include "cuda/chip.h"

typedef struct ek_cuda ek_cuda;

/* The number of the driver's devices; 0 is no error. */
ek_err ek_cuda_devices(const ek_cuda_api *api, int *n);

/* Opens device number `ordinal`. Needs a driver with at least the first version number of the kernels' toolkit, and
 * modules for the device (cuda/chip.h), which it loads. EUNSUPPORTED, ENOTFOUND (no such device) or ENOMEM name the
 * failed requirement. api is copied. features: those of another capability (times ten), to which the code is limited;
 * 0: the device's own. */
ek_err ek_cuda_open(ek_cuda **out, const ek_cuda_api *api, const ek_cuda_module *modules, int built_with, int ordinal,
                    int features);
/* Whether device number `ordinal` runs these modules; errors of ek_cuda_open. Takes nothing of the device. */
ek_err ek_cuda_ask(const ek_cuda_api *api, const ek_cuda_module *modules, int built_with, int ordinal);
/* A device on paper: only its properties may be read, to compute the needs of a step. */
ek_cuda *ek_cuda_on_paper(int capability, int multiprocessors);
void ek_cuda_close(ek_cuda *c); /* NULL is allowed; frees its memory and kernels */

/* "NVIDIA H100 80GB HBM3, 79.2 GB, 132 multiprocessors, driver 13.0" */
const char *ek_cuda_text(const ek_cuda *c);
/* The same without memory: the name of a kind of card and driver. */
const char *ek_cuda_card(const ek_cuda *c);
int ek_cuda_ordinal(const ek_cuda *c);
const char *ek_cuda_maker(const ek_cuda *c); /* prefix of its name: "cuda" of cuda:0, or another driver's */
int ek_cuda_multiprocessors(const ek_cuda *c);
const ek_cuda_chip *ek_cuda_chip_of(const ek_cuda *c); /* the properties for choosing kernels */
void ek_cuda_leave_matrices(ek_cuda *c); /* from now on the device counts as one without matrices (cuda/chip.h) */
/* Replaces the chip's times by a copy of us; call it before anything is planned. */
void ek_cuda_set_times(ek_cuda *c, const ek_cuda_times *us);
const ek_cuda_api *ek_cuda_functions(const ek_cuda *c); /* for graphs and events */
CUstream ek_cuda_stream(const ek_cuda *c);

/* EK_OK, or the meaning of result as a sentence that begins with `doing`. Records a broken device. */
ek_err ek_cuda_check(ek_cuda *c, CUresult result, const char *doing);
bool ek_cuda_broken(const ek_cuda *c);
const char *ek_cuda_why(const ek_cuda *c); /* the first sentence; NULL: the device is not broken */

/* Makes this device current for the calling thread, which uses it from now on. */
ek_err ek_cuda_enter(ek_cuda *c);

typedef struct ek_cuda_kernel {
    const char *name;
    CUfunction function;
} ek_cuda_kernel;

/* The kernel of this name in any module, with permission for `shared` bytes of dynamic shared memory. EINTERNAL:
 * there is none; EUNSUPPORTED: another maker's driver does not compile it. */
ek_err ek_cuda_find(ek_cuda *c, ek_cuda_kernel *out, const char *name, size_t shared);

/* Permits clusters of more than 8 blocks. */
ek_err ek_cuda_allow_cluster(ek_cuda *c, const ek_cuda_kernel *kernel);

enum { EK_CUDA_GRID_Y = 65535 }; /* maximum blocks in y, and in z; a plain chip may have no more in x */

typedef struct ek_cuda_grid {
    unsigned x, y, z; /* blocks; 0 counts as 1 */
    unsigned threads;
    unsigned cluster; /* blocks in x that start together and share their memory (all of them); 0: no clusters */
    size_t shared;    /* dynamic */
    /* The kernel may start before the previous one has ended. It waits itself before it reads that one's results. No
     * effect on chips without this feature. */
    bool overlap;
} ek_cuda_grid;

/* Queues the kernel with its single argument, a structure of cuda/args.h, which is copied. */
ek_err ek_cuda_launch(ek_cuda *c, const ek_cuda_kernel *kernel, ek_cuda_grid grid, const void *args);

#endif
