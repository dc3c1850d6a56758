/* A CUDA device: the driver found at run time, the kernels built into this program, launches, and every failure as one
 * sentence; memory and copies are in cuda/memory.h. Nothing of CUDA is linked: without a driver ek_cuda_load fails with
 * a sentence and the program continues without a device.
 *
 * One thread uses a device at a time: the one that opened it, or that entered it last. Work is put into one stream and
 * runs in order. Errors of the driver after which it refuses all further work (an illegal address, a hardware error)
 * make the device broken: this call and every later one fails with the first sentence, so that nothing computed after
 * it can be taken for an answer. */
#ifndef EK_CUDA_DRIVER_H
#define EK_CUDA_DRIVER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "cuda/api.h"
#include "cuda/chip.h"
#include "cuda/code.h"

typedef struct ek_cuda ek_cuda;

/* How many devices the driver has; 0 is no error. */
ek_err ek_cuda_devices(const ek_cuda_api *api, int *n);

/* Opens device number `ordinal`. Needs a driver of the first number of the toolkit that built the kernels or newer, and
 * modules that the device runs (cuda/driver.h), which it loads. EUNSUPPORTED, ENOTFOUND (no such device) or ENOMEM say
 * which requirement failed. api is copied. */
ek_err ek_cuda_open(ek_cuda **out, const ek_cuda_api *api, const ek_cuda_module *modules, int built_with, int ordinal);
/* The same with the features of another capability, ten times, which code for the device must keep to; 0: the
 * device's own. */
ek_err ek_cuda_open_as(ek_cuda **out, const ek_cuda_api *api, const ek_cuda_module *modules, int built_with,
                       int ordinal, int features);
/* Whether device number `ordinal` runs these modules, with the errors of ek_cuda_open; takes nothing of it. */
ek_err ek_cuda_ask(const ek_cuda_api *api, const ek_cuda_module *modules, int built_with, int ordinal);
/* A device that is not there, of which nothing may be asked but what it is: for what a step would take of one. */
ek_cuda *ek_cuda_on_paper(int capability, int multiprocessors);
void ek_cuda_close(ek_cuda *c); /* NULL is allowed; memory and kernels are gone with it */

/* "NVIDIA H100 80GB HBM3, 79.2 GB, 132 multiprocessors, driver 13.0" */
const char *ek_cuda_text(const ek_cuda *c);
/* The same without its memory: what names a kind of card and driver. */
const char *ek_cuda_card(const ek_cuda *c);
int ek_cuda_ordinal(const ek_cuda *c);
const char *ek_cuda_maker(const ek_cuda *c); /* "cuda", or who stands behind the table: cuda:0 is maker and ordinal */
int ek_cuda_multiprocessors(const ek_cuda *c);
const ek_cuda_chip *ek_cuda_chip_of(const ek_cuda *c); /* what kernels are chosen by */
void ek_cuda_leave_matrices(ek_cuda *c);               /* from here on, as if it had none (cuda/chip.h) */
/* By these times from now on, a copy: before anything is planned. */
void ek_cuda_set_times(ek_cuda *c, const ek_cuda_times *us);
const ek_cuda_api *ek_cuda_functions(const ek_cuda *c); /* for graphs and events */
CUstream ek_cuda_stream(const ek_cuda *c);

/* EK_OK, or what result means as a sentence that begins with doing. Notes a broken device. */
ek_err ek_cuda_check(ek_cuda *c, CUresult result, const char *doing);
bool ek_cuda_broken(const ek_cuda *c);
const char *ek_cuda_why(const ek_cuda *c); /* the first sentence; NULL unless it is broken */

/* Makes this device the calling thread's: for the thread that uses it from now on. */
ek_err ek_cuda_enter(ek_cuda *c);

typedef struct ek_cuda_kernel {
    const char *name;
    CUfunction function;
} ek_cuda_kernel;

/* The kernel of this name in any module, allowed to use `shared` bytes of dynamic shared memory. EINTERNAL if
 * there is none. */
ek_err ek_cuda_find(ek_cuda *c, ek_cuda_kernel *out, const char *name, size_t shared);

/* For clusters of more than 8 blocks. */
ek_err ek_cuda_allow_cluster(ek_cuda *c, const ek_cuda_kernel *kernel);

enum { EK_CUDA_GRID_Y = 65535 }; /* blocks in y, or in z, at most */

typedef struct ek_cuda_grid {
    unsigned x, y, z; /* blocks; 0 counts as 1 */
    unsigned threads;
    unsigned cluster; /* blocks in x, all of them, that start together and share their memory; 0: none do */
    size_t shared;    /* dynamic */
    /* May start before the kernel queued before it has ended, and waits where it needs its results; without effect on
     * chips where that is not possible. */
    bool overlap;
} ek_cuda_grid;

/* Queues the kernel with its one argument, a structure of cuda/args.h, which is copied. */
ek_err ek_cuda_launch(ek_cuda *c, const ek_cuda_kernel *kernel, ek_cuda_grid grid, const void *args);

#endif
