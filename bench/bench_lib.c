/* The operator library against the engine's own kernels and against the machine, in the same
 * seconds. Operands are copies that the caches have forgotten. Times are the fastest tenth of single calls:
 * other work on the machine makes calls slower, never faster. Shares of products compare these; shares
 * of bandwidth are medians over calls, each against a reading of as many bytes milliseconds apart.
 * Usage: bench_lib [threads [products|sdpa]] */
#define _GNU_SOURCE
#include <evenkeel_ops.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash/rng.h"
#include "base/histogram.h"
#include "base/machine/cpu.h"
#include "base/machine/peak.h"
#include "ops/linear/linear.h"

enum {
    ROUNDS = 9,
    MAX_CALLS = 4096,
    N = 4096,
    K = 4096,
    BITS = 4,
    GROUP = 64,
    COPIES = 24,
    MAX_ROWS = 64,
    BATCH = 9,
    REST = 3000 /* microseconds in which the other pool's threads fall asleep */
};

static void must(ek_status s)
{
    if (s == EK_DONE) return;
    printf("%s: %s\n", ek_status_name(s), ek_last_error());
    exit(1);
}

/* Seconds to read the bytes once, by all threads. */
static double read_time(ek_pool *pool, const uint8_t *data, size_t bytes)
{
    double start = ek_now();
    ek_peak_read(pool, ek_cpu_detect(), data, bytes);
    return ek_now() - start;
}

typedef struct times {
    double v[MAX_CALLS];
    int n;
} times;

static void add(times *t, double seconds)
{
    if (t->n < MAX_CALLS) t->v[t->n++] = seconds;
}

static double fast(times *t)
{
    qsort(t->v, (size_t)t->n, sizeof *t->v, ek_ascending);
    return t->v[t->n / 10];
}

/* Median of limit over time, call by call: each pair belongs to the same moment. */
static double paired(const times *limit, const times *t)
{
    static double share[MAX_CALLS];
    int n = t->n < limit->n ? t->n : limit->n;
    for (int i = 0; i < n; i++) share[i] = limit->v[i] / t->v[i];
    qsort(share, (size_t)n, sizeof *share, ek_ascending);
    return share[n / 2];
}

/* As 16- or 32-bit floats without denormals, which cost some processors a hundred cycles each. */
static void *noise(size_t bytes, uint64_t and)
{
    uint64_t *p = ek_alloc_big(bytes + 64);
    if (!p) exit(1);
    for (size_t i = 0; i < bytes / 8; i++) p[i] = (ek_mix64(i) & and) | 0x3030303030303030;
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

static void engine_call(products *p, int i, int rows, int limbs)
{
    ek_acts a;
    ek_linear w = p->engine[i];
    ek_linear_set_acts(&w, (ek_act_form){limbs, w.a_group});
    ek_acts_bind(&a, p->mem, p->x, K, rows, K);
    ek_linear_forward(&p->ops, p->pool, &w, &a, p->y, N);
}

static void bench_rows(products *p, int rows)
{
    enum { ENGINE_1, ENGINE_2, INT8, INT16, BFLOAT16, EXACT, UNPACKED, KINDS };
    static const char *const name[KINDS] = {"engine, one limb",    "engine, two limbs",   "packed, EK_INT8",
                                            "packed, EK_INT16",    "packed, EK_BFLOAT16", "packed, EK_EXACT",
                                            "not packed, EK_EXACT"};
    static times time[KINDS];
    memset(time, 0, sizeof time);
    ek_view x = ek_view_2d(p->x, EK_TYPE_F32, rows, K), y = ek_view_2d(p->y, EK_TYPE_F32, rows, N);
    for (int r = 0; r < ROUNDS; r++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int i = 0; i < (kind == UNPACKED ? 4 : COPIES); i++) {
                double start = ek_now();
                if (kind <= ENGINE_2) engine_call(p, i, rows, kind + 1);
                else if (kind == UNPACKED) must(ek_quantized_matmul(y, x, &p->w, true, EK_EXACT));
                else
                    must(ek_packed_matmul(y, x, p->packed[i],
                                          kind == INT8       ? EK_INT8
                                          : kind == INT16    ? EK_INT16
                                          : kind == BFLOAT16 ? EK_BFLOAT16
                                                             : EK_EXACT));
                add(&time[kind], ek_now() - start);
            }
    for (int i = 0; i < KINDS; i++)
        printf("M %2d  %-22s %8.3f ms  %6.1f GB/s  %4.0f %% of one limb  %4.0f %% of two\n", rows, name[i],
               1e3 * fast(&time[i]), (double)p->engine[0].bytes / fast(&time[i]) / 1e9,
               100 * fast(&time[ENGINE_1]) / fast(&time[i]), 100 * fast(&time[ENGINE_2]) / fast(&time[i]));
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
        ek_weight_data data = {.n = N, .k = K, .plane = {p.w.codes.data, p.w.scales.data, p.w.biases.data}};
        if (ek_weight_type_affine(&data.type, BITS, GROUP, EK_BF16, true) != EK_OK ||
            ek_linear_plan(w, cpu, N, K, data.type) != EK_OK || !(w->data = ek_alloc_big(w->bytes)) ||
            ek_linear_pack(w, 0, &data) != EK_OK) {
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

static void bench_sdpa(ek_pool *pool, ek_precision precision, ek_type t, int heads, int kv_heads, int rows, int keys,
                       int dim)
{
    size_t size = t == EK_TYPE_F32 ? 4 : 2, one = (size_t)kv_heads * (size_t)keys * (size_t)dim * size;
    const ek_type qt = precision == EK_BFLOAT16 ? EK_TYPE_BF16 : EK_TYPE_F32;
    int copies = (int)(((size_t)256 << 20) / (2 * one));
    if (copies < 1) copies = 1;
    uint8_t *kv = noise(2 * one * (size_t)copies, t == EK_TYPE_F16    ? 0xb3ffb3ffb3ffb3ff
                                                  : t == EK_TYPE_BF16 ? 0xbf7fbf7fbf7fbf7f
                                                                      : 0xbf7fffffbf7fffff);
    float *q = noise(sizeof *q * (size_t)(heads * rows * dim),
                     precision == EK_BFLOAT16 ? 0xbd7fbd7fbd7fbd7f : 0xbd7fffffbd7fffff),
          *y = noise(sizeof *y * (size_t)(heads * rows * dim), 0);
    static times time, read;
    time.n = read.n = 0;
    const ek_sdpa_options o = {.causal = true, .precision = precision};
    for (int n = 0; n < ROUNDS * copies; n++) { /* batches of calls and of readings in turn, over all copies */
        uint8_t *k = kv + 2 * one * (size_t)(n % copies);
        bool reads = n / BATCH % 2, first = n % BATCH == 0;
        if (first) usleep(REST);
        double start = ek_now();
        if (reads) read_time(pool, k, 2 * one);
        else
            must(ek_sdpa(ek_view_4d(y, EK_TYPE_F32, 1, heads, rows, dim), ek_view_4d(q, qt, 1, heads, rows, dim),
                         ek_view_4d(k, t, 1, kv_heads, keys, dim), ek_view_4d(k + one, t, 1, kv_heads, keys, dim), &o));
        if (!first) add(reads ? &read : &time, ek_now() - start); /* the first wakes the threads */
    }
    static const char *const name[] = {"f32", "f16", "bf16"};
    double share = paired(&read, &time); /* before fast() sorts them */
    printf(
        "%-11s %-4s %d query heads on %d, %3d rows, %5d keys, head size %d: %8.3f ms  %6.1f GB/s  %4.0f %% of read bandwidth\n",
        precision == EK_BFLOAT16 ? "EK_BFLOAT16" : "EK_EXACT", name[t], heads, kv_heads, rows, keys, dim,
        1e3 * fast(&time), 2 * (double)one / fast(&time) / 1e9, 100 * share);
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
        bench_sdpa(pool, EK_BFLOAT16, EK_TYPE_BF16, 8, 1, 1, 8192, 256);
        bench_sdpa(pool, EK_EXACT, EK_TYPE_BF16, 8, 1, 1, 8192, 256);
        bench_sdpa(pool, EK_EXACT, EK_TYPE_F16, 8, 1, 1, 8192, 256);
        bench_sdpa(pool, EK_EXACT, EK_TYPE_F32, 8, 1, 1, 8192, 256);
        bench_sdpa(pool, EK_BFLOAT16, EK_TYPE_BF16, 8, 8, 1, 8192, 256);
        bench_sdpa(pool, EK_EXACT, EK_TYPE_BF16, 8, 8, 1, 8192, 256);
        bench_sdpa(pool, EK_BFLOAT16, EK_TYPE_BF16, 8, 1, 64, 2048, 256);
        bench_sdpa(pool, EK_EXACT, EK_TYPE_BF16, 8, 1, 64, 2048, 256);
    }
    ek_pool_close(pool);
    return 0;
}
