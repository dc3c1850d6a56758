#include "cli/peak.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/file.h"

enum { PASSES = 5 };

typedef struct reading {
    const uint64_t *at;
    size_t n_each; /* words a thread */
    uint64_t *sum; /* a cache line a thread */
} reading;

static void fill_part(void *arg, int task, int worker)
{
    const reading *r = arg;
    (void)worker;
    memset((uint64_t *)(uintptr_t)r->at + (size_t)task * r->n_each, task + 1, r->n_each * sizeof *r->at);
}

static void read_part(void *arg, int task, int worker)
{
    const reading *r = arg;
    const uint64_t *p = r->at + (size_t)task * r->n_each;
    uint64_t s[16] = {0};
    (void)worker;
    for (size_t i = 0; i < r->n_each; i += 16)
        for (int k = 0; k < 16; k++) s[k] += p[i + (size_t)k];
    for (int k = 1; k < 16; k++) s[0] += s[k];
    r->sum[8 * task] = s[0];
}

ek_err ek_peak_read(ek_pool *pool, double *bytes_per_second)
{
    int n = ek_pool_threads(pool);
    size_t size = (size_t)1 << 30, least = (size_t)256 << 20;
    while (size > least && (double)size * 4 > ek_memory_available()) size /= 2;
    reading r = {.n_each = size / sizeof(uint64_t) / (size_t)n / 16 * 16};
    void *block = ek_alloc_big(size);
    if (!block) return EK_ENOMEM;
    r.at = block;
    r.sum = ek_alloc((size_t)n * 64);
    ek_pool_run(pool, fill_part, &r, n);
    double best = 0;
    for (int i = 0; i < PASSES; i++) {
        double start = ek_now();
        ek_pool_run(pool, read_part, &r, n);
        double speed = (double)r.n_each * (double)n * sizeof(uint64_t) / (ek_now() - start);
        if (speed > best) best = speed;
    }
    free(r.sum);
    ek_free_big(block, size);
    *bytes_per_second = best;
    return EK_OK;
}

typedef struct multiplying {
    ek_peak_fn *fn;
    int64_t rounds;
    double *macs;  /* a cache line a thread */
    int32_t *sink;
} multiplying;

static void multiply(void *arg, int task, int worker)
{
    const multiplying *m = arg;
    (void)worker;
    m->macs[8 * task] = m->fn(m->rounds, &m->sink[16 * task]);
}

double ek_peak_int8(ek_pool *pool, unsigned cpu, const char **what)
{
    multiplying m = {.rounds = 1 << 14};
    *what = NULL;
#ifdef __x86_64__
    if (cpu & EK_CPU_AVX512) m.fn = ek_peak_vpdpbusd_avx512, *what = "VPDPBUSD";
    else if (cpu & EK_CPU_AVX2) m.fn = ek_peak_pmaddubsw_avx2, *what = "PMADDUBSW";
#else
    (void)cpu;
#endif
    if (!m.fn) return 0;
    int n = ek_pool_threads(pool);
    m.macs = ek_alloc((size_t)n * 64);
    m.sink = ek_alloc((size_t)n * 64);
    double best = 0;
    for (int i = 0; i < PASSES;) {
        double start = ek_now(), total = 0;
        ek_pool_run(pool, multiply, &m, n);
        double took = ek_now() - start;
        for (int t = 0; t < n; t++) total += m.macs[8 * t];
        if (took < 0.05) { /* too short to time */
            m.rounds *= 2;
            continue;
        }
        if (total / took > best) best = total / took;
        i++;
    }
    free(m.macs);
    free(m.sink);
    return best;
}
