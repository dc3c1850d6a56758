/* Memory of a device and of the host beside it, copies, and events: what goes into a device's stream besides kernels,
 * and who waits for it. On a broken device (cuda/driver.h) every call fails with the first sentence, and what gives
 * back does nothing. */
#ifndef EK_CUDA_MEMORY_H
#define EK_CUDA_MEMORY_H

#include "cuda/driver.h"

/* Device memory; what names it in the sentence of ENOMEM, which has both numbers. */
ek_err ek_cuda_alloc(ek_cuda *c, CUdeviceptr *out, size_t bytes, const char *what);
/* Bytes that ek_cuda_alloc takes at most; SIZE_MAX: any number. */
size_t ek_cuda_max_block(const ek_cuda *c);
void ek_cuda_free(ek_cuda *c, CUdeviceptr p); /* 0 is allowed */
ek_err ek_cuda_room(ek_cuda *c, size_t *free, size_t *total);
/* Host memory that copies need not stage. */
ek_err ek_cuda_alloc_host(ek_cuda *c, void **out, size_t bytes);
void ek_cuda_free_host(ek_cuda *c, void *p);

/* Queued; host memory must stay as it is until the next sync. */
ek_err ek_cuda_upload(ek_cuda *c, CUdeviceptr to, const void *from, size_t bytes);
ek_err ek_cuda_download(ek_cuda *c, void *to, CUdeviceptr from, size_t bytes);
ek_err ek_cuda_fill(ek_cuda *c, CUdeviceptr p, int byte, size_t bytes);
/* The same at once, beside what is queued, which may be waiting for it. */
ek_err ek_cuda_fill_beside(ek_cuda *c, CUdeviceptr p, int byte, size_t bytes);
ek_err ek_cuda_copy(ek_cuda *c, CUdeviceptr to, CUdeviceptr from, size_t bytes); /* on the device */
/* Whether kernels and copies of c reach the memory of another device, which this enables: once for a pair, in each
 * direction. False, and no error, where the two cannot. */
ek_err ek_cuda_reach(ek_cuda *c, const ek_cuda *of, bool *reached);
/* From another device: through peers' memory where that was reached, else by way of the host's. */
ek_err ek_cuda_copy_from(ek_cuda *c, CUdeviceptr to, const ek_cuda *of, CUdeviceptr from, size_t bytes);
/* A place in what is queued, which can be waited for alone. close: NULL is fine. */
ek_err ek_cuda_event_open(ek_cuda *c, CUevent *out);
void ek_cuda_event_close(ek_cuda *c, CUevent event);
ek_err ek_cuda_event_record(ek_cuda *c, CUevent event);
ek_err ek_cuda_event_wait(ek_cuda *c, CUevent event);
/* Whether what was queued in front of it has ended; the host does not wait. */
ek_err ek_cuda_event_there(ek_cuda *c, CUevent event, bool *there);
/* What is queued from here on waits for an event, of any device; the host does not. */
ek_err ek_cuda_follow(ek_cuda *c, CUevent event);
/* Waits for all that was queued. An error of a kernel shows here; the sentence names the last one queued. */
ek_err ek_cuda_sync(ek_cuda *c);

#endif
