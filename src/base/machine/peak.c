#include "base/machine/peak.h"

#include <string.h>

#include "base/machine/cpu.h"

static volatile int64_t sink;

static int64_t read_plain(const void *chunk)
{
    const uint64_t *p = chunk;
    uint64_t s[16] = {0};
    for (size_t i = 0; i < EK_PEAK_CHUNK / sizeof *p; i += 16)
        for (size_t k = 0; k < 16; k++) s[k] |= p[i + k];
    for (int k = 1; k < 16; k++) s[0] |= s[k];
    return (int64_t)s[0];
}

typedef struct reading {
    ek_peak_read_fn *fn;
    char *data;
    size_t chunks;
    int threads;
} reading;

static size_t share_of(const reading *r, int task)
{
    return r->chunks * (size_t)task / (size_t)r->threads;
}

static void fill_share(void *arg, int task, int worker)
{
    const reading *r = arg;
    (void)worker;
    size_t from = share_of(r, task), to = share_of(r, task + 1);
    memset(r->data + from * EK_PEAK_CHUNK, 1, (to - from) * EK_PEAK_CHUNK);
}

void ek_peak_fill(ek_pool *pool, void *data, size_t bytes)
{
    reading r = {.data = data, .chunks = bytes / EK_PEAK_CHUNK, .threads = ek_pool_threads(pool)};
    int end[EK_MAX_NODES];
    for (int j = 0; j < ek_pool_nodes(pool); j++) end[j] = ek_pool_node_first(pool, j + 1);
    ek_pool_run_nodes(pool, fill_share, &r, end, true);
}

static void read_share(void *arg, int task, int worker)
{
    const reading *r = arg;
    (void)worker;
    size_t from = share_of(r, task), to = share_of(r, task + 1);
    int64_t all = 0;
    for (size_t i = from; i < to; i++) all |= r->fn(r->data + i * EK_PEAK_CHUNK);
    if (all == 1) sink = all;
}

double ek_peak_read(ek_pool *pool, unsigned cpu, const void *data, size_t bytes)
{
    reading r = {read_plain, (char *)(uintptr_t)data, bytes / EK_PEAK_CHUNK, ek_pool_threads(pool)};
#ifdef __x86_64__
    if (cpu & EK_CPU_AVX512) r.fn = ek_peak_read_avx512;
#else
    (void)cpu;
#endif
    ek_pool_run(pool, read_share, &r, r.threads);
    return (double)(r.chunks * EK_PEAK_CHUNK);
}

typedef struct multiplying {
    ek_peak_multiply_fn *fn;
} multiplying;

static void multiply(void *arg, int task, int worker)
{
    const multiplying *m = arg;
    (void)task, (void)worker;
    if (m->fn() == 1) sink = 1;
}

/* fn NULL: this machine has no such instruction. */
static double multiply_all(ek_pool *pool, ek_peak_multiply_fn *fn, int per_register)
{
    if (!fn) return 0;
    ek_pool_run(pool, multiply, &(multiplying){fn}, ek_pool_threads(pool));
    return (double)EK_PEAK_ROUNDS * 12 * per_register * ek_pool_threads(pool);
}

#ifdef __x86_64__
#define IF_X86(fn) fn
#else
#define IF_X86(fn) NULL
#endif

double ek_peak_int8(ek_pool *pool, unsigned cpu)
{
    if (cpu & EK_CPU_AVX512) return multiply_all(pool, IF_X86(ek_peak_int8_avx512), 64);
    if (cpu & EK_CPU_AVXVNNI) return multiply_all(pool, IF_X86(ek_peak_int8_avxvnni), 32);
    return cpu & EK_CPU_AVX2 ? multiply_all(pool, IF_X86(ek_peak_int8_avx2), 32) : 0;
}

double ek_peak_f32(ek_pool *pool, unsigned cpu)
{
    if (cpu & EK_CPU_AVX512) return multiply_all(pool, IF_X86(ek_peak_f32_avx512), 16);
    return cpu & EK_CPU_AVX2 ? multiply_all(pool, IF_X86(ek_peak_f32_avx2), 8) : 0;
}

double ek_peak_amx(ek_pool *pool, unsigned cpu)
{
    /* One round is 6 products of 16 x 64 x 16, but multiply_all counts 12. */
    if (!(cpu & EK_CPU_AMX)) return 0;
    return multiply_all(pool, IF_X86(ek_peak_int8_amx), 16 * 64 * 16 / 2 / EK_PEAK_TILE_ROUNDS);
}

const char *ek_peak_int8_name(unsigned cpu)
{
    return cpu & (EK_CPU_AVX512 | EK_CPU_AVXVNNI) ? "VPDPBUSD" : cpu & EK_CPU_AVX2 ? "PMADDUBSW" : NULL;
}
