#include "cuda/memory.h"

#include "cuda/state.h"

static double gb(size_t bytes)
{
    return (double)bytes * 1e-9;
}

ek_err ek_cuda_room(ek_cuda *c, size_t *free, size_t *total)
{
    *free = *total = 0;
    return EK_CUDA_CALL(c, "asking for free memory", cuMemGetInfo, free, total);
}

ek_err ek_cuda_alloc(ek_cuda *c, CUdeviceptr *out, size_t bytes, const char *what)
{
    *out = 0;
    CUresult r = c->broken ? EK_CU_OK : c->f.cuMemAlloc(out, bytes);
    if (r != EK_CU_OUT_OF_MEMORY) return ek_cuda_check(c, r, "taking memory");
    size_t free = 0, total = 0;
    const size_t max = ek_cuda_max_block(c);
    if (bytes > max)
        return ek_fail(EK_ENOMEM, "%s:%d gives at most %.2f GB at once, %.2f GB for %s were asked for",
                       ek_cuda_maker(c), c->ordinal, gb(max), gb(bytes), what);
    c->f.cuMemGetInfo(&free, &total);
    return ek_fail(EK_ENOMEM, "%s:%d has no room for %s: %.2f GB asked for, %.2f of %.2f GB free", ek_cuda_maker(c),
                   c->ordinal, what, gb(bytes), gb(free), gb(total));
}

size_t ek_cuda_max_block(const ek_cuda *c)
{
    size_t bytes = SIZE_MAX;
    if (c->f.max_block && !c->broken && c->f.max_block(&bytes, c->device)) return SIZE_MAX;
    return bytes;
}

void ek_cuda_free(ek_cuda *c, CUdeviceptr p)
{
    if (p && !c->broken) c->f.cuMemFree(p);
}

ek_err ek_cuda_alloc_host(ek_cuda *c, void **out, size_t bytes)
{
    *out = NULL;
    return EK_CUDA_CALL(c, "taking pinned host memory", cuMemHostAlloc, out, bytes, 0);
}

void ek_cuda_free_host(ek_cuda *c, void *p)
{
    if (p && !c->broken) c->f.cuMemFreeHost(p);
}

ek_err ek_cuda_upload(ek_cuda *c, CUdeviceptr to, const void *from, size_t bytes)
{
    return EK_CUDA_CALL(c, "copying to the device", cuMemcpyHtoDAsync, to, from, bytes, c->stream);
}

ek_err ek_cuda_download(ek_cuda *c, void *to, CUdeviceptr from, size_t bytes)
{
    return EK_CUDA_CALL(c, "copying from the device", cuMemcpyDtoHAsync, to, from, bytes, c->stream);
}

ek_err ek_cuda_fill(ek_cuda *c, CUdeviceptr p, int byte, size_t bytes)
{
    return EK_CUDA_CALL(c, "filling memory", cuMemsetD8Async, p, (unsigned char)byte, bytes, c->stream);
}

static ek_err open_beside(ek_cuda *c)
{
    if (c->beside) return EK_OK;
    return EK_CUDA_CALL(c, "making a second stream", cuStreamCreate, &c->beside, EK_CU_STREAM_NON_BLOCKING);
}

ek_err ek_cuda_fill_beside(ek_cuda *c, CUdeviceptr p, int byte, size_t bytes)
{
    EK_TRY(open_beside(c));
    EK_TRY(EK_CUDA_CALL(c, "filling memory", cuMemsetD8Async, p, (unsigned char)byte, bytes, c->beside));
    return EK_CUDA_CALL(c, "filling memory", cuStreamSynchronize, c->beside);
}

ek_err ek_cuda_copy(ek_cuda *c, CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return EK_CUDA_CALL(c, "copying on the device", cuMemcpyDtoDAsync, to, from, bytes, c->stream);
}

ek_err ek_cuda_reach(ek_cuda *c, const ek_cuda *of, bool *reached)
{
    static const char doing[] = "reaching another device's memory";
    int can = 0;
    *reached = false;
    EK_TRY(ek_cuda_enter(c));
    EK_TRY(EK_CUDA_CALL(c, doing, cuDeviceCanAccessPeer, &can, c->device, of->device));
    if (!can) return EK_OK;
    const CUresult r = c->broken ? EK_CU_OK : c->f.cuCtxEnablePeerAccess(of->context, 0);
    if (r == EK_CU_TOO_MANY_PEERS || r == EK_CU_NO_PEER)
        return EK_OK; /* without direct access copies go through the host */
    EK_TRY(ek_cuda_check(c, r == EK_CU_ENABLED ? EK_CU_OK : r, doing));
    *reached = true;
    return EK_OK;
}

ek_err ek_cuda_copy_from(ek_cuda *c, CUdeviceptr to, const ek_cuda *of, CUdeviceptr from, size_t bytes)
{
    return EK_CUDA_CALL(c, "copying from another device", cuMemcpyPeerAsync, to, c->context, from, of->context, bytes,
                        c->stream);
}

ek_err ek_cuda_event_open(ek_cuda *c, CUevent *out)
{
    *out = NULL;
    return EK_CUDA_CALL(c, "making an event", cuEventCreate, out, EK_CU_EVENT_NO_TIMING);
}

void ek_cuda_event_close(ek_cuda *c, CUevent event)
{
    if (event && !c->broken) c->f.cuEventDestroy(event);
}

ek_err ek_cuda_event_record(ek_cuda *c, CUevent event)
{
    return EK_CUDA_CALL(c, "queueing an event", cuEventRecord, event, c->stream);
}

ek_err ek_cuda_event_wait(ek_cuda *c, CUevent event)
{
    return EK_CUDA_CALL(c, "waiting for the device", cuEventSynchronize, event);
}

ek_err ek_cuda_event_there(ek_cuda *c, CUevent event, bool *there)
{
    const CUresult r = c->broken ? EK_CU_OK : c->f.cuEventQuery(event);
    *there = r == EK_CU_OK;
    return ek_cuda_check(c, r == EK_CU_NOT_READY ? EK_CU_OK : r, "waiting for the device");
}

ek_err ek_cuda_follow(ek_cuda *c, CUevent event)
{
    return EK_CUDA_CALL(c, "queueing a wait", cuStreamWaitEvent, c->stream, event, 0);
}

ek_err ek_cuda_sync(ek_cuda *c)
{
    return EK_CUDA_CALL(c, "waiting for the device", cuStreamSynchronize, c->stream);
}
