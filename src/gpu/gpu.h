/* A model on a device: its weights, and executors that compute the engine's steps with the CPU's bits (docs/CUDA.md,
 * docs/VULKAN.md).
 *
 * Steps run on the calling thread, one at a time. An ek_gpu outlives its executors and has one open at a time. After an
 * error that the driver does not recover from, every step fails with the same sentence. */
#ifndef EK_GPU_GPU_H
#define EK_GPU_GPU_H

#include "cuda/driver.h"
#include "engine/executor.h"
#include "gpu/step/run.h"
#include "gpu/weights/shard.h"

typedef struct ek_gpu ek_gpu;

/* The driver's functions and the kernels to load. */
typedef struct ek_gpu_driver {
    ek_cuda_api api;
    const ek_cuda_module *modules;
    int built_with;
    int features; /* use kernels of this compute capability; 0: the devices' own (ek_cuda_open) */
    /* checks a device that is not CUDA's before it gets a model's weights; may be NULL */
    ek_err (*prove)(ek_gpu *g, const ek_model *m);
    void (*tune)(ek_cuda *c); /* called for an open device before its weights are copied; may be NULL */
} ek_gpu_driver;

/* Loads libcuda.so.1 and this program's kernels. EUNSUPPORTED: no driver. */
ek_err ek_gpu_driver_load(ek_gpu_driver *out);
/* Loads libvulkan.so.1 and this program's shaders behind the same table (vulkan/vulkan.h). */
ek_err ek_gpu_driver_load_vulkan(ek_gpu_driver *out);

/* Opens device `ordinal` and copies the weights of m, which is borrowed. Logs the weights' bytes before taking them;
 * ENOMEM has the numbers. EUNSUPPORTED: a driver, device, format or size that the kernels do not support. */
ek_err ek_gpu_open(ek_gpu **out, const ek_gpu_driver *driver, ek_model *m, int ordinal);
/* The two halves of ek_gpu_open: a device without a model, which suffices for towers (gpu/tower/towers.h); and the
 * weights of a part of m, for one of several devices (gpu/several/several.h): the layers of share, or by shard some
 * outputs of all layers. Weights are packed, or read during the upload (ek_gpu_upload). Errors of driver and device. */
ek_err ek_gpu_open_device(ek_gpu **out, const ek_gpu_driver *driver, int ordinal);
ek_err ek_gpu_load(ek_gpu *g, ek_model *m, const ek_model_share *share, ek_gpu_shard shard);
void ek_gpu_close(ek_gpu *g); /* NULL is allowed */

/* Copies d, a drafter for g's model, to g's device; g's executors then draft with it. Call it once. d is borrowed and
 * may be deferred, like the model; its packed weights may be released afterwards. A failure has no effect. If outputs
 * are divided over devices, g has the whole drafter and reads the keys of all devices. */
ek_err ek_gpu_add_drafter(ek_gpu *g, const ek_drafter *d);

const char *ek_gpu_text(const ek_gpu *g); /* ek_cuda_text */

/* An executor for ek_engine_open_on; the engine's close frees it. */
ek_executor ek_gpu_executor(ek_gpu *g);

/* Free bytes on the device; bytes of the weights, a drafter's included. 0 after an error. */
double ek_gpu_room(ek_gpu *g);
double ek_gpu_bytes(const ek_gpu *g);

/* The fraction of the remaining memory that a step of these sizes takes, a drafter's included. */
double ek_gpu_step_part(ek_gpu *g, const ek_executor_sizes *z);

/* Undoes a begin of an executor of g, for a step that other devices could not begin. Waits for the device. */
void ek_gpu_forget(const ek_executor *x);

/* Measures the bytes per second at which the device reads its memory; 0 after an error. */
double ek_gpu_read_rate(ek_gpu *g);

/* Measures, for a card without built-in times (cuda/chip.h), the factor between each product family's time and the
 * chip's time: the geometric mean over some products in published models' shapes; 1 if none could be timed. Factors
 * decide which kernel computes a product, and no bit. Takes 0.1 s on an H100 and about 150 MB of the device. A plain
 * device measures from how many rows on tiles are faster, and whether matrices are, by the host's clock.
 * EUNSUPPORTED: a CUDA device has no clock (an emulated one); ENOMEM; else an error of the driver. */
ek_err ek_gpu_tune(double factor[EK_CUDA_FAMILIES], ek_cuda *c);

/* --- a run of an executor on one device: pages, a step's buffers on the device, and host memory */

/* ek_executor.open and close. */
ek_err ek_gpu_run_open(void *run, const ek_executor_sizes *z);
void ek_gpu_run_close(void *run);

/* ek_executor.draft, by a drafter model on the device. */
ek_err ek_gpu_draft(void *run, ek_draft *draft, int n);

#endif
