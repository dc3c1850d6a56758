/* The CUDA driver's functions (cuda/api.h) for Vulkan devices. Streams, events and graphs are those of this folder; a
 * context is a device. Results are CUDA's numbers if one fits; otherwise a VkResult r becomes 2000 - r. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cuda/chip.h"
#include "vulkan/state.h"
#include "vulkan/vulkan.h"

enum { OTHER = 2000, MULTIPROCESSORS = 16 };

static _Thread_local ek_vulkan *current;
static const ek_vulkan_loader *loader;
static ek_vulkan *opened[16];

static CUresult result(VkResult r)
{
    switch (r) {
    case VK_SUCCESS: return EK_CU_OK;
    case VK_ERROR_OUT_OF_HOST_MEMORY:
    case VK_ERROR_TOO_MANY_OBJECTS:
    case VK_ERROR_OUT_OF_DEVICE_MEMORY: return EK_CU_OUT_OF_MEMORY;
    case VK_ERROR_DEVICE_LOST: return EK_CU_UNKNOWN; /* after this nothing succeeds */
    default: return OTHER - (int)r;
    }
}

/* --- devices */

static CUresult api_cuInit(unsigned flags)
{
    (void)flags;
    return ek_vulkan_open_loader(&loader) ? EK_CU_NO_DEVICE : EK_CU_OK;
}

static CUresult api_cuDriverGetVersion(int *version)
{
    *version = EK_VULKAN_VERSION;
    return EK_CU_OK;
}

static CUresult api_cuDeviceGetCount(int *count)
{
    *count = loader->n;
    return EK_CU_OK;
}

static CUresult api_cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return EK_CU_OK;
}

static CUresult api_cuDeviceGetName(char *name, int room, CUdevice device)
{
    ek_vulkan_name(loader, device, name, (size_t)room);
    return EK_CU_OK;
}

static CUresult api_cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    const bool matrices = ek_vulkan_has_matrices(loader, loader->device[device]);
    const int plain = matrices ? EK_CUDA_PLAIN_MATRICES : EK_CUDA_PLAIN;
    *value = attribute == EK_CU_ATTR_MAJOR ? plain / 10 : attribute == EK_CU_ATTR_MINOR ? plain % 10 : MULTIPROCESSORS;
    return EK_CU_OK;
}

static CUresult api_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    if (!opened[device]) {
        const VkResult r = ek_vulkan_open(&opened[device], loader, device);
        if (r != VK_SUCCESS) return result(r);
    }
    opened[device]->users++;
    *context = (CUcontext)opened[device];
    return EK_CU_OK;
}

static CUresult api_cuDevicePrimaryCtxRelease(CUdevice device)
{
    ek_vulkan *v = opened[device];
    if (--v->users) return EK_CU_OK;
    if (current == v) current = NULL;
    opened[device] = NULL;
    ek_vulkan_close(v);
    return EK_CU_OK;
}

static CUresult api_cuCtxSetCurrent(CUcontext context)
{
    current = (ek_vulkan *)context;
    return EK_CU_OK;
}

static CUresult api_cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    (void)device, (void)peer;
    *can = 0;
    return EK_CU_OK;
}

static CUresult api_cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    (void)peer, (void)flags;
    return EK_CU_NO_PEER;
}

/* --- memory */

static CUresult api_cuMemGetInfo(size_t *free, size_t *total)
{
    ek_vulkan_room(current, free, total);
    return EK_CU_OK;
}

static CUresult max_block(size_t *bytes, CUdevice device)
{
    *bytes = ek_vulkan_max_block(opened[device]);
    return EK_CU_OK;
}

static CUresult api_cuMemAlloc(CUdeviceptr *p, size_t bytes)
{
    ek_vulkan *v = current;
    ek_vulkan_block b;
    const VkResult r = ek_vulkan_take(v, &b, bytes, EK_VULKAN_DEVICE);
    if (r != VK_SUCCESS) return result(r);
    if (v->n_blocks == v->max_blocks) {
        v->max_blocks = v->max_blocks ? 2 * v->max_blocks : 32;
        v->block = ek_realloc(v->block, sizeof *v->block * (size_t)v->max_blocks);
    }
    int at = v->n_blocks++;
    for (; at > 0 && v->block[at - 1].at > b.at; at--) v->block[at] = v->block[at - 1];
    v->block[at] = b;
    *p = b.at;
    return EK_CU_OK;
}

static CUresult api_cuMemFree(CUdeviceptr p)
{
    ek_vulkan *v = current;
    ek_vulkan_block *b = (ek_vulkan_block *)ek_vulkan_block_at(v, p, 0);
    if (!b || b->at != p) return result(VK_ERROR_UNKNOWN);
    const VkResult r = ek_vulkan_wait_all(v);
    ek_vulkan_give(v, b);
    memmove(b, b + 1, sizeof *b * (size_t)(v->block + --v->n_blocks - b));
    return result(r);
}

static CUresult api_cuMemHostAlloc(void **p, size_t bytes, unsigned flags)
{
    ek_vulkan *v = current;
    (void)flags;
    ek_vulkan_block *b = ek_alloc(sizeof *b);
    const VkResult r = ek_vulkan_take(v, b, bytes, EK_VULKAN_HOST);
    if (r != VK_SUCCESS) {
        free(b);
        return result(r);
    }
    if (v->n_host == v->max_host) {
        v->max_host = v->max_host ? 2 * v->max_host : 16;
        v->host = ek_realloc(v->host, sizeof *v->host * (size_t)v->max_host);
    }
    v->host[v->n_host++] = b;
    *p = b->map;
    return EK_CU_OK;
}

static CUresult api_cuMemFreeHost(void *p)
{
    ek_vulkan *v = current;
    for (int i = 0; i < v->n_host; i++) {
        if (v->host[i]->map != p) continue;
        const VkResult r = ek_vulkan_wait_all(v);
        ek_vulkan_give(v, v->host[i]);
        free(v->host[i]);
        v->host[i] = v->host[--v->n_host];
        return result(r);
    }
    return result(VK_ERROR_UNKNOWN);
}

static CUresult api_cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    return result(ek_vulkan_upload(stream, to, from, bytes));
}

static CUresult api_cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return result(ek_vulkan_download(stream, to, from, bytes));
}

static CUresult api_cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return result(ek_vulkan_copy(stream, to, from, bytes));
}

/* Devices do not reach each other's memory: the bytes go through the host, which waits. */
static CUresult api_cuMemcpyPeerAsync(CUdeviceptr to, CUcontext at, CUdeviceptr from, CUcontext of, size_t bytes,
                                      CUstream stream)
{
    ek_vulkan *source = (ek_vulkan *)of;
    if (at == of) return result(ek_vulkan_copy(stream, to, from, bytes));
    uint8_t *const host = ek_alloc(bytes ? bytes : 1);
    VkResult r = source->streams ? ek_vulkan_download(source->streams, host, from, bytes) : VK_ERROR_UNKNOWN;
    if (r == VK_SUCCESS) r = ek_vulkan_wait_all(source);
    if (r == VK_SUCCESS) r = ek_vulkan_upload(stream, to, host, bytes); /* staged at once */
    free(host);
    return result(r);
}

static CUresult api_cuMemsetD8Async(CUdeviceptr p, unsigned char value, size_t n, CUstream stream)
{
    return result(ek_vulkan_fill(stream, p, value, n));
}

/* --- streams and events */

static CUresult api_cuStreamCreate(CUstream *stream, unsigned flags)
{
    (void)flags;
    CUstream s = ek_alloc(sizeof *s), *last = &current->streams;
    s->of = current;
    while (*last) last = &(*last)->next;
    *last = s;
    *stream = s;
    return EK_CU_OK;
}

static CUresult api_cuStreamSynchronize(CUstream stream)
{
    VkResult r = ek_vulkan_flush(stream);
    if (r == VK_SUCCESS) r = ek_vulkan_wait(stream, stream->value);
    return result(r);
}

static CUresult api_cuStreamDestroy(CUstream stream)
{
    const CUresult r = api_cuStreamSynchronize(stream);
    ek_vulkan_close_stream(stream);
    return r;
}

static CUresult api_cuEventCreate(CUevent *event, unsigned flags)
{
    (void)flags;
    *event = ek_alloc(sizeof **event);
    return EK_CU_OK;
}

static CUresult api_cuEventDestroy(CUevent event)
{
    free(event);
    return EK_CU_OK;
}

static CUresult api_cuEventRecord(CUevent event, CUstream stream)
{
    const VkResult r = ek_vulkan_flush(stream);
    event->of = stream, event->value = stream->value;
    return result(r);
}

static CUresult api_cuEventQuery(CUevent event)
{
    bool done = true;
    const VkResult r = event->of ? ek_vulkan_is_done(event->of, event->value, &done) : VK_SUCCESS;
    return r != VK_SUCCESS ? result(r) : done ? EK_CU_OK : EK_CU_NOT_READY;
}

static CUresult api_cuEventSynchronize(CUevent event)
{
    return event->of ? result(ek_vulkan_wait(event->of, event->value)) : EK_CU_OK;
}

/* A device runs submissions in order; for another device's event the host waits. */
static CUresult api_cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    (void)flags;
    return !event->of || event->of->of == stream->of ? EK_CU_OK : api_cuEventSynchronize(event);
}

/* There is no clock, so kernels are not timed. */
static CUresult api_cuEventElapsedTime(float *ms, CUevent from, CUevent to)
{
    (void)from, (void)to;
    *ms = 0;
    return EK_CU_OK;
}

/* --- kernels and graphs */

static CUresult api_cuModuleLoadData(CUmodule *module, const void *image)
{
    *module = (CUmodule)(uintptr_t)image;
    return EK_CU_OK;
}

static CUresult api_cuModuleUnload(CUmodule module)
{
    (void)module;
    return EK_CU_OK;
}

static CUresult api_cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    (void)module;
    const VkResult r = ek_vulkan_find(current, function, name);
    return r != VK_SUCCESS ? result(r) : *function ? EK_CU_OK : EK_CU_NOT_FOUND;
}

static CUresult api_cuFuncSetAttribute(CUfunction function, int attribute, int value)
{
    (void)function, (void)attribute, (void)value;
    return EK_CU_OK;
}

static CUresult api_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **args, void **extra)
{
    (void)extra;
    const uint32_t grid[] = {config->gridDimX, config->gridDimY, config->gridDimZ};
    return result(ek_vulkan_launch(config->hStream, f, grid, args[0]));
}

static CUresult api_cuStreamBeginCapture(CUstream stream, int mode)
{
    (void)mode;
    return result(ek_vulkan_begin_graph(stream));
}

static CUresult api_cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    return result(ek_vulkan_end_graph(stream, graph));
}

static CUresult api_cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    (void)flags;
    graph->users++;
    *exec = (CUgraphExec)graph;
    return EK_CU_OK;
}

static CUresult api_cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    return result(ek_vulkan_launch_graph(stream, (CUgraph)exec));
}

static CUresult api_cuGraphDestroy(CUgraph graph)
{
    ek_vulkan_drop_graph(graph, current);
    return EK_CU_OK;
}

static CUresult api_cuGraphExecDestroy(CUgraphExec exec)
{
    ek_vulkan_drop_graph((CUgraph)exec, current);
    return EK_CU_OK;
}

/* --- words */

static CUresult api_cuGetErrorName(CUresult error, const char **name)
{
    *name = error == EK_CU_OUT_OF_MEMORY ? "VK_ERROR_OUT_OF_DEVICE_MEMORY"
            : error == EK_CU_UNKNOWN     ? "VK_ERROR_DEVICE_LOST"
                                         : "VkResult";
    return EK_CU_OK;
}

static CUresult api_cuGetErrorString(CUresult error, const char **text)
{
    static const struct {
        CUresult r;
        const char *text;
    } all[] = {{EK_CU_OUT_OF_MEMORY, "the memory does not suffice, or is not given in one block"},
               {EK_CU_UNKNOWN, "the device is lost"},
               {OTHER - VK_ERROR_FEATURE_NOT_PRESENT, "the device lacks what this needs"},
               {OTHER - VK_ERROR_INITIALIZATION_FAILED, "the driver does not start"},
               {OTHER - VK_ERROR_VALIDATION_FAILED_EXT, "a grid of more workgroups than the device takes"},
               {OTHER - VK_ERROR_UNKNOWN, "an unknown error of the driver, or an address that no block of memory has"}};
    *text = "the driver refused";
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].r == error) *text = all[i].text;
    return EK_CU_OK;
}

const ek_cuda_module ek_vulkan_modules[] = {{.name = "shaders", .fatbin = "shaders", .bytes = 8}, {0}};

ek_err ek_vulkan_load(ek_cuda_api *api)
{
    EK_TRY(ek_vulkan_open_loader(&loader));
    *api = (ek_cuda_api){.maker = "vulkan",
                         .check = ek_vulkan_check_device,
                         .max_block = max_block,
#define CU(name, args) .name = api_##name,
                         EK_CUDA_FUNCTIONS(CU)
#undef CU
    };
    return EK_OK;
}
