/* Linear layers against the machine: batch 1 against the memory's read bandwidth, many rows
 * against the int8 multiply-add rate, both measured in the same seconds; medians.
 * Usage: bench_linear [threads [isa [bits [group [rows,rows,...]]]]]; bits 16: bf16 weights; bits may be the name of
 * a type of ops/weights/weight_type.h instead, q4_k, whose group it has.
 * Two limbs: a multiply-add of the model is counted once, though the machine does two. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash/rng.h"
#include "base/histogram.h"
#include "base/machine/cpu.h"
#include "base/machine/peak.h"
#include "ops/linear/linear.h"

enum { ROUNDS = 7, MAX_COPIES = 4096, MAX_ROWS = 512 };
static const size_t arena_bytes = (size_t)512 << 20;

/* With one thread its own processor time is taken, so that a busy machine disturbs less. */
static double now(ek_pool *pool)
{
    struct timespec t;
    if (ek_pool_threads(pool) > 1) return ek_now();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct setup {
    ek_pool *pool;
    ek_linear_ops ops;
    unsigned cpu;
    const ek_weight_type *type;
    uint8_t *arena;
    float *x, *y;
    void *mem;
} setup;

/* What the machine does per second now: bytes read for few rows, multiply-adds for many. */
static double limit_now(const setup *s, int rows)
{
    double start = now(s->pool);
    double work = rows <= 16 ? ek_peak_read(s->pool, s->cpu, s->arena, arena_bytes / 4) : ek_peak_int8(s->pool, s->cpu);
    return work / (now(s->pool) - start);
}

/* As a model would: one product after the other, each on matrices the caches have forgotten. */
static void bench(setup *s, int n, int k, int rows, int limbs)
{
    static ek_linear w[MAX_COPIES];
    if (ek_linear_plan(&w[0], s->cpu, n, k, s->type) != EK_OK) {
        printf("%s\n", ek_err_text());
        exit(1);
    }
    if (s->type->unpack) ek_linear_set_acts(&w[0], (ek_act_form){limbs, w[0].a_group});
    int copies = (int)(arena_bytes / w[0].bytes);
    if (copies == 0) return; /* larger than the arena */
    if (copies > MAX_COPIES) copies = MAX_COPIES;
    if (rows > 1 && copies > 1 + (int)(1.5e10 / ((double)rows * n * k)))
        copies = 1 + (int)(1.5e10 / ((double)rows * n * k));
    for (int i = 0; i < copies; i++) {
        w[i] = w[0];
        w[i].data = s->arena + (size_t)i * w[0].bytes;
    }
    double ratio[ROUNDS], rate[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        double limit = limit_now(s, rows);
        double start = now(s->pool);
        for (int i = 0; i < copies; i++) {
            ek_acts a;
            ek_acts_bind(&a, s->mem, s->x, k, rows, k);
            ek_linear_forward(&s->ops, s->pool, &w[i], &a, s->y, n);
        }
        double seconds = now(s->pool) - start;
        limit = (limit + limit_now(s, rows)) / 2;
        rate[round] = rows <= 16 ? (double)w[0].bytes * copies / seconds : (double)n * k * rows * copies / seconds;
        ratio[round] = rate[round] / limit;
    }
    double lo = ratio[0], hi = ratio[0], r = ek_median(rate, ROUNDS);
    for (int i = 1; i < ROUNDS; i++) lo = ratio[i] < lo ? ratio[i] : lo, hi = ratio[i] > hi ? ratio[i] : hi;
    printf("%d limb%s  rows %3d  k %6d -> n %6d  %8.1f %s  %5.1f %% of %s (%.1f to %.1f)\n", limbs,
           limbs == 1 ? " " : "s", rows, k, n, r / 1e9, rows <= 16 ? "GB/s  " : "Gmac/s",
           100 * ek_median(ratio, ROUNDS), rows <= 16 ? "read bandwidth" : "multiply-add peak", 100 * lo, 100 * hi);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const int shape[][2] = {{2048, 1536}, {256, 1536},   {6144, 1536},  {1536, 2048},
                                   {1536, 6144}, {1536, 12288}, {262144, 1536}};
    const char *isa = argc > 2 ? argv[2] : "avx512", *name = argc > 3 ? argv[3] : "4";
    const int bits = atoi(name), group = argc > 4 ? atoi(argv[4]) : 64;
    setup s = {.type = bits == 16 ? ek_weight_type_float(EK_BF16) : ek_weight_type_named(name)};
    if (ek_pool_open(&s.pool, argc > 1 ? atoi(argv[1]) : 2) != EK_OK || ek_cpu_mask(isa, &s.cpu) != EK_OK ||
        (!s.type && ek_weight_type_affine(&s.type, bits, group, EK_BF16, true) != EK_OK)) {
        printf("%s\n", ek_err_text());
        return 1;
    }
    ek_linear_init(&s.ops, s.cpu);
    s.arena = ek_alloc_big(arena_bytes + 4096);
    /* any two bytes are a scale of usual size: denormal products would be timed instead of kernels */
    for (size_t i = 0; i < arena_bytes; i += 8)
        *(uint64_t *)(s.arena + i) = (ek_mix64(i) & 0x80ff80ff80ff80ff) | 0x3c003c003c003c00;
    s.x = ek_alloc_big(sizeof(float) * MAX_ROWS * 12288);
    for (size_t i = 0; i < (size_t)MAX_ROWS * 12288; i++) s.x[i] = (float)(int32_t)ek_mix64(i) * 0x1p-31f;
    s.y = ek_alloc_big(sizeof(float) * MAX_ROWS * 262144);
    s.mem = ek_alloc_big(ek_acts_bytes(MAX_ROWS, 12288));
    printf("%s, %s, %d threads, %s, %d bits group %d\n", ek_cpu_model(), isa, ek_pool_threads(s.pool), s.type->name,
           s.type->bits, s.type->group);
    const char *only = argc > 5 ? argv[5] : "1,512";
    for (const char *p = only; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        for (int limbs = 1; limbs <= (s.type->unpack ? 2 : 1); limbs++)
            for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
                if (atoi(p) <= 8 || shape[i][0] != 262144) bench(&s, shape[i][0], shape[i][1], atoi(p), limbs);
    ek_pool_close(s.pool);
    return 0;
}
