/* Attention against the machine: decode against the memory's read bandwidth over the bytes of the
 * keys and values, prompts against the float32 multiply-add rate; both limits are measured in the
 * same seconds with the same threads; medians of ROUNDS. Usage: bench_attn [threads [isa [K:V [cases]]]], the first
 * `cases` only. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash/rng.h"
#include "base/histogram.h"
#include "base/machine/cpu.h"
#include "base/machine/peak.h"
#include "ops/attn/attn.h"

enum { ROUNDS = 9 };
static const size_t arena_bytes = (size_t)256 << 20;

typedef struct setup {
    ek_pool *pool;
    unsigned cpu;
    ek_kv_format k, v;
    uint8_t *arena;
    int cases; /* still to run */
} setup;

static double read_rate(const setup *s)
{
    double start = ek_now(), bytes = ek_peak_read(s->pool, s->cpu, s->arena, arena_bytes);
    return bytes / (ek_now() - start);
}

static double fma_rate(const setup *s)
{
    double start = ek_now(), macs = ek_peak_f32(s->pool, s->cpu);
    return macs / (ek_now() - start);
}

static void fail_on(ek_err err)
{
    if (err == EK_OK) return;
    printf("%s\n", ek_err_text());
    exit(1);
}

/* n_rows rows ending at position depth - 1 of n_views sequences each, layer after layer, so that
 * every layer's keys and values come from memory. */
static void bench(setup *s, const char *name, int heads, int kv_heads, int dim, int window, int depth, int n_views,
                  int n_rows)
{
    if (s->cases-- <= 0) return;
    ek_attn_shape shape = {window ? EK_SLIDING : EK_FULL, s->k, s->v, heads, kv_heads, dim, 0};
    ek_attn *a;
    fail_on(ek_attn_plan(&a, s->cpu, &shape));
    size_t block = ek_kv_block_bytes(s->k, s->v, kv_heads, dim);
    int n_pages = (depth + 63) / 64, layers = (int)(arena_bytes / (block * (size_t)n_pages * (size_t)n_views));
    if (n_rows > 1 && layers > 2) layers = 2;
    if (layers > 64) layers = 64;
    int total = n_rows * n_views;
    ek_kv_view *views = ek_alloc(sizeof *views * (size_t)(n_views * layers));
    uint8_t *at = s->arena;
    for (int i = 0; i < n_views * layers; i++) {
        int32_t *page = ek_alloc(sizeof *page * (size_t)n_pages);
        for (int p = 0; p < n_pages; p++) page[p] = p;
        views[i] = (ek_kv_view){.base = at, .stride = block, .page = page};
        at += block * (size_t)n_pages;
    }
    ek_attn_row *rows = ek_alloc(sizeof *rows * (size_t)total);
    double keys = 0;
    for (int i = 0; i < total; i++) {
        int end = depth - n_rows + i % n_rows + 1, lo = window && end > window ? end - window : 0;
        rows[i] = (ek_attn_row){i / n_rows, lo, end};
        keys += end - lo;
    }
    size_t width = (size_t)heads * (size_t)dim;
    float *q = ek_alloc_big(sizeof *q * width * (size_t)total), *o = ek_alloc_big(sizeof *o * width * (size_t)total);
    for (size_t i = 0; i < width * (size_t)total; i++) q[i] = (float)(int32_t)ek_mix64(i) * 0x1p-31f;
    size_t scratch_bytes = ek_attn_scratch_bytes(a, total, depth, ek_pool_threads(s->pool));
    void *scratch = ek_alloc_big(scratch_bytes);

    double ratio[ROUNDS], rate[ROUNDS], bytes = keys / n_rows * (double)block / 64, macs = 2 * keys * (double)width;
    for (int round = 0; round < ROUNDS; round++) {
        double limit = n_rows == 1 ? read_rate(s) : fma_rate(s);
        double start = ek_now();
        for (int l = 0; l < layers; l++)
            ek_attn_run(a, s->pool, views + l * n_views, rows, total, q, (ptrdiff_t)width, o, (ptrdiff_t)width,
                        scratch);
        double seconds = (ek_now() - start) / layers;
        limit = (limit + (n_rows == 1 ? read_rate(s) : fma_rate(s))) / 2;
        rate[round] = (n_rows == 1 ? bytes : macs) / seconds;
        ratio[round] = rate[round] / limit;
    }
    double r = ek_median(rate, ROUNDS), seconds = (n_rows == 1 ? bytes : macs) / r;
    printf("%-22s %2d/%d heads dim %3d window %4d depth %5d rows %dx%-3d %8.3f ms  %6.1f %s %5.1f %% (%.1f to ", name,
           heads, kv_heads, dim, window, depth, n_views, n_rows, 1e3 * seconds, r / 1e9,
           n_rows == 1 ? "GB/s  " : "Gmac/s", 100 * ek_median(ratio, ROUNDS), 100 * ratio[0]);
    printf("%.1f), %.1f Gmac/s\n", 100 * ratio[ROUNDS - 1], macs / seconds / 1e9);
    fflush(stdout);
    for (int i = 0; i < n_views * layers; i++) free((void *)views[i].page);
    free(views);
    free(rows);
    ek_free_big(q, sizeof *q * width * (size_t)total);
    ek_free_big(o, sizeof *o * width * (size_t)total);
    ek_free_big(scratch, scratch_bytes);
    ek_attn_free(a);
}

int main(int argc, char **argv)
{
    setup s = {0};
    const char *isa = argc > 2 ? argv[2] : "avx512", *format = argc > 3 ? argv[3] : "bf16";
    fail_on(ek_pool_open(&s.pool, argc > 1 ? atoi(argv[1]) : 2));
    fail_on(ek_cpu_mask(isa, &s.cpu));
    fail_on(ek_kv_format_parse(format, &s.k, &s.v));
    s.cases = argc > 4 ? atoi(argv[4]) : 100;
    s.arena = ek_alloc_big(arena_bytes + 4096);
    /* As 16-bit floats between 2^-31 and 2: a denormal costs some processors a hundred cycles, and models have none. */
    for (size_t i = 0; i < arena_bytes; i += 8)
        *(uint64_t *)(s.arena + i) = (ek_mix64(i) & 0xbf3fbf3fbf3fbf3f) | 0x3030303030303030;
    printf("%s, %s, %d threads, %s; %.1f GB/s, %.1f Gfma/s\n", ek_cpu_model(), isa, ek_pool_threads(s.pool), format,
           read_rate(&s) / 1e9, fma_rate(&s) / 1e9);
    bench(&s, "decode", 8, 1, 256, 0, 8192, 1, 1);
    bench(&s, "decode", 8, 1, 512, 0, 8192, 1, 1);
    bench(&s, "decode E2B sliding", 8, 1, 256, 512, 8192, 1, 1);
    bench(&s, "decode 12B sliding", 16, 8, 256, 1024, 4096, 1, 1);
    bench(&s, "decode 12B full", 16, 1, 512, 0, 8192, 1, 1);
    bench(&s, "decode 8 requests", 8, 1, 256, 0, 2048, 8, 1);
    bench(&s, "prompt", 8, 1, 256, 512, 1024, 1, 512);
    bench(&s, "prompt", 8, 1, 512, 0, 512, 1, 512);
    bench(&s, "prompt", 8, 1, 512, 0, 8192, 1, 512);
    bench(&s, "prompt 12B sliding", 16, 8, 256, 1024, 2048, 1, 512);
    ek_pool_close(s.pool);
    return 0;
}
