/* Runs every CUDA kernel against the CPU's scalar definition by memcmp, then times what decides speed.
 * Usage: device [emulated LIBRARY | vulkan | sm_80] [quick | bits | kv | int | whole | sample | int-speed | linear |
 * gate | layer | experts | pass | speed | decode | shallow | piece | products | prompt | read | choice | planes |
 * floats | tower] [quick: fewer cases; few: one or two of a family of kernels]. Exits 77 without a driver or device, 1
 * when bits differ. vulkan: shaders on the first Vulkan device, those that there are (vulkan/kernels.def): sections of
 * others fail. emulated: on the device that LIBRARY makes of the CPU (tests/emulate). sm_80, sm_86, sm_100, sm_120:
 * with the kernels of that alone, where the program has code for it (make CUDA_ARCHS="90a 80on90 100on90 120on90").
 * `device [sm_86] hold GIB COMMAND...` runs a command while all but that much of the device's memory is taken (hold.c).
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/hash/rng.h"
#include "dev.h"
#include "vulkan/vulkan.h"

void must(ek_err err)
{
    if (err == EK_OK) return;
    printf("FAIL %s\n", ek_err_text());
    exit(2);
}

CUdeviceptr up(dev *d, const void *from, size_t bytes)
{
    CUdeviceptr p;
    must(ek_cuda_alloc(d->c, &p, bytes ? bytes : 16, "a test"));
    if (from) must(ek_cuda_upload(d->c, p, from, bytes));
    else must(ek_cuda_fill(d->c, p, 0xff, bytes));
    must(ek_cuda_sync(d->c));
    return p;
}

void *down(dev *d, CUdeviceptr p, size_t bytes)
{
    void *to = malloc(bytes + 1);
    must(ek_cuda_download(d->c, to, p, bytes));
    must(ek_cuda_sync(d->c));
    return to;
}

void drop(dev *d, CUdeviceptr p)
{
    ek_cuda_free(d->c, p);
}

ek_cuda_kernel find(dev *d, const char *name, size_t shared)
{
    ek_cuda_kernel k;
    must(ek_cuda_find(d->c, &k, name, shared));
    return k;
}

void launch(dev *d, const ek_cuda_kernel *k, ek_cuda_grid g, const void *args)
{
    must(ek_cuda_launch(d->c, k, g, args));
}

bool same(dev *d, const void *want, void *got, size_t bytes, bool floats, const char *what, ...)
{
    const uint8_t *w = want, *g = got;
    size_t wrong = 0, first = 0, unit = floats ? 4 : 1;
    for (size_t i = 0; i < bytes; i += unit) {
        bool differs = memcmp(w + i, g + i, unit) != 0;
        if (differs && floats) {
            float a, b;
            memcpy(&a, w + i, 4), memcpy(&b, g + i, 4);
            differs = !(a != a && b != b);
        }
        if (differs && wrong++ == 0) first = i;
    }
    if (wrong == 0) d->passed++;
    else {
        char name[200];
        va_list ap;
        va_start(ap, what);
        vsnprintf(name, sizeof name, what, ap);
        va_end(ap);
        d->failed++;
        uint32_t a = 0, b = 0;
        float fa, fb;
        memcpy(&a, w + first, unit), memcpy(&b, g + first, unit);
        memcpy(&fa, &a, 4), memcpy(&fb, &b, 4);
        if (d->failed < 40)
            printf("FAIL %s: %zu of %zu differ, first at %zu: want %08x (%a), got %08x (%a)\n", name, wrong,
                   bytes / unit, first / unit, a, (double)fa, b, (double)fb);
    }
    free(got);
    return wrong == 0;
}

float uniform(uint64_t seed, uint64_t i)
{
    return (float)((double)(ek_mix64(seed * 0x9E3779B97F4A7C15u ^ i) >> 40) * 0x1p-23 - 1.0);
}

float *uniforms(size_t n, uint64_t seed, float largest)
{
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = largest * uniform(seed, i);
    return x;
}

static int by_value(const void *a, const void *b)
{
    const float *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

double time_us(dev *d, void (*queue)(void *arg, int i), void *arg, int times)
{
    const ek_cuda_api *f = ek_cuda_functions(d->c);
    CUstream s = ek_cuda_stream(d->c);
    CUgraph graph;
    CUgraphExec exec;
    CUevent from, to;
    enum { ROUNDS = 9 };
    float ms[ROUNDS];
    must(ek_cuda_check(d->c, f->cuEventCreate(&from, 0), "event"));
    must(ek_cuda_check(d->c, f->cuEventCreate(&to, 0), "event"));
    must(ek_cuda_check(d->c, f->cuStreamBeginCapture(s, EK_CU_CAPTURE_RELAXED), "capture"));
    for (int i = 0; i < times; i++) queue(arg, i);
    must(ek_cuda_check(d->c, f->cuStreamEndCapture(s, &graph), "capture"));
    must(ek_cuda_check(d->c, f->cuGraphInstantiateWithFlags(&exec, graph, 0), "graph"));
    for (int r = -1; r < ROUNDS; r++) {
        must(ek_cuda_check(d->c, f->cuEventRecord(from, s), "event"));
        must(ek_cuda_check(d->c, f->cuGraphLaunch(exec, s), "graph"));
        must(ek_cuda_check(d->c, f->cuEventRecord(to, s), "event"));
        must(ek_cuda_sync(d->c));
        if (r >= 0) must(ek_cuda_check(d->c, f->cuEventElapsedTime(&ms[r], from, to), "event"));
    }
    f->cuGraphExecDestroy(exec);
    f->cuGraphDestroy(graph);
    f->cuEventDestroy(from);
    f->cuEventDestroy(to);
    qsort(ms, ROUNDS, sizeof *ms, by_value);
    return (double)ms[ROUNDS / 2] * 1000 / times;
}

static void section(dev *d, const char *name, void (*run)(dev *d))
{
    struct timespec a, b;
    int passed = d->passed, failed = d->failed;
    clock_gettime(CLOCK_MONOTONIC, &a);
    run(d);
    clock_gettime(CLOCK_MONOTONIC, &b);
    printf("%-8s %5d passed, %d failed, %.1f s\n", name, d->passed - passed, d->failed - failed,
           (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const ek_cuda_module emulated[] = {{.name = "all", .fatbin = "all", .bytes = 4}, {0}};
    const bool emulates = argc > 2 && strcmp(argv[1], "emulated") == 0;
    const char *library = emulates ? argv[2] : "libcuda.so.1";
    if (emulates) argc -= 2, argv += 2;
    const int features = argc > 1 && strncmp(argv[1], "sm_", 3) == 0 ? atoi(argv[1] + 3) : 0;
    if (features) argc--, argv++;
    const bool shaders = argc > 1 && !strcmp(argv[1], "vulkan");
    if (shaders) argc--, argv++;
    const char *what = argc > 1 ? argv[1] : "bits";
    ek_cuda_api api;
    dev d = {.few = strcmp(argv[argc - 1], "few") == 0};
    d.quick = d.few || strcmp(argv[argc - 1], "quick") == 0;
    const ek_cuda_module *modules = emulates ? emulated : shaders ? ek_vulkan_modules : ek_cuda_modules;
    const int built_with = emulates ? 13000 : shaders ? EK_VULKAN_VERSION : ek_cuda_built_with;
    if ((shaders ? ek_vulkan_load(&api) : ek_cuda_load(&api, library)) != EK_OK ||
        ek_cuda_open(&d.c, &api, modules, built_with, 0, features)) {
        printf("%s\n", ek_err_text());
        return 77;
    }
    if (argc > 3 && !strcmp(what, "hold")) return hold_memory(&d, atof(argv[2]), argv + 3);
    int threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    must(ek_pool_open(&d.pool, threads < 1 ? 1 : threads > 64 ? 64 : threads));
    printf("%s\n", ek_cuda_text(d.c));
    bool products = !strcmp(what, "products");
    if (shaders && !strcmp(what, "math")) section(&d, "math", test_math);
    else if (shaders && !strcmp(what, "linear")) section(&d, "linear", test_linear);
    else if (shaders && !strcmp(what, "int")) section(&d, "int", test_attn_int);
    else if (products || !strcmp(what, "linear"))
        section(&d, "linear", test_linear), section(&d, "gate", test_gate), section(&d, "heads", test_heads),
            section(&d, "image", test_image);
    else if (!strcmp(what, "gate")) section(&d, "gate", test_gate), section(&d, "heads", test_heads);
    else if (!strcmp(what, "layer")) section(&d, "layer", test_layer_end);
    else if (!strcmp(what, "experts")) section(&d, "experts", test_experts), section(&d, "jobs", test_jobs);
    else if (!strcmp(what, "pass")) section(&d, "pass", test_pass), section(&d, "routes", test_pass_experts);
    else if (!strcmp(what, "planes")) section(&d, "planes", test_planes);
    else if (!strcmp(what, "tower")) section(&d, "tower", test_tower);
    else if (!strcmp(what, "int"))
        section(&d, "kv", test_kv), section(&d, "int", test_attn_int), section(&d, "whole", test_attn_whole);
    else if (!strcmp(what, "whole")) section(&d, "whole", test_attn_whole);
    else if (!strcmp(what, "sample")) section(&d, "sample", test_sample);
    else if (!strcmp(what, "kv")) section(&d, "kv", test_kv), section(&d, "attn", test_attn);
    else if (strcmp(what, "speed") && strcmp(what, "decode") && strcmp(what, "shallow") && strcmp(what, "prompt") &&
             strcmp(what, "read") && strcmp(what, "choice") && strcmp(what, "int-speed") && strcmp(what, "floats") &&
             strcmp(what, "piece")) {
        section(&d, "math", test_math);
        if (!shaders) section(&d, "rows", test_rows); /* of operators alone, which a pass does not launch */
        section(&d, "pass", test_pass), section(&d, "routes", test_pass_experts);
        section(&d, "kv", test_kv);
        section(&d, "attn", test_attn);
        section(&d, "sample", test_sample);
        section(&d, "linear", test_linear);
        section(&d, "gate", test_gate);
        section(&d, "heads", test_heads);
        section(&d, "image", test_image);
        section(&d, "layer", test_layer_end);
        section(&d, "experts", test_experts);
        section(&d, "jobs", test_jobs);
        section(&d, "planes", test_planes);
        section(&d, "tower", test_tower);
    }
    if (shaders) what = "bits"; /* speeds are of CUDA's own kernels */
    if (!strcmp(what, "speed") || !strcmp(what, "decode") || !strcmp(what, "read") || !strcmp(what, "choice") ||
        !strcmp(what, "planes") || !strcmp(what, "int-speed") || !strcmp(what, "floats") || products)
        section(&d, "stream", speed_stream);
    if (!strcmp(what, "int-speed")) section(&d, "int", speed_attn_int);
    if (!strcmp(what, "piece")) section(&d, "piece", speed_piece);
    if (!strcmp(what, "shallow")) section(&d, "shallow", speed_shallow);
    if (!strcmp(what, "decode")) section(&d, "decode", speed_attn);
    if (!strcmp(what, "layer")) section(&d, "layer", speed_layer_end);
    if (!strcmp(what, "planes")) section(&d, "planes", speed_planes);
    if (!strcmp(what, "floats")) section(&d, "floats", speed_floats);
    if (!strcmp(what, "tower") && !emulates) section(&d, "tower", speed_tower);
    if (!strcmp(what, "choice")) section(&d, "choice", speed_choice);
    if (!strcmp(what, "speed") || products) section(&d, "linear", speed_linear);
    if (!strcmp(what, "speed")) {
        section(&d, "decode", speed_attn);
        section(&d, "shallow", speed_shallow);
        section(&d, "sampling", speed_sample);
    }
    if (!strcmp(what, "speed") || !strcmp(what, "prompt")) section(&d, "prompt", speed_prompt);
    ek_pool_close(d.pool);
    ek_cuda_close(d.c);
    printf("%d passed, %d failed\n", d.passed, d.failed);
    return d.failed ? 1 : 0;
}
