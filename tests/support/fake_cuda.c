#include "fake_cuda.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fake_cuda fake;

/* Dynamic shared memory that a kernel may use, by name: one per device for all that ask for the kernel. */
static int *shared_of(const char *name)
{
    for (int i = 0; i < FAKE_KERNELS; i++) {
        if (!fake.kernel[i].name[0]) snprintf(fake.kernel[i].name, sizeof fake.kernel[i].name, "%s", name);
        if (strcmp(fake.kernel[i].name, name) == 0) return &fake.kernel[i].shared[fake.current];
    }
    fail_msg("more than %d kernels", FAKE_KERNELS);
    return NULL;
}

static int thing;

/* Those of a device that failed are not given back by who took them: the next reset frees them. */
typedef struct block {
    struct block *next, **at;
    size_t bytes;
    uint8_t data[];
} block;
static block *taken;

static void *take(size_t bytes)
{
    block *b = calloc(1, sizeof *b + bytes);
    b->bytes = bytes;
    b->next = taken, b->at = &taken;
    if (taken) taken->at = &b->next;
    taken = b;
    return b->data;
}

/* Returns how many bytes it had. */
static size_t give_back(void *data)
{
    block *b = (block *)((uint8_t *)data - offsetof(block, data));
    const size_t bytes = b->bytes;
    *b->at = b->next;
    if (b->next) b->next->at = b->at;
    free(b);
    return bytes;
}

static char contexts[FAKE_DEVICES];

static bool is_down(void)
{
    return fake.down >> fake.current & 1;
}

static void go_down(void)
{
    fake.broken = true, fake.down |= 1u << fake.current;
}

static CUresult said(CUresult r)
{
    return is_down() ? 700 : r;
}

/* At the beginning of every function. */
static CUresult next_call(void)
{
    if (is_down() || ++fake.calls != fake.fail_call) return said(0);
    if (fake.fail_with == 700) go_down();
    return fake.fail_with;
}

static CUresult fake_cuInit(unsigned flags)
{
    CUresult failed = next_call();
    if (failed) return failed;
    (void)flags;
    return 0;
}
static CUresult fake_cuDriverGetVersion(int *version)
{
    CUresult failed = next_call();
    if (failed) return failed;
    *version = 13000;
    return 0;
}
static CUresult fake_cuDeviceGetCount(int *count)
{
    CUresult failed = next_call();
    if (failed) return failed;
    *count = fake.devices;
    return 0;
}
static CUresult fake_cuDeviceGet(CUdevice *device, int ordinal)
{
    CUresult failed = next_call();
    if (failed) return failed;
    *device = ordinal;
    return 0;
}
static CUresult fake_cuDeviceGetName(char *name, int room, CUdevice device)
{
    CUresult failed = next_call();
    if (failed) return failed;
    (void)device;
    snprintf(name, (size_t)room, "Fake H");
    return 0;
}
static CUresult fake_cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    CUresult failed = next_call();
    if (failed) return failed;
    (void)device;
    *value = attribute == EK_CU_ATTR_MAJOR ? 9 : attribute == EK_CU_ATTR_MINOR ? 0 : 4;
    return 0;
}
static CUresult fake_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    CUresult failed = next_call();
    if (failed) return failed;
    *context = (CUcontext)&contexts[device];
    return 0;
}
static CUresult fake_cuDevicePrimaryCtxRelease(CUdevice device)
{
    if (!is_down()) fake.calls++;
    (void)device;
    return 0;
}
static CUresult fake_cuCtxSetCurrent(CUcontext context)
{
    fake.current = context ? (int)((char *)context - contexts) : 0;
    CUresult failed = next_call();
    if (failed) return failed;
    return 0;
}
static CUresult fake_cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    CUresult failed = next_call();
    if (failed) return failed;
    assert_true(device != peer);
    *can = !fake.apart;
    return said(0);
}
static CUresult fake_cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    CUresult failed = next_call();
    if (failed) return failed;
    (void)flags;
    const int of = (int)((char *)peer - contexts);
    assert_true(of != fake.current && !fake.apart);
    if (fake.enable_error) return fake.enable_error;
    if (fake.reached[fake.current] >> of & 1) return said(EK_CU_ENABLED);
    fake.reached[fake.current] |= 1u << of;
    return said(0);
}
static CUresult fake_cuMemGetInfo(size_t *free, size_t *total)
{
    CUresult failed = next_call();
    if (failed) return failed;
    *free = fake.free - fake.used, *total = fake.free;
    return said(0);
}
static CUresult fake_cuMemAlloc(CUdeviceptr *p, size_t bytes)
{
    CUresult failed = next_call();
    if (failed) return failed;
    if (bytes > fake.free - fake.used) return said(EK_CU_OUT_OF_MEMORY);
    fake.used += bytes;
    fake.blocks++;
    *p = (CUdeviceptr)(uintptr_t)take(bytes);
    return said(0);
}
static CUresult fake_cuMemFree(CUdeviceptr p)
{
    if (!is_down()) fake.calls++;
    fake.used -= give_back((void *)(uintptr_t)p);
    fake.blocks--;
    return said(0);
}
static CUresult fake_cuMemHostAlloc(void **p, size_t bytes, unsigned flags)
{
    CUresult failed = next_call();
    if (failed) return failed;
    (void)flags;
    *p = take(bytes);
    fake.host_blocks++;
    return said(0);
}
static CUresult fake_cuMemFreeHost(void *p)
{
    if (!is_down()) fake.calls++;
    give_back(p);
    fake.host_blocks--;
    return said(0);
}
static CUresult fake_cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    CUresult failed = next_call();
    if (failed) return failed;
    (void)stream;
    memcpy((void *)(uintptr_t)to, from, bytes);
    return said(0);
}
static CUresult fake_cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    CUresult failed = next_call();
    if (failed) return failed;
    (void)stream;
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return said(0);
}
static CUresult fake_cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    CUresult failed = next_call();
    if (failed) return failed;
    (void)stream;
    memmove((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes);
    return said(0);
}
static CUresult fake_cuMemcpyPeerAsync(CUdeviceptr to, CUcontext at, CUdeviceptr from, CUcontext of, size_t bytes,
                                       CUstream stream)
{
    CUresult failed = next_call();
    if (failed) return failed;
    assert_true(at != of);
    (void)stream;
    memmove((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes);
    return said(0);
}
static CUresult fake_cuMemsetD8Async(CUdeviceptr p, unsigned char value, size_t n, CUstream stream)
{
    CUresult failed = next_call();
    if (failed) return failed;
    (void)stream;
    memset((void *)(uintptr_t)p, value, n);
    return said(0);
}
static CUresult fake_cuStreamCreate(CUstream *stream, unsigned flags)
{
    CUresult failed = next_call();
    if (failed) return failed;
    (void)flags;
    *stream = (CUstream)(contexts + fake.current);
    return 0;
}
static CUresult fake_cuStreamDestroy(CUstream stream)
{
    if (!is_down()) fake.calls++;
    (void)stream;
    return 0;
}
static CUresult fake_cuStreamSynchronize(CUstream stream)
{
    CUresult failed = next_call();
    if (failed) return failed;
    (void)stream;
    if (fake.sync == 700) go_down();
    return said(fake.sync);
}
static CUresult fake_cuModuleLoadData(CUmodule *module, const void *image)
{
    CUresult failed = next_call();
    if (failed) return failed;
    (void)image;
    *module = (CUmodule)&thing;
    return 0;
}
static CUresult fake_cuModuleUnload(CUmodule module)
{
    if (!is_down()) fake.calls++;
    (void)module;
    return 0;
}
static CUresult fake_cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    CUresult failed = next_call();
    if (failed) return failed;
    (void)module;
    *function = (CUfunction)(uintptr_t)name;
    return said(0);
}
static CUresult fake_cuFuncSetAttribute(CUfunction function, int attribute, int value)
{
    CUresult failed = next_call();
    if (failed) return failed;
    if (attribute == EK_CU_FUNC_SHARED) *shared_of((const char *)function) = value;
    return said(0);
}
static CUresult fake_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **args, void **extra)
{
    CUresult failed = next_call();
    if (failed) return failed;
    (void)args, (void)extra;
    assert_ptr_equal(config->hStream, contexts + fake.current); /* of the device that the thread is in */
    assert_true((int)config->sharedMemBytes <= *shared_of((const char *)f));
    assert_true(config->gridDimX >= 1 && config->gridDimY <= 65535 && config->blockDimX <= 1024);
    assert_true(config->sharedMemBytes <= 232448);
    if (++fake.launches == fake.fail_at) {
        if (fake.fail_with == 700) go_down();
        return fake.fail_with;
    }
    return said(0);
}
static CUresult fake_cuStreamBeginCapture(CUstream stream, int mode)
{
    CUresult failed = next_call();
    if (failed) return failed;
    (void)stream, (void)mode;
    return said(0);
}
static CUresult fake_cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    CUresult failed = next_call();
    if (failed) return failed;
    (void)stream;
    *graph = (CUgraph)&thing;
    fake.graphs++;
    return said(0);
}
static CUresult fake_cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    CUresult failed = next_call();
    if (failed) return failed;
    (void)graph, (void)flags;
    *exec = (CUgraphExec)&thing;
    fake.graphs++;
    return said(0);
}
static CUresult fake_cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    CUresult failed = next_call();
    if (failed) return failed;
    (void)exec;
    assert_ptr_equal(stream, contexts + fake.current);
    fake.graph_launches++;
    return said(0);
}
static CUresult fake_cuGraphDestroy(CUgraph graph)
{
    if (!is_down()) fake.calls++;
    (void)graph;
    fake.graphs--;
    return said(0);
}
static CUresult fake_cuGraphExecDestroy(CUgraphExec exec)
{
    if (!is_down()) fake.calls++;
    (void)exec;
    fake.graphs--;
    return said(0);
}
static CUresult fake_cuGetErrorName(CUresult error, const char **name)
{
    *name = error == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_X";
    return 0;
}
static CUresult fake_cuGetErrorString(CUresult error, const char **text)
{
    *text = error == 700 ? "an illegal memory access was encountered" : "something";
    return 0;
}
static CUresult fake_cuEventCreate(CUevent *event, unsigned flags)
{
    CUresult failed = next_call();
    if (failed) return failed;
    (void)flags;
    *event = (CUevent)&thing;
    fake.events++;
    return said(0);
}
static CUresult fake_cuEventDestroy(CUevent event)
{
    if (!is_down()) fake.calls++;
    (void)event;
    fake.events--;
    return said(0);
}
static CUresult fake_cuEventRecord(CUevent event, CUstream stream)
{
    CUresult failed = next_call();
    if (failed) return failed;
    (void)event, (void)stream;
    return said(0);
}
static CUresult fake_cuEventQuery(CUevent event)
{
    CUresult failed = next_call();
    if (failed) return failed;
    (void)event;
    if (fake.sync == 700) go_down();
    if (!fake.sync && ++fake.queries % 5 == 1) return EK_CU_NOT_READY;
    return said(fake.sync);
}
static CUresult fake_cuEventSynchronize(CUevent event)
{
    CUresult failed = next_call();
    if (failed) return failed;
    (void)event;
    if (fake.sync == 700) go_down();
    return said(fake.sync);
}
static CUresult fake_cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    CUresult failed = next_call();
    if (failed) return failed;
    (void)stream, (void)event, (void)flags;
    return said(0);
}
static CUresult fake_cuEventElapsedTime(float *ms, CUevent from, CUevent to)
{
    (void)ms, (void)from, (void)to;
    return 1;
}

void fake_cuda_reset(ek_cuda_api *api)
{
    for (block *next; taken; taken = next) {
        next = taken->next;
        free(taken);
    }
    memset(&fake, 0, sizeof fake);
    fake.free = (size_t)1 << 30;
    fake.devices = 1;
    *api = (ek_cuda_api){
#define CU(name, args) .name = fake_##name,
        EK_CUDA_FUNCTIONS(CU)
#undef CU
    };
}

void fake_cuda_is_empty(void)
{
    assert_int_equal(fake.blocks, 0);
    assert_int_equal(fake.host_blocks, 0);
    assert_int_equal(fake.graphs, 0);
    assert_int_equal(fake.events, 0);
    assert_true(fake.used == 0);
}
