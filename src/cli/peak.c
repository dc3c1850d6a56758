#include "cli/peak.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/file.h"

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

typedef struct multiplying {
    ek_peak_fn *fn;
    int64_t rounds;
    double *macs; /* a cache line a thread */
    int32_t *sink;
} multiplying;

static void multiply(void *arg, int task, int worker)
{
    const multiplying *m = arg;
    (void)worker;
    m->macs[8 * task] = m->fn(m->rounds, &m->sink[16 * task]);
}

struct ek_peak {
    ek_pool *pool;
    void *block;
    size_t size;
    reading r;
    multiplying m;
    const char *int8_name;
};

/* Enough rounds that one takes 50 ms. */
static void choose_rounds(ek_peak *p)
{
    for (p->m.rounds = 1 << 14;; p->m.rounds *= 2) {
        double start = ek_now();
        ek_pool_run(p->pool, multiply, &p->m, ek_pool_threads(p->pool));
        if (ek_now() - start >= 0.05) return;
    }
}

ek_err ek_peak_open(ek_peak **out, ek_pool *pool, unsigned cpu)
{
    int n = ek_pool_threads(pool);
    size_t size = (size_t)1 << 30, least = (size_t)256 << 20;
    while (size > least && (double)size * 4 > ek_memory_available()) size /= 2;
    void *block = ek_alloc_big(size);
    if (!block) return EK_ENOMEM;
    ek_peak *p = ek_alloc(sizeof *p);
    *p = (ek_peak){.pool = pool, .block = block, .size = size};
    p->r = (reading){
        .at = block, .n_each = size / sizeof(uint64_t) / (size_t)n / 16 * 16, .sum = ek_alloc((size_t)n * 64)};
    p->m = (multiplying){.macs = ek_alloc((size_t)n * 64), .sink = ek_alloc((size_t)n * 64)};
#ifdef __x86_64__
    if (cpu & EK_CPU_AVX512) p->m.fn = ek_peak_vpdpbusd_avx512, p->int8_name = "VPDPBUSD";
    else if (cpu & EK_CPU_AVX2) p->m.fn = ek_peak_pmaddubsw_avx2, p->int8_name = "PMADDUBSW";
#else
    (void)cpu;
#endif
    ek_pool_run(pool, fill_part, &p->r, n);
    if (p->m.fn) choose_rounds(p);
    *out = p;
    return EK_OK;
}

void ek_peak_close(ek_peak *p)
{
    if (!p) return;
    free(p->r.sum);
    free(p->m.macs);
    free(p->m.sink);
    ek_free_big(p->block, p->size);
    free(p);
}

double ek_peak_read(ek_peak *p)
{
    int n = ek_pool_threads(p->pool);
    double start = ek_now();
    ek_pool_run(p->pool, read_part, &p->r, n);
    return (double)p->r.n_each * (double)n * sizeof(uint64_t) / (ek_now() - start);
}

double ek_peak_int8(ek_peak *p)
{
    if (!p->m.fn) return 0;
    int n = ek_pool_threads(p->pool);
    double start = ek_now(), total = 0;
    ek_pool_run(p->pool, multiply, &p->m, n);
    double took = ek_now() - start;
    for (int t = 0; t < n; t++) total += p->m.macs[8 * t];
    return total / took;
}

const char *ek_peak_int8_name(const ek_peak *p)
{
    return p->int8_name;
}
