/* A model on a CUDA device: its weights copied there, and executors that compute the engine's steps with the CPU's
 * bits (docs/CUDA.md).
 *
 * Steps run on the thread that calls them, one at a time; a ek_gpu outlives its executors and has one of them open at a
 * time. After an error that the driver does not recover from, every step fails with the same sentence. */
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
    int features; /* of another compute capability, to which devices keep; 0: their own (ek_cuda_open_as) */
    /* what is asked of a device that is not CUDA's before it gets a model's weights; NULL: nothing */
    ek_err (*prove)(ek_gpu *g, const ek_model *m);
    void (*tune)(ek_cuda *c); /* what is done with a device that was opened, in front of its weights; NULL: nothing */
} ek_gpu_driver;

/* libcuda.so.1 and the kernels in this program. EUNSUPPORTED: no driver. */
ek_err ek_gpu_driver_load(ek_gpu_driver *out);
/* libvulkan.so.1 and the shaders in this program, behind the same table (vulkan/vulkan.h). */
ek_err ek_gpu_driver_load_vulkan(ek_gpu_driver *out);

/* Opens device `ordinal` and copies the weights of m, which is borrowed. Logs what the weights take before it is taken;
 * ENOMEM has the numbers. EUNSUPPORTED: a driver, device, format or size that the kernels do not support. */
ek_err ek_gpu_open(ek_gpu **out, const ek_gpu_driver *driver, ek_model *m, int ordinal);
/* The same in two halves: a device without a model, which is enough for towers (gpu/tower/towers.h), and the weights of
 * a share of m, for a device of several (gpu/several/several.h), with `cut` of all layers its outputs alone. They are
 * packed, or read on the way (ek_gpu_upload). Errors of the driver and the device. */
ek_err ek_gpu_open_device(ek_gpu **out, const ek_gpu_driver *driver, int ordinal);
ek_err ek_gpu_load(ek_gpu *g, ek_model *m, const ek_model_share *share, ek_gpu_shard shard);
void ek_gpu_close(ek_gpu *g); /* NULL is allowed */

/* Copies d, a drafter for the model of g, to g's device: executors of g draft by it from then on. Once. d is borrowed
 * as the model is, and like it may be deferred; its packed weights may be released behind it. Without effect where it
 * fails. With a cut it is whole on g, which reads the keys of all devices where they are. */
ek_err ek_gpu_add_drafter(ek_gpu *g, const ek_drafter *d);

const char *ek_gpu_text(const ek_gpu *g); /* ek_cuda_text */

/* An executor for ek_engine_open_on; the engine's close frees it. */
ek_executor ek_gpu_executor(ek_gpu *g);

/* Bytes that are free on the device, and those that the weights take, a drafter's too; 0 after an error. */
double ek_gpu_room(ek_gpu *g);
double ek_gpu_bytes(const ek_gpu *g);

/* Of what an executor of g may still take of the device the part that a step of these sizes does, a drafter's too. */
double ek_gpu_step_part(ek_gpu *g, const ek_executor_sizes *z);

/* For an executor of g whose begin succeeded, of a step that others could not begin: it is as if it had not been begun.
 * Waits for the device. */
void ek_gpu_forget(const ek_executor *x);

/* Bytes per second at which the device reads its memory, measured now; 0 after an error. */
double ek_gpu_read_rate(ek_gpu *g);

/* Times of the families of products, measured on a card for which none are built in (cuda/chip.h). They decide which
 * of two kernels computes a product, and no bit. */

/* How many times as long each family takes as the chip's times say, the geometric mean over some products of published
 * models' shapes; 1 where none of them could be timed. Takes 0.1 s on an H100, and some 150 MB of the device while it
 * lasts. EUNSUPPORTED: the device has no clock (an emulated one); ENOMEM; else an error of the driver. */
ek_err ek_gpu_tune(double factor[EK_CUDA_FAMILIES], ek_cuda *c);

/* A run of an executor on one device: pages, a step's buffers on the device, and what it fills and reads on the host.
 */

/* ek_executor.open and close. */
ek_err ek_gpu_run_open(void *run, const ek_executor_sizes *z);
void ek_gpu_run_close(void *run);

/* ek_executor.draft: by a drafter model on the device. */
ek_err ek_gpu_draft(void *run, ek_draft *draft, int n);

#endif
