/* The operator library against the engine's own kernels and against the machine, in the same
 * seconds; medians of rounds. Operands are copies that the caches have forgotten.
 * Usage: bench_lib [threads] */
#include <evenkeel_ops.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/rng.h"
#include "ops/linear.h"
#include "probe.h"

enum { ROUNDS = 9, CHUNK = 64 << 10, N = 4096, K = 4096, BITS = 4, GROUP = 64, COPIES = 24, MAX_ROWS = 64 };

static void must(ek_status s)
{
    if (s == EK_DONE) return;
    printf("%s: %s\n", ek_status_name(s), ek_last_error());
    exit(1);
}

typedef struct read_arg {
    const uint8_t *data;
    volatile uint64_t sink;
} read_arg;

static void read_task(void *arg, int task, int worker)
{
    (void)worker;
    read_arg *t = arg;
    if (probe_read_chunk(t->data + (size_t)task * CHUNK, CHUNK) == 1) t->sink = 1;
}

static double read_rate(ek_pool *pool, const uint8_t *data, size_t bytes)
{
    read_arg arg = {data, 0};
    double start = ek_now();
    ek_pool_run(pool, read_task, &arg, (int)(bytes / CHUNK));
    return (double)(bytes / CHUNK * CHUNK) / (ek_now() - start);
}

static int by_value(const void *a, const void *b)
{
    double d = *(const double *)a - *(const double *)b;
    return d < 0 ? -1 : d > 0;
}

static double median(const double *v)
{
    double sorted[ROUNDS];
    memcpy(sorted, v, sizeof sorted);
    qsort(sorted, ROUNDS, sizeof *sorted, by_value);
    return sorted[ROUNDS / 2];
}

static void *noise(size_t bytes, uint64_t and)
{
    uint64_t *p = ek_alloc_big(bytes + 64);
    if (!p) exit(1);
    for (size_t i = 0; i < bytes / 8; i++) p[i] = ek_mix64(i) & and;
    return p;
}

/* ------------------------------------------------------------------ products */

typedef struct products {
    ek_pool *pool;
    ek_linear_ops ops;
    ek_linear engine[COPIES];
    ek_packed *packed[COPIES];
    ek_qview w;
    float *x, *y;
    void *mem;
} products;

static double engine_time(products *p, int rows, int limbs)
{
    double start = ek_now();
    for (int i = 0; i < COPIES; i++) {
        ek_acts a;
        ek_linear w = p->engine[i];
        ek_linear_set_limbs(&w, limbs);
        ek_acts_bind(&a, p->mem, p->x, K, rows, K);
        ek_linear_forward(&p->ops, p->pool, &w, &a, p->y, N);
    }
    return (ek_now() - start) / COPIES;
}

static double library_time(products *p, int rows, ek_precision e)
{
    double start = ek_now();
    for (int i = 0; i < COPIES; i++)
        must(ek_packed_matmul(ek_view_2d(p->y, EK_TYPE_F32, rows, N), ek_view_2d(p->x, EK_TYPE_F32, rows, K), p->packed[i], e));
    return (ek_now() - start) / COPIES;
}

static double unpacked_time(products *p, int rows)
{
    double start = ek_now();
    for (int i = 0; i < 4; i++)
        must(ek_quantized_matmul(ek_view_2d(p->y, EK_TYPE_F32, rows, N), ek_view_2d(p->x, EK_TYPE_F32, rows, K), &p->w, true, EK_EXACT));
    return (ek_now() - start) / 4;
}

static void bench_rows(products *p, int rows)
{
    enum { ENGINE_1, ENGINE_2, INT8, INT16, EXACT, UNPACKED, KINDS };
    static const char *const name[KINDS] = {"engine, one limb", "engine, two limbs", "packed, EK_INT8", "packed, EK_INT16", "packed, EK_EXACT", "not packed, EK_EXACT"};
    double time[KINDS][ROUNDS], to_1[KINDS][ROUNDS], to_2[KINDS][ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        time[ENGINE_1][r] = engine_time(p, rows, 1);
        time[INT8][r] = library_time(p, rows, EK_INT8);
        time[ENGINE_2][r] = engine_time(p, rows, 2);
        time[INT16][r] = library_time(p, rows, EK_INT16);
        time[EXACT][r] = library_time(p, rows, EK_EXACT);
        time[UNPACKED][r] = unpacked_time(p, rows);
        for (int i = 0; i < KINDS; i++) to_1[i][r] = time[ENGINE_1][r] / time[i][r], to_2[i][r] = time[ENGINE_2][r] / time[i][r];
    }
    for (int i = 0; i < KINDS; i++)
        printf("M %2d  %-22s %8.3f ms  %6.1f GB/s  %4.0f %% of one limb  %4.0f %% of two\n", rows, name[i], 1e3 * median(time[i]),
               (double)p->engine[0].bytes / median(time[i]) / 1e9, 100 * median(to_1[i]), 100 * median(to_2[i]));
    fflush(stdout);
}

static void bench_products(ek_pool *pool, unsigned cpu)
{
    static products p;
    p.pool = pool;
    ek_linear_init(&p.ops, cpu);
    p.x = noise(sizeof(float) * MAX_ROWS * K, 0xbfffffffbfffffff);
    p.y = noise(sizeof(float) * MAX_ROWS * N, 0);
    p.mem = ek_alloc_big(ek_acts_bytes(MAX_ROWS, K));
    p.w = (ek_qview){.mode = EK_AFFINE, .bits = BITS, .group = GROUP};
    p.w.codes = ek_view_2d(noise(N * K / 2, ~UINT64_C(0)), EK_TYPE_U32, N, K * BITS / 32);
    p.w.scales = ek_view_2d(noise(N * K / GROUP * 2, 0x3fff3fff3fff3fff), EK_TYPE_BF16, N, K / GROUP);
    p.w.biases = ek_view_2d(noise(N * K / GROUP * 2, 0xbfffbfffbfffbfff), EK_TYPE_BF16, N, K / GROUP);
    for (int i = 0; i < COPIES; i++) {
        ek_linear *w = &p.engine[i];
        if (ek_linear_plan_affine(w, cpu, N, K, BITS, GROUP, EK_BF16, true) != EK_OK || !(w->data = ek_alloc_big(w->bytes)) ||
            ek_linear_pack_affine(w, 0, N, p.w.codes.data, p.w.scales.data, p.w.biases.data, EK_BF16) != EK_OK) {
            printf("%s\n", ek_err_text());
            exit(1);
        }
        must(ek_pack_quantized(&p.packed[i], &p.w, true));
    }
    printf("%d x %d, %d bits, groups of %d:\n", N, K, BITS, GROUP);
    static const int rows[] = {1, 2, 8, 64};
    for (int i = 0; i < 4; i++) bench_rows(&p, rows[i]);
    for (int i = 0; i < COPIES; i++) {
        ek_packed_free(p.packed[i]);
        ek_free_big(p.engine[i].data, p.engine[i].bytes);
    }
}

/* ------------------------------------------------------------------ attention */

static void bench_sdpa(ek_pool *pool, ek_type t, int heads, int kv_heads, int rows, int keys, int dim)
{
    size_t size = t == EK_TYPE_F32 ? 4 : 2, one = (size_t)kv_heads * (size_t)keys * (size_t)dim * size;
    int copies = (int)(((size_t)256 << 20) / (2 * one));
    if (copies < 1) copies = 1;
    uint8_t *kv = noise(2 * one * (size_t)copies, t == EK_TYPE_F16 ? 0xb3ffb3ffb3ffb3ff : t == EK_TYPE_BF16 ? 0xbf7fbf7fbf7fbf7f : 0xbf7fffffbf7fffff);
    float *q = noise(sizeof *q * (size_t)(heads * rows * dim), 0xbd7fffffbd7fffff), *y = noise(sizeof *y * (size_t)(heads * rows * dim), 0);
    double ratio[ROUNDS], rate[ROUNDS], time[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        double limit = read_rate(pool, kv, 2 * one * (size_t)copies), start = ek_now();
        for (int i = 0; i < copies; i++) {
            ek_sdpa_options o = {.causal = true};
            must(ek_sdpa(ek_view_4d(y, EK_TYPE_F32, 1, heads, rows, dim), ek_view_4d(q, EK_TYPE_F32, 1, heads, rows, dim),
                         ek_view_4d(kv + 2 * one * (size_t)i, t, 1, kv_heads, keys, dim),
                         ek_view_4d(kv + 2 * one * (size_t)i + one, t, 1, kv_heads, keys, dim), &o));
        }
        time[r] = (ek_now() - start) / copies;
        limit = (limit + read_rate(pool, kv, 2 * one * (size_t)copies)) / 2;
        rate[r] = 2 * (double)one / time[r];
        ratio[r] = rate[r] / limit;
    }
    static const char *const name[] = {"f32", "f16", "bf16"};
    printf("%-4s %d query heads on %d, %3d rows, %5d keys, head size %d: %8.3f ms  %6.1f GB/s  %4.0f %% of read bandwidth\n", name[t], heads,
           kv_heads, rows, keys, dim, 1e3 * median(time), median(rate) / 1e9, 100 * median(ratio));
    fflush(stdout);
    ek_free_big(kv, 2 * one * (size_t)copies + 64);
    ek_free_big(q, sizeof *q * (size_t)(heads * rows * dim) + 64);
    ek_free_big(y, sizeof *y * (size_t)(heads * rows * dim) + 64);
}

int main(int argc, char **argv)
{
    ek_pool *pool;
    unsigned cpu = ek_cpu_detect();
    int threads = argc > 1 ? atoi(argv[1]) : ek_cpu_count();
    if (ek_pool_open(&pool, threads) != EK_OK) {
        printf("%s\n", ek_err_text());
        return 1;
    }
    must(ek_set_threads(threads));
    printf("%s, %s, %d threads\n", ek_cpu_model(), ek_isa(), threads);
    if (argc < 3 || strcmp(argv[2], "sdpa")) bench_products(pool, cpu);
    if (argc < 3 || strcmp(argv[2], "products")) {
        bench_sdpa(pool, EK_TYPE_BF16, 8, 1, 1, 8192, 256);
        bench_sdpa(pool, EK_TYPE_F16, 8, 1, 1, 8192, 256);
        bench_sdpa(pool, EK_TYPE_F32, 8, 1, 1, 8192, 256);
        bench_sdpa(pool, EK_TYPE_BF16, 8, 8, 1, 8192, 256);
        bench_sdpa(pool, EK_TYPE_BF16, 8, 1, 64, 2048, 256);
    }
    ek_pool_close(pool);
    return 0;
}
