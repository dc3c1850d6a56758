/* A Vulkan device behind the CUDA driver's table: memory, copies, fills, recorded steps, kernels and errors. Runs on
 * the device that is there, in CI lavapipe, the CPU's; without one every test is skipped, as a check says by itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/memory.h"
#include "vulkan/state.h"
#include "vulkan/vulkan.h"

static ek_cuda_api api;
static ek_cuda *c;

static int open_device(void **state)
{
    (void)state;
    if (ek_vulkan_load(&api)) return 0;
    if (ek_cuda_open(&c, &api, ek_vulkan_modules, EK_VULKAN_VERSION, 0, 0)) c = NULL;
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    ek_cuda_close(c);
    return 0;
}

static void must(ek_err err)
{
    if (err) fail_msg("%s", ek_err_text());
}

static CUdeviceptr take(size_t bytes)
{
    CUdeviceptr p;
    must(ek_cuda_alloc(c, &p, bytes, "a test"));
    return p;
}

static uint8_t *bytes_of(size_t n, unsigned seed)
{
    uint8_t *p = malloc(n);
    for (size_t i = 0; i < n; i++) p[i] = (uint8_t)(i * 7 + i / 251 + seed);
    return p;
}

/* From memory that the device does not reach, and back, in more than one stage; odd ends. */
static void copies(void **state)
{
    (void)state;
    if (!c) skip();
    const size_t n = ((size_t)17 << 20) + 13, from = 5, part = n - 64;
    uint8_t *in = bytes_of(n, 1), *out = bytes_of(n, 2);
    CUdeviceptr a = take(n), b = take(n);
    assert_int_equal(a % 256, 0);
    must(ek_cuda_upload(c, a, in, n));
    must(ek_cuda_copy(c, b + 3, a + from, part));
    must(ek_cuda_download(c, out, b + 3, part));
    must(ek_cuda_sync(c));
    assert_memory_equal(out, in + from, part);
    ek_cuda_free(c, a), ek_cuda_free(c, b);
    free(in), free(out);
}

static void fills(void **state)
{
    (void)state;
    if (!c) skip();
    enum { N = 64 };
    CUdeviceptr p = take(N);
    for (size_t at = 0; at < 9; at++)
        for (size_t n = 0; n < 19; n++) {
            uint8_t want[N], got[N];
            memset(want, 0xa5, N), memset(want + at, 0x3c, n);
            must(ek_cuda_fill(c, p, 0xa5, N));
            must(ek_cuda_fill(c, p + at, 0x3c, n));
            must(ek_cuda_download(c, got, p, N));
            must(ek_cuda_sync(c));
            assert_memory_equal(got, want, N);
        }
    ek_cuda_free(c, p);
}

/* Memory that the device reaches is read when the copy runs, not when it is queued. */
static void pinned(void **state)
{
    (void)state;
    if (!c) skip();
    void *host, *back;
    CUevent event;
    bool there = true;
    must(ek_cuda_alloc_host(c, &host, 4096));
    must(ek_cuda_alloc_host(c, &back, 4096));
    must(ek_cuda_event_open(c, &event));
    CUdeviceptr p = take(4096);
    memset(host, 1, 4096), memset(back, 0, 4096);
    must(ek_cuda_upload(c, p, host, 4096));
    memset(host, 2, 4096); /* nothing was submitted yet */
    must(ek_cuda_download(c, (uint8_t *)back + 5, p + 5, 4000));
    must(ek_cuda_event_record(c, event));
    must(ek_cuda_event_wait(c, event));
    must(ek_cuda_event_there(c, event, &there));
    assert_true(there);
    assert_int_equal(((uint8_t *)back)[4], 0);
    assert_int_equal(((uint8_t *)back)[5], 2);
    assert_int_equal(((uint8_t *)back)[4004], 2);
    assert_int_equal(((uint8_t *)back)[4005], 0);
    ek_cuda_event_close(c, event);
    ek_cuda_free(c, p);
    ek_cuda_free_host(c, host), ek_cuda_free_host(c, back);
}

enum { TRIPLES = 300 };

static void launch(CUdeviceptr x, CUdeviceptr y)
{
    ek_cuda_kernel k;
    const ek_vulkan_evidence_args a = {x, y, TRIPLES};
    must(ek_cuda_find(c, &k, "ek_evidence", 0));
    must(ek_cuda_launch(c, &k, (ek_cuda_grid){.x = 2, .threads = 256}, &a));
}

static void check(const float *x, const float *y)
{
    for (int i = 0; i < TRIPLES; i++) {
        const float *t = x + 3 * i, *r = y + EK_VULKAN_RESULTS * i;
        const float want[EK_VULKAN_RESULTS] = {fmaf(t[0], t[1], t[2]), t[0] / t[1], sqrtf(t[0]), t[0] * t[1],
                                               t[0] + t[2]};
        assert_memory_equal(r, want, sizeof want);
    }
}

/* A recorded step runs with what memory holds at each launch, in its order among other commands. */
static void graphs(void **state)
{
    (void)state;
    if (!c) skip();
    const ek_cuda_api *f = ek_cuda_functions(c);
    float *x = malloc(sizeof *x * 3 * TRIPLES), *y = malloc(sizeof *y * EK_VULKAN_RESULTS * TRIPLES);
    const size_t in = sizeof *x * 3 * TRIPLES, out = sizeof *y * EK_VULKAN_RESULTS * TRIPLES;
    CUdeviceptr a = take(in), b = take(out), sum = take(out);
    CUgraph graph;
    CUgraphExec exec;
    must(ek_cuda_check(c, f->cuStreamBeginCapture(ek_cuda_stream(c), EK_CU_CAPTURE_RELAXED), "recording"));
    launch(a, b);
    must(ek_cuda_copy(c, sum, b, out));
    must(ek_cuda_check(c, f->cuStreamEndCapture(ek_cuda_stream(c), &graph), "recording"));
    must(ek_cuda_check(c, f->cuGraphInstantiateWithFlags(&exec, graph, 0), "recording"));
    f->cuGraphDestroy(graph);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 3 * TRIPLES; i++) x[i] = 1 + (float)(i * (round + 3) % 1000) / 7;
        must(ek_cuda_upload(c, a, x, in));
        must(ek_cuda_fill(c, sum, 0xff, out));
        for (int times = 0; times < 12; times++) /* more than one submission takes */
            must(ek_cuda_check(c, f->cuGraphLaunch(exec, ek_cuda_stream(c)), "launching"));
        must(ek_cuda_download(c, y, sum, out));
        must(ek_cuda_sync(c));
        check(x, y);
    }
    f->cuGraphExecDestroy(exec);
    ek_cuda_free(c, a), ek_cuda_free(c, b), ek_cuda_free(c, sum);
    free(x), free(y);
}

static void errors(void **state)
{
    (void)state;
    if (!c) skip();
    ek_cuda_kernel k;
    CUdeviceptr p;
    ek_cuda *other;
    char byte;
    assert_int_equal(ek_cuda_find(c, &k, "ek_none", 0), EK_EINTERNAL);
    assert_string_equal(ek_err_text(), "vulkan:0: no kernel is named ek_none");
    assert_int_equal(ek_cuda_open(&other, &api, ek_vulkan_modules, EK_VULKAN_VERSION, 99, 0), EK_ENOTFOUND);
    assert_non_null(strstr(ek_err_text(), "there is no device vulkan:99, the driver has "));
    assert_int_equal(ek_cuda_alloc(c, &p, (size_t)1 << 50, "a test"), EK_ENOMEM);
    assert_non_null(strstr(ek_err_text(), " GB at once, 1125899.91 GB for a test were asked for"));
    const ek_vulkan_evidence_args none = {0};
    must(ek_cuda_find(c, &k, "ek_evidence", 0));
    assert_int_equal(ek_cuda_launch(c, &k, (ek_cuda_grid){.x = 1, .y = UINT32_MAX, .threads = 256}, &none),
                     EK_EINTERNAL);
    assert_non_null(strstr(ek_err_text(), "a grid of more workgroups than the device takes"));
    p = take(16);
    assert_int_equal(ek_cuda_upload(c, p + 16, "", 1), EK_EINTERNAL); /* behind the block's end */
    assert_non_null(strstr(ek_err_text(), "an address that no block of memory has"));
    must(ek_cuda_download(c, &byte, p, 1));
    must(ek_cuda_sync(c));
    ek_cuda_free(c, p);
}

static PFN_vkQueueSubmit submit;
static int submissions;

static VKAPI_ATTR VkResult VKAPI_CALL submit_and_count(VkQueue queue, uint32_t n, const VkSubmitInfo *info,
                                                       VkFence fence)
{
    submissions++;
    return submit(queue, n, info, fence);
}

/* A submission that takes seconds loses the device on some drivers, so many workgroups are several; but few are not,
 * nor those behind copies of a batch that is counted. */
static void much_work_is_several_submissions(void **state)
{
    (void)state;
    const ek_vulkan_loader *l;
    ek_vulkan *v;
    ek_vulkan_block b;
    CUfunction f;
    if (!c) skip();
    must(ek_vulkan_open_loader(&l));
    assert_int_equal(ek_vulkan_open(&v, l, 0), VK_SUCCESS);
    assert_int_equal(ek_vulkan_find(v, &f, "ek_evidence"), VK_SUCCESS);
    assert_int_equal(ek_vulkan_take(v, &b, 64, EK_VULKAN_HOST), VK_SUCCESS);
    submit = v->QueueSubmit, v->QueueSubmit = submit_and_count;
    struct CUstream_st s = {.of = v};
    const ek_vulkan_evidence_args none = {b.at, b.at, 0};
    const uint32_t grid[] = {EK_VULKAN_GROUPS / 8, 2, 1};
    submissions = 0;
    for (int i = 0; i < 3; i++) assert_int_equal(ek_vulkan_launch(&s, f, grid, &none), VK_SUCCESS);
    assert_int_equal(submissions, 0);
    for (int i = 3; i < 9; i++) assert_int_equal(ek_vulkan_launch(&s, f, grid, &none), VK_SUCCESS);
    assert_int_equal(submissions, 2);
    s.open->staged = 1;
    for (int i = 0; i < 9; i++) assert_int_equal(ek_vulkan_launch(&s, f, grid, &none), VK_SUCCESS);
    assert_int_equal(submissions, 2);
    assert_int_equal(ek_vulkan_flush(&s), VK_SUCCESS);
    assert_int_equal(ek_vulkan_wait(&s, s.value), VK_SUCCESS);
    assert_int_equal(submissions, 3);
    assert_true(!s.first && !s.open);
    ek_vulkan_give(v, &b);
    ek_vulkan_close(v);
}

static PFN_vkAllocateMemory allocate;
static int refused;

static VKAPI_ATTR VkResult VKAPI_CALL allocate_once_refused(VkDevice device, const VkMemoryAllocateInfo *info,
                                                            const VkAllocationCallbacks *a, VkDeviceMemory *out)
{
    return refused++ ? allocate(device, info, a, out) : VK_ERROR_OUT_OF_DEVICE_MEMORY;
}

/* Memory of the device that the host writes may be little: then the host's is taken, and of the device's own there is
 * no other. */
static void the_hosts_memory_stands_in(void **state)
{
    (void)state;
    const ek_vulkan_loader *l;
    ek_vulkan *v;
    ek_vulkan_block b = {0};
    if (!c) skip();
    must(ek_vulkan_open_loader(&l));
    assert_int_equal(ek_vulkan_open(&v, l, 0), VK_SUCCESS);
    allocate = v->AllocateMemory;
    v->AllocateMemory = allocate_once_refused;
    refused = 0;
    assert_int_equal(ek_vulkan_take(v, &b, 1000, EK_VULKAN_BOTH), VK_SUCCESS);
    assert_true(refused == 2 && b.map);
    ek_vulkan_give(v, &b);
    refused = 0;
    assert_int_equal(ek_vulkan_take(v, &b, 1000, EK_VULKAN_DEVICE), VK_ERROR_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(refused, 1);
    ek_vulkan_close(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(copies),
                                       cmocka_unit_test(fills),
                                       cmocka_unit_test(pinned),
                                       cmocka_unit_test(graphs),
                                       cmocka_unit_test(errors),
                                       cmocka_unit_test(the_hosts_memory_stands_in),
                                       cmocka_unit_test(much_work_is_several_submissions)};
    return cmocka_run_group_tests_name("vulkan", tests, open_device, close_device);
}
