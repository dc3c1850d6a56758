/* Memory of a device and host memory for it, copies, and events: everything in a device's stream besides kernels, and
 * the waits for it. On a broken device (cuda/driver.h) every call fails with the first sentence, and functions that
 * free do nothing. */
#ifndef EK_CUDA_MEMORY_H
#define EK_CUDA_MEMORY_H

#include "cuda/driver.h"

/* Device memory; what: its name in ENOMEM's sentence, which has both numbers. */
ek_err ek_cuda_alloc(ek_cuda *c, CUdeviceptr *out, size_t bytes, const char *what);
/* Maximum bytes of ek_cuda_alloc; SIZE_MAX: unlimited. */
size_t ek_cuda_max_block(const ek_cuda *c);
void ek_cuda_free(ek_cuda *c, CUdeviceptr p); /* 0 is allowed */
ek_err ek_cuda_room(ek_cuda *c, size_t *free, size_t *total);
/* Host memory from which copies need no staging. */
ek_err ek_cuda_alloc_host(ek_cuda *c, void **out, size_t bytes);
void ek_cuda_free_host(ek_cuda *c, void *p);

/* Queues the copy; the host memory must not change until the next sync. */
ek_err ek_cuda_upload(ek_cuda *c, CUdeviceptr to, const void *from, size_t bytes);
ek_err ek_cuda_download(ek_cuda *c, void *to, CUdeviceptr from, size_t bytes);
ek_err ek_cuda_fill(ek_cuda *c, CUdeviceptr p, int byte, size_t bytes);
/* Fills at once, beside the queue, which may be waiting for it. */
ek_err ek_cuda_fill_beside(ek_cuda *c, CUdeviceptr p, int byte, size_t bytes);
ek_err ek_cuda_copy(ek_cuda *c, CUdeviceptr to, CUdeviceptr from, size_t bytes); /* on the device */
/* Whether kernels and copies of c reach another device's memory, which this enables: once per pair and direction.
 * False, without an error, if the two cannot. */
ek_err ek_cuda_reach(ek_cuda *c, const ek_cuda *of, bool *reached);
/* From another device: directly through its memory if ek_cuda_reach succeeded, otherwise through the host's. */
ek_err ek_cuda_copy_from(ek_cuda *c, CUdeviceptr to, const ek_cuda *of, CUdeviceptr from, size_t bytes);
/* A point in the queue for which one can wait. close: NULL is allowed. */
ek_err ek_cuda_event_open(ek_cuda *c, CUevent *out);
void ek_cuda_event_close(ek_cuda *c, CUevent event);
ek_err ek_cuda_event_record(ek_cuda *c, CUevent event);
ek_err ek_cuda_event_wait(ek_cuda *c, CUevent event);
/* Whether everything queued before it has ended; the host does not wait. */
ek_err ek_cuda_event_there(ek_cuda *c, CUevent event, bool *there);
/* Makes later work in the queue wait for an event, of any device; the host does not wait. */
ek_err ek_cuda_follow(ek_cuda *c, CUevent event);
/* Waits for all queued work. An error of a kernel appears here; the sentence names the last queued one. */
ek_err ek_cuda_sync(ek_cuda *c);

#endif
