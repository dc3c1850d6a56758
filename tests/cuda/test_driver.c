/* cuda/driver.c and memory.c on a driver made of host functions: every failure is one clear line, memory and kernels
 * are given back, and a broken device refuses everything. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "cuda/memory.h"

/* --- the driver; every test starts from a good one */

static struct {
    CUresult init, load, launch, sync, count_result;
    int version, count, major, minor;
    size_t free, total;
    int contexts, streams, modules, blocks, host_blocks, calls; /* live objects; calls that reach the device */
    CUlaunchConfig config;
    float arg;
    int shared, attribute_id;
    unsigned cluster;
    uint8_t memory[64];
} fake;

static int thing;

static CUresult fake_cuInit(unsigned flags)
{
    assert_int_equal(flags, 0);
    return fake.init;
}
static CUresult fake_cuDriverGetVersion(int *version)
{
    *version = fake.version;
    return 0;
}
static CUresult fake_cuDeviceGetCount(int *count)
{
    *count = fake.count;
    return fake.count_result;
}
static CUresult fake_cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = 40 + ordinal;
    return 0;
}
static CUresult fake_cuDeviceGetName(char *name, int room, CUdevice device)
{
    assert_int_equal(device, 41);
    strncpy(name, "Fake H", (size_t)room);
    return 0;
}
static CUresult fake_cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    (void)device;
    *value = attribute == EK_CU_ATTR_MAJOR ? fake.major : attribute == EK_CU_ATTR_MINOR ? fake.minor : 132;
    return 0;
}
static CUresult fake_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    (void)device;
    fake.contexts++;
    *context = (CUcontext)&thing;
    return 0;
}
static CUresult fake_cuDevicePrimaryCtxRelease(CUdevice device)
{
    (void)device;
    fake.contexts--;
    return 0;
}
static CUresult fake_cuCtxSetCurrent(CUcontext context)
{
    (void)context;
    return 0;
}
static CUresult fake_cuMemGetInfo(size_t *free, size_t *total)
{
    *free = fake.free, *total = fake.total;
    return 0;
}
static CUresult fake_cuMemAlloc(CUdeviceptr *p, size_t bytes)
{
    fake.calls++;
    if (bytes > fake.free) return EK_CU_OUT_OF_MEMORY;
    fake.blocks++;
    *p = (CUdeviceptr)(uintptr_t)fake.memory;
    return 0;
}
static CUresult fake_cuMemFree(CUdeviceptr p)
{
    assert_true(p == (CUdeviceptr)(uintptr_t)fake.memory);
    fake.blocks--;
    return 0;
}
static CUresult fake_cuMemHostAlloc(void **p, size_t bytes, unsigned flags)
{
    (void)flags;
    fake.host_blocks++;
    *p = malloc(bytes);
    return 0;
}
static CUresult fake_cuMemFreeHost(void *p)
{
    fake.host_blocks--;
    free(p);
    return 0;
}
static CUresult fake_cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    assert_ptr_equal(stream, &thing);
    fake.calls++;
    memcpy((void *)(uintptr_t)to, from, bytes);
    return 0;
}
static CUresult fake_cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    assert_ptr_equal(stream, &thing);
    fake.calls++;
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return 0;
}
static CUresult fake_cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    assert_ptr_equal(stream, &thing);
    fake.calls++;
    memmove((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes);
    return 0;
}
static CUresult fake_cuMemsetD8Async(CUdeviceptr p, unsigned char value, size_t n, CUstream stream)
{
    assert_ptr_equal(stream, &thing);
    fake.calls++;
    memset((void *)(uintptr_t)p, value, n);
    return 0;
}
static CUresult fake_cuStreamCreate(CUstream *stream, unsigned flags)
{
    assert_int_equal(flags, EK_CU_STREAM_NON_BLOCKING);
    fake.streams++;
    *stream = (CUstream)&thing;
    return 0;
}
static CUresult fake_cuStreamDestroy(CUstream stream)
{
    (void)stream;
    fake.streams--;
    return 0;
}
static CUresult fake_cuStreamSynchronize(CUstream stream)
{
    assert_ptr_equal(stream, &thing);
    fake.calls++;
    return fake.sync;
}
static CUresult fake_cuModuleLoadData(CUmodule *module, const void *image)
{
    if (fake.load) return fake.load;
    fake.modules++;
    *module = (CUmodule)(uintptr_t)image;
    return 0;
}
static CUresult fake_cuModuleUnload(CUmodule module)
{
    (void)module;
    fake.modules--;
    return 0;
}
static CUresult fake_cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    if (strcmp((const char *)module, name) != 0) return 500;
    *function = (CUfunction)(uintptr_t)name;
    return 0;
}
static CUresult fake_cuFuncSetAttribute(CUfunction function, int attribute, int value)
{
    (void)function;
    fake.attribute_id = attribute, fake.shared = value;
    return 0;
}
static CUresult fake_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **args, void **extra)
{
    assert_non_null(f);
    assert_null(extra);
    fake.calls++;
    fake.config = *config;
    if (config->numAttrs) assert_int_equal(config->attrs->id, EK_CU_LAUNCH_OVERLAP);
    fake.cluster = 0;
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == EK_CU_LAUNCH_CLUSTER) fake.cluster = config->attrs[i].value.clusterDim.x;
    memcpy(&fake.arg, args[0], sizeof fake.arg);
    return fake.launch;
}
static CUresult fake_cuGetErrorName(CUresult error, const char **name)
{
    if (error == 12345) return 1;
    *name = error == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_X";
    return 0;
}
static CUresult fake_cuGetErrorString(CUresult error, const char **text)
{
    if (error == 12345) return 1;
    *text = error == 700 ? "an illegal memory access was encountered" : "something";
    return 0;
}

static ek_cuda_api good(void)
{
    memset(&fake, 0, sizeof fake);
    fake.version = 13000, fake.count = 2, fake.major = 9, fake.free = 3500000000u, fake.total = 80000000000u;
    return (ek_cuda_api){
#define F(name) .name = fake_##name
        F(cuInit),
        F(cuDriverGetVersion),
        F(cuDeviceGetCount),
        F(cuDeviceGet),
        F(cuDeviceGetName),
        F(cuDeviceGetAttribute),
        F(cuDevicePrimaryCtxRetain),
        F(cuDevicePrimaryCtxRelease),
        F(cuCtxSetCurrent),
        F(cuMemGetInfo),
        F(cuMemAlloc),
        F(cuMemFree),
        F(cuMemHostAlloc),
        F(cuMemFreeHost),
        F(cuMemcpyHtoDAsync),
        F(cuMemcpyDtoHAsync),
        F(cuMemcpyDtoDAsync),
        F(cuMemsetD8Async),
        F(cuStreamCreate),
        F(cuStreamDestroy),
        F(cuStreamSynchronize),
        F(cuModuleLoadData),
        F(cuModuleUnload),
        F(cuModuleGetFunction),
        F(cuFuncSetAttribute),
        F(cuLaunchKernelEx),
        F(cuGetErrorName),
        F(cuGetErrorString)
#undef F
    };
}

static const ek_cuda_module modules[] = {{"one", "kernel_a", 8, 90, 90}, {"two", "kernel_b", 8, 90, 90}, {0}};

static ek_cuda *opened(void)
{
    ek_cuda_api api = good();
    ek_cuda *c;
    assert_int_equal(ek_cuda_open(&c, &api, modules, 13000, 1, 0), EK_OK);
    return c;
}

static void nothing_is_left(void)
{
    assert_int_equal(fake.contexts, 0);
    assert_int_equal(fake.streams, 0);
    assert_int_equal(fake.modules, 0);
}

/* Opening fails with err and this sentence, and leaves nothing behind. */
static void refuses(const ek_cuda_api *api, int built_with, int ordinal, ek_err err, const char *text)
{
    ek_cuda *c = (ek_cuda *)&thing;
    assert_int_equal(ek_cuda_open(&c, api, modules, built_with, ordinal, 0), err);
    assert_string_equal(ek_err_text(), text);
    assert_ptr_equal(c, &thing);
    nothing_is_left();
}

/* --- */

static void no_driver_is_said(void **state)
{
    (void)state;
    ek_cuda_api api;
    assert_int_equal(ek_cuda_load(&api, "libcuda-that-nobody-has.so.1"), EK_ENOTFOUND);
    assert_non_null(strstr(ek_err_text(), "no NVIDIA driver: there is no libcuda-that-nobody-has.so.1"));
    assert_int_equal(ek_cuda_load(&api, "libm.so.6"), EK_EUNSUPPORTED);
    assert_string_equal(ek_err_text(), "the CUDA driver (libm.so.6) is too old: it lacks cuGetProcAddress_v2");
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    ek_cuda_api api = good();
    fake.init = EK_CU_NO_DEVICE;
    refuses(&api, 13000, 1, EK_EUNSUPPORTED, "the CUDA driver finds no device");
    fake.init = EK_CU_MISMATCH;
    refuses(&api, 13000, 1, EK_EUNSUPPORTED, "the CUDA driver does not start: something (CUDA_ERROR_X, 803)");
    fake.init = 12345;
    refuses(&api, 13000, 1, EK_EUNSUPPORTED, "the CUDA driver does not start: no description (unknown error, 12345)");
    fake.init = 0;
    refuses(&api, 0, 1, EK_EUNSUPPORTED, "this program was built without CUDA kernels (no nvcc)");
    fake.version = 12080;
    refuses(&api, 13000, 1, EK_EUNSUPPORTED, "the CUDA driver is too old: it is 12.8, the kernels need 13.0");
    fake.version = 13010;
    fake.count = 0;
    refuses(&api, 13000, 1, EK_EUNSUPPORTED, "the CUDA driver finds no device");
    fake.count = 2;
    refuses(&api, 13000, 2, EK_ENOTFOUND, "there is no device cuda:2, the driver has 2 (from cuda:0)");
    fake.major = 8, fake.minor = 6;
    refuses(&api, 13000, 1, EK_EUNSUPPORTED,
            "cuda:1 (Fake H) has compute capability 8.6, the kernels in this program are for 9.0 (make "
            "CUDA_ARCHS=all builds all that there are, docs/CUDA.md)");
    fake.major = 9, fake.minor = 0;
    fake.load = EK_CU_NO_BINARY;
    refuses(&api, 13000, 1, EK_EINTERNAL, "cuda:1: loading the kernels of one: something (CUDA_ERROR_X, 209)");
    fake.load = EK_CU_OUT_OF_MEMORY;
    refuses(&api, 13000, 1, EK_ENOMEM, "cuda:1: loading the kernels of one: something (CUDA_ERROR_X, 2)");
}

static CUresult long_name(char *name, int room, CUdevice device)
{
    (void)device;
    memset(name, 'x', (size_t)room - 1), name[room - 1] = '\0';
    memcpy(name + 143, ", 1", 4);
    return 0;
}

/* A maker of devices that are not CUDA's speaks of its own, and a name has room for a driver's version behind it. */
static void another_makers_devices_have_its_words(void **state)
{
    (void)state;
    static const ek_cuda_module plain[] = {{"one", "kernel_a", 8, 0, 0}, {0}};
    ek_cuda_api api = good();
    ek_cuda *c;
    api.maker = "vulkan";
    fake.count = 0;
    refuses(&api, 13000, 0, EK_ENOTFOUND, "there is no device vulkan:0, the driver has 0 (from vulkan:0)");
    fake.count = 2, fake.major = 0, fake.minor = EK_CUDA_PLAIN;
    api.cuDeviceGetName = long_name;
    assert_int_equal(ek_cuda_open(&c, &api, plain, 13000, 1, 0), EK_OK);
    assert_int_equal(strlen(ek_cuda_card(c)), 146);
    assert_non_null(strstr(ek_cuda_text(c), "xx, 1, "));
    assert_non_null(strstr(ek_cuda_text(c), " GB free"));
    ek_cuda_close(c);
    nothing_is_left();
}

/* Of code for several capabilities a device takes the newest that it runs, and loads no other. */
static void a_device_takes_its_own_code(void **state)
{
    (void)state;
    static const ek_cuda_module all[] = {
        {"a", "kernel_a", 8, 80, 80},   {"b", "kernel_b", 8, 80, 80},   {"a", "kernel_a", 8, 89, 89},
        {"a", "kernel_a", 8, 90, 90},   {"a", "kernel_a", 8, 90, 80},   {"a", "kernel_a", 8, 90, 120},
        {"a", "kernel_a", 8, 100, 100}, {"b", "kernel_b", 8, 100, 100}, {"a", "kernel_a", 8, 120, 120},
        {"b", "kernel_b", 8, 120, 120}, {"c", "kernel_a", 8, 120, 120}, {0}};
#define NONE_FOR(what)                                                                                               \
    "cuda:1 (Fake H) has compute capability " what ", the kernels in this program are for 8.0 to 8.9, 9.0, 10.0 to " \
    "10.9 and 12.0 to 12.9 (there are none for it, docs/CUDA.md)"
    static const struct {
        int major, minor, features, modules;
        const char *text;
    } device[] = {{8, 0, 0, 2, NULL},
                  {8, 6, 0, 2, NULL},
                  {8, 7, 0, 2, NULL},
                  {8, 9, 0, 1, NULL},
                  {9, 0, 0, 1, NULL},
                  {10, 0, 0, 2, NULL},
                  {10, 3, 0, 2, NULL},
                  {12, 0, 0, 3, NULL},
                  {12, 1, 0, 3, NULL},
                  {9, 0, 80, 1, "as sm_80"},
                  {9, 0, 86, 1, "as sm_86"},
                  {9, 0, 120, 1, "as sm_120"},
                  {8, 0, 80, 2, NULL},
                  {7, 5, 0, 0, NONE_FOR("7.5")},
                  {11, 0, 0, 0, NONE_FOR("11.0")},
                  {13, 0, 0, 0, NONE_FOR("13.0")},
                  {9, 0, 100, 0,
                   "no kernels with the features of sm_100 for compute capability 9.0 were built into this program "
                   "(make CUDA_ARCHS=\"90a 100on90\", docs/CUDA.md)"},
                  {8, 0, 90, 0, "cuda:1 (Fake H) has compute capability 8.0, less than that of sm_90"}};
    for (size_t i = 0; i < sizeof device / sizeof *device; i++) {
        const ek_cuda_api api = good();
        ek_cuda *c = NULL;
        fake.major = device[i].major, fake.minor = device[i].minor;
        const ek_err err = ek_cuda_open(&c, &api, all, 13000, 1, device[i].features);
        assert_int_equal(err, device[i].modules ? EK_OK : EK_EUNSUPPORTED);
        assert_int_equal(fake.modules, device[i].modules);
        if (err) {
            assert_string_equal(ek_err_text(), device[i].text);
        } else {
            if (device[i].text) assert_non_null(strstr(ek_cuda_text(c), device[i].text));
            const ek_cuda_chip *chip = ek_cuda_chip_of(c);
            const int of = device[i].features ? device[i].features : fake.major * 10 + fake.minor;
            assert_int_equal(chip->features, of == 103 ? 100 : of == 121 ? 120 : of);
            assert_int_equal(chip->wgmma, of == 90);
            assert_int_equal(chip->timed, of == 90);
            assert_int_equal(chip->bulk, of >= 90);
            assert_int_equal(chip->clusters, of == 90 || of / 10 == 10);
            assert_int_equal(chip->block_shared >> 10, of / 10 == 12 || of == 86 || of == 89 ? 99
                                                       : of < 90                             ? 163
                                                                                             : 227);
        }
        ek_cuda_close(c);
        nothing_is_left();
    }
    const ek_cuda_api api = good(); /* a build without code for tests */
    ek_cuda *c = NULL;
    assert_int_equal(ek_cuda_open(&c, &api, modules, 13000, 1, 80), EK_EUNSUPPORTED);
    assert_non_null(
        strstr(ek_err_text(), "no kernels with the features of sm_80 for compute capability 9.0 were built"));
}

static void a_good_one_opens_and_closes(void **state)
{
    (void)state;
    ek_cuda *c = opened();
    assert_string_equal(ek_cuda_text(c), "Fake H, 132 multiprocessors, driver 13.0, 3.5 of 80.0 GB free");
    assert_int_equal(ek_cuda_multiprocessors(c), 132);
    assert_int_equal(fake.modules, 2);
    ek_cuda_close(c);
    nothing_is_left();
    ek_cuda_close(NULL);
}

static void memory_is_taken_or_refused_with_numbers(void **state)
{
    (void)state;
    ek_cuda *c = opened();
    CUdeviceptr p;
    assert_int_equal(ek_cuda_alloc(c, &p, 12340000000u, "keys and values"), EK_ENOMEM);
    assert_string_equal(ek_err_text(),
                        "cuda:1 has no room for keys and values: 12.34 GB asked for, 3.50 of 80.00 GB free");
    assert_true(p == 0);
    assert_false(ek_cuda_broken(c));
    assert_int_equal(ek_cuda_alloc(c, &p, 64, "weights"), EK_OK);
    char out[8];
    assert_int_equal(ek_cuda_upload(c, p, "abcdefg", 8), EK_OK);
    assert_int_equal(ek_cuda_download(c, out, p, 8), EK_OK);
    assert_string_equal(out, "abcdefg");
    assert_int_equal(ek_cuda_fill(c, p, 'x', 4), EK_OK);
    assert_int_equal(ek_cuda_download(c, out, p, 8), EK_OK);
    assert_string_equal(out, "xxxxefg");
    ek_cuda_free(c, p);
    ek_cuda_free(c, 0);
    assert_int_equal(fake.blocks, 0);
    void *host;
    assert_int_equal(ek_cuda_alloc_host(c, &host, 16), EK_OK);
    ek_cuda_free_host(c, host);
    assert_int_equal(fake.host_blocks, 0);
    ek_cuda_close(c);
}

static void kernels_are_found_and_launched(void **state)
{
    (void)state;
    ek_cuda *c = opened();
    ek_cuda_kernel k;
    assert_int_equal(ek_cuda_find(c, &k, "kernel_x", 0), EK_EINTERNAL);
    assert_string_equal(ek_err_text(), "cuda:1: no kernel is named kernel_x");
    assert_int_equal(ek_cuda_find(c, &k, "kernel_b", 100000), EK_OK);
    assert_int_equal(fake.shared, 100000);
    assert_int_equal(fake.attribute_id, EK_CU_FUNC_SHARED);
    float arg = 7;
    assert_int_equal(ek_cuda_launch(c, &k, (ek_cuda_grid){.x = 5, .y = 3, .threads = 128, .shared = 99}, &arg), EK_OK);
    assert_true(fake.arg == 7);
    assert_int_equal(fake.config.gridDimX, 5);
    assert_int_equal(fake.config.gridDimY, 3);
    assert_int_equal(fake.config.gridDimZ, 1);
    assert_int_equal(fake.config.blockDimX, 128);
    assert_int_equal(fake.config.sharedMemBytes, 99);
    assert_int_equal(fake.config.numAttrs, 0);
    assert_ptr_equal(fake.config.hStream, ek_cuda_stream(c));
    assert_int_equal(ek_cuda_launch(c, &k, (ek_cuda_grid){.threads = 32, .overlap = true}, &arg), EK_OK);
    assert_int_equal(fake.config.numAttrs, 1);
    assert_int_equal(ek_cuda_allow_cluster(c, &k), EK_OK);
    assert_int_equal(fake.attribute_id, EK_CU_FUNC_LARGE_CLUSTER);
    assert_int_equal(
        ek_cuda_launch(c, &k, (ek_cuda_grid){.x = 16, .threads = 32, .cluster = 16, .overlap = true}, &arg), EK_OK);
    assert_int_equal(fake.config.numAttrs, 2);
    assert_int_equal(fake.cluster, 16);
    ek_cuda_close(c);
}

static void an_error_that_passes_leaves_the_device(void **state)
{
    (void)state;
    ek_cuda *c = opened();
    ek_cuda_kernel k;
    float arg = 1;
    assert_int_equal(ek_cuda_find(c, &k, "kernel_a", 0), EK_OK);
    fake.launch = 701; /* too many resources asked for: nothing ran */
    assert_int_equal(ek_cuda_launch(c, &k, (ek_cuda_grid){.threads = 1}, &arg), EK_EINTERNAL);
    assert_string_equal(ek_err_text(), "cuda:1: kernel_a: something (CUDA_ERROR_X, 701)");
    assert_false(ek_cuda_broken(c));
    fake.launch = 0;
    assert_int_equal(ek_cuda_launch(c, &k, (ek_cuda_grid){.threads = 1}, &arg), EK_OK);
    ek_cuda_close(c);
}

static void a_broken_device_never_answers(void **state)
{
    (void)state;
    static const int sticky[] = {214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 911, 999};
    for (size_t i = 0; i < sizeof sticky / sizeof *sticky; i++) {
        ek_cuda *c = opened();
        ek_cuda_kernel k;
        CUdeviceptr p;
        char byte = 0;
        size_t free, total;
        void *host;
        assert_int_equal(ek_cuda_find(c, &k, "kernel_a", 0), EK_OK);
        assert_int_equal(ek_cuda_launch(c, &k, (ek_cuda_grid){.threads = 1}, &fake), EK_OK);
        fake.sync = sticky[i];
        assert_int_equal(ek_cuda_sync(c), EK_EINTERNAL);
        char first[512];
        strcpy(first, ek_err_text());
        if (sticky[i] == 700)
            assert_string_equal(
                first,
                "cuda:1 failed while waiting for the device, after kernel kernel_a: an illegal memory access was "
                "encountered (CUDA_ERROR_ILLEGAL_ADDRESS, 700); the device cannot be used any more");
        assert_true(ek_cuda_broken(c));
        fake.sync = 0;
        int calls = fake.calls;
#define REFUSED(call) \
    (ek_fail(EK_EIO, "other"), assert_int_equal(call, EK_EINTERNAL), assert_string_equal(ek_err_text(), first))
        REFUSED(ek_cuda_sync(c));
        REFUSED(ek_cuda_allow_cluster(c, &k));
        REFUSED(ek_cuda_launch(c, &k, (ek_cuda_grid){.threads = 1}, &fake));
        REFUSED(ek_cuda_alloc(c, &p, 8, "x"));
        REFUSED(ek_cuda_alloc_host(c, &host, 8));
        REFUSED(ek_cuda_upload(c, 1, &byte, 1));
        REFUSED(ek_cuda_download(c, &byte, 1, 1));
        REFUSED(ek_cuda_fill(c, 1, 0, 1));
        REFUSED(ek_cuda_find(c, &k, "kernel_a", 0));
        REFUSED(ek_cuda_room(c, &free, &total));
#undef REFUSED
        assert_int_equal(fake.calls, calls); /* and nothing reached the driver */
        ek_cuda_close(c);
    }
}

static void embedded_modules_are_fatbins(void **state)
{
    (void)state;
    int n = 0;
    for (const ek_cuda_module *m = ek_cuda_modules; m->name; m++, n++) {
        assert_in_range(m->code, 80, 129);
        assert_in_range(m->features, 80, m->code);
        uint32_t magic;
        memcpy(&magic, m->fatbin, sizeof magic);
        assert_true(m->bytes > 1000);
        assert_int_equal(magic, 0xba55ed50u);
    }
    assert_int_equal(n > 0, ek_cuda_built_with > 0);
}

/* However many files of kernels there are. */
static void any_number_of_modules_is_loaded(void **state)
{
    (void)state;
    enum { MANY = 100 };
    ek_cuda_module many[MANY + 1] = {{0}};
    for (int i = 0; i < MANY; i++) many[i] = (ek_cuda_module){"one", "kernel_a", 8, 90, 90};
    const ek_cuda_api api = good();
    ek_cuda *c;
    assert_int_equal(ek_cuda_open(&c, &api, many, 13000, 1, 0), EK_OK);
    assert_int_equal(fake.modules, MANY);
    ek_cuda_close(c);
    nothing_is_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_driver_is_said),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(another_makers_devices_have_its_words),
        cmocka_unit_test(a_device_takes_its_own_code),
        cmocka_unit_test(a_good_one_opens_and_closes),
        cmocka_unit_test(memory_is_taken_or_refused_with_numbers),
        cmocka_unit_test(kernels_are_found_and_launched),
        cmocka_unit_test(an_error_that_passes_leaves_the_device),
        cmocka_unit_test(a_broken_device_never_answers),
        cmocka_unit_test(any_number_of_modules_is_loaded),
        cmocka_unit_test(embedded_modules_are_fatbins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
