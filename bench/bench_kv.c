/* Formats of keys and values side by side: the time of attention alone. The formats take turns within a round, and the
 * least time of all rounds counts, processor time with one thread, so that neither a busy machine nor its changing
 * clock favours one. Usage: bench_kv [formats [isa [rounds [threads [cases]]]]], formats as `--kv` takes them,
 * separated by commas; cases: the numbers of the rows, as in 015; all without it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/machine/cpu.h"
#include "base/hash/rng.h"
#include "ops/attn/attn.h"

enum { MAX_FORMATS = 12, MAX_ROWS = 128, PROMPT_LAYERS = 8, MAX_DEPTH = 8192, MAX_HEADS = 16 };
static const size_t arena_bytes = (size_t)128 << 20;

typedef struct bench_case {
    const char *name;
    int heads, kv_heads, dim, window, depth, rows;
} bench_case;

static const bench_case cases[] = {
    {"8 heads on 1 of 256", 8, 1, 256, 0, 8192, 1},
    {"8 on 1 of 512", 8, 1, 512, 0, 8192, 1},
    {"8 on 1 of 256, window 512", 8, 1, 256, 512, 576, 1},
    {"16 on 8 of 256, window 1024", 16, 8, 256, 1024, 1088, 1},
    {"16 on 1 of 512", 16, 1, 512, 0, 8192, 1},
    {"prompt of 128 at 512, 8 on 1 of 256", 8, 1, 256, 0, 512, 128},
    {"prompt of 128 at 512, 8 on 1 of 512", 8, 1, 512, 0, 512, 128},
    {"prompt of 128 at 1152, 16 on 8 of 256, window 1024", 16, 8, 256, 1024, 1152, 128},
    {"prompt of 64 at 8192, 8 on 1 of 512", 8, 1, 512, 0, 8192, 64},
    {"prompt of 128 at 1152, 8 on 1 of 256, window 512", 8, 1, 256, 512, 1152, 128},
};

static int threads;

static double clock_now(void)
{
    return threads == 1 ? ek_thread_time() : ek_now();
}

typedef struct side {
    const char *name;
    ek_kv_format k, v;
    ek_attn *attn;
    void *scratch;
    size_t scratch_bytes;
    size_t block;
    int layers; /* whose pages fill the arena, so that they come from memory as in a model */
    double least;
} side;

static void fail_on(ek_err err)
{
    if (err == EK_OK) return;
    printf("%s\n", ek_err_text());
    exit(1);
}

/* All layers once; seconds per layer. */
static double run(const bench_case *c, side *s, ek_pool *pool, uint8_t *arena, const float *q, float *o)
{
    int32_t page[MAX_DEPTH / EK_PAGE_TOKENS];
    ek_attn_row rows[MAX_ROWS];
    const int n_pages = c->depth / EK_PAGE_TOKENS;
    for (int i = 0; i < n_pages; i++) page[i] = i;
    for (int i = 0; i < c->rows; i++) {
        int end = c->depth - c->rows + i + 1;
        rows[i] = (ek_attn_row){0, c->window && end > c->window ? end - c->window : 0, end};
    }
    const double start = clock_now();
    for (int l = 0; l < s->layers; l++) {
        ek_kv_view view = {.base = arena + (size_t)l * s->block * (size_t)n_pages, .stride = s->block, .page = page};
        ek_attn_run(s->attn, pool, &view, rows, c->rows, q, c->heads * c->dim, o, c->heads * c->dim, s->scratch);
    }
    return (clock_now() - start) / s->layers;
}

static void bench(const bench_case *c, side *sides, int n, int rounds, ek_pool *pool, unsigned cpu, uint8_t *arena,
                  const float *q, float *o)
{
    for (int i = 0; i < n; i++) {
        side *s = &sides[i];
        ek_attn_shape shape = {c->window ? EK_SLIDING : EK_FULL, s->k, s->v, c->heads, c->kv_heads, c->dim, 0};
        fail_on(ek_attn_plan(&s->attn, cpu, &shape));
        s->block = ek_kv_block_bytes(s->k, s->v, c->kv_heads, c->dim);
        s->layers = (int)(arena_bytes / (s->block * (size_t)(c->depth / EK_PAGE_TOKENS)));
        if (c->rows > 1 && s->layers > PROMPT_LAYERS) s->layers = PROMPT_LAYERS;
        s->scratch_bytes = ek_attn_scratch_bytes(s->attn, c->rows, c->depth, threads);
        s->scratch = ek_alloc_big(s->scratch_bytes);
        s->least = 1e9;
    }
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < n; i++) {
            double t = run(c, &sides[(round + i) % n], pool, arena, q, o);
            if (t < sides[(round + i) % n].least) sides[(round + i) % n].least = t;
        }
    printf("%-52s", c->name);
    for (int i = 0; i < n; i++) {
        printf(" %8.4f", 1e3 * sides[i].least);
        ek_attn_free(sides[i].attn);
        ek_free_big(sides[i].scratch, sides[i].scratch_bytes);
    }
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    char list[256];
    side sides[MAX_FORMATS];
    int n = 0;
    unsigned cpu;
    const char *isa = argc > 2 ? argv[2] : "avx512";
    const int rounds = argc > 3 ? atoi(argv[3]) : 24;
    threads = argc > 4 ? atoi(argv[4]) : 1;
    snprintf(list, sizeof list, "%s", argc > 1 ? argv[1] : "f16,bf16,16,8,4");
    fail_on(ek_cpu_mask(isa, &cpu));
    for (char *at = list, *name; (name = strsep(&at, ",")) && n < MAX_FORMATS; n++) {
        sides[n] = (side){.name = name};
        fail_on(ek_kv_format_parse(name, &sides[n].k, &sides[n].v));
    }
    ek_pool *pool;
    fail_on(ek_pool_open(&pool, threads));
    uint8_t *arena = ek_alloc_big(arena_bytes);
    /* As 16-bit floats between 2^-4 and 2: a denormal costs some processors a hundred cycles, and models have none. */
    for (size_t i = 0; i < arena_bytes; i += 8)
        *(uint64_t *)(arena + i) = (ek_mix64(i) & 0x3f3f3f3f3f3f3f3f) | 0x3030303030303030;
    const size_t floats = (size_t)MAX_ROWS * MAX_HEADS * EK_MAX_HEAD_DIM;
    float *q = ek_alloc_big(floats * sizeof *q), *o = ek_alloc_big(floats * sizeof *o);
    for (size_t i = 0; i < floats; i++) q[i] = (float)(int32_t)ek_mix64(i) * 0x1p-31f;
    printf("%s, %s, least ms of %d rounds, %d thread%s\n%-52s", ek_cpu_model(), isa, rounds, threads,
           threads > 1 ? "s" : "", "");
    for (int i = 0; i < n; i++) printf(" %8s", sides[i].name);
    printf("\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (argc < 6 || strchr(argv[5], '0' + (int)i)) bench(&cases[i], sides, n, rounds, pool, cpu, arena, q, o);
    ek_free_big(q, floats * sizeof *q);
    ek_free_big(o, floats * sizeof *o);
    ek_free_big(arena, arena_bytes);
    ek_pool_close(pool);
    return 0;
}
