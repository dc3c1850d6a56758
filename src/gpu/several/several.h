/* A model over several CUDA devices, or over devices and the CPU, with one executor over all. Each device has whole
 * layers, or some outputs of every layer.
 *
 * By layers, a float row of hidden state per token is copied to the device of the next layer. Replies take turns: a
 * step is begun in microbatches before the previous step has ended, so that every device has a microbatch
 * (microbatches.c). By outputs, every device sends its part of a row to all others.
 *
 * No sum is divided, so bits, digests, pages on disk and the numerics id are those of one device. A page of keys and
 * values has one page number on all devices; each device keeps the part of its layers or heads. */
#ifndef EK_GPU_SEVERAL_H
#define EK_GPU_SEVERAL_H

#include "gpu/fit/fit.h"
#include "gpu/gpu.h"

typedef struct ek_ranks ek_ranks;

/* Opens the devices, places the layers of m so that `beside` has room too, logs the placement, and copies each device's
 * weights. ENOMEM comes before any memory is taken. A deferred model (ek_model_opts) is read device by device;
 * afterwards the CPU's layers, if there are any, are packed. A packed model stays unchanged. m is borrowed. Errors:
 * those of ek_gpu_open, with the device's number, and of ek_place_by. */
ek_err ek_ranks_open(ek_ranks **out, const ek_gpu_driver *driver, ek_model *m, const ek_fit_opts *o);
void ek_ranks_close(ek_ranks *r); /* NULL is allowed */

/* ek_place_text, and the first device's name */
const char *ek_ranks_text(const ek_ranks *r);
/* Whether the CPU has layers, or some layers' experts, whose weights stay in host memory. */
bool ek_ranks_has_host(const ek_ranks *r);
/* The first device, for towers; the device for a drafter (ek_gpu_add_drafter), whose draws go to the host. */
ek_gpu *ek_ranks_first(const ek_ranks *r);
ek_gpu *ek_ranks_drafting(const ek_ranks *r);

/* Whether a step of these sizes takes at most `part` of each device's remaining memory. Executors that are made later
 * then have room for it. */
bool ek_ranks_let_step(ek_ranks *r, const ek_executor_sizes *z, double part);

/* An executor for ek_engine_open_on; one open at a time, the engine's close frees it. After an error that a driver does
 * not recover from every step fails with that device's sentence. */
ek_executor ek_ranks_executor(ek_ranks *r);

#endif
