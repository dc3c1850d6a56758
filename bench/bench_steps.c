/* Formats of keys and values side by side: whole steps of one request on a model with random weights of a published
 * shape, at a depth. An engine per format stands in one process, and they take turns step by step, so that neither a
 * busy machine nor its changing clock favours one; medians. With one thread processor time counts, else time.
 * Usage: bench_steps SHAPE LAYERS DEPTH THREADS [formats [steps [isa]]], as in: bench_steps e2b 10 8192 1 f16,bf16,8,4
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash/rng.h"
#include "base/histogram.h"
#include "base/machine/cpu.h"
#include "engine/engine.h"

enum { MAX_FORMATS = 8 };

typedef struct side {
    const char *name;
    ek_model *model;
    ek_engine *engine;
    int tokens;
    double *time, *ratio;
} side;

static void fail_on(ek_err err)
{
    if (err == EK_OK) return;
    printf("%s\n", ek_err_text());
    exit(1);
}

static void on_event(void *arg, const ek_event *e)
{
    side *s = arg;
    s->tokens += e->token >= 0;
    if (e->finish == EK_FINISH_ERROR) fail_on(ek_fail(e->err, "%s", e->text));
}

/* Opens the model in the side's format and brings one request to its first token. */
static void prepare(side *s, const char *shape, int layers, int depth, int steps, ek_pool *pool, unsigned cpu)
{
    static ek_config config;
    ek_model_opts opts = {.cpu = cpu, .pool = pool};
    fail_on(ek_kv_format_parse(s->name, &opts.k_format, &opts.v_format));
    fail_on(ek_config_published(&config, shape, layers));
    fail_on(ek_model_synthetic(&s->model, &config, 4, 1, &opts));
    ek_engine_opts e = ek_engine_defaults();
    e.max_requests = 1, e.ctx_tokens = depth + steps + 2, e.cache_bytes = 0;
    fail_on(ek_engine_open(&s->engine, s->model, &e));
    int32_t *ids = ek_alloc((size_t)depth * sizeof *ids);
    for (int i = 0; i < depth; i++) ids[i] = (int32_t)(ek_mix64((uint64_t)i) % (uint64_t)config.vocab_size);
    const ek_request_opts r = {.tokens = ids,
                               .n_tokens = depth,
                               .max_tokens = INT_MAX,
                               .sampling = ek_sampling_greedy(),
                               .ignore_eos = true,
                               .sink = on_event,
                               .arg = s,
                               .prompt_logits_from = depth};
    fail_on(ek_engine_submit(s->engine, &r, NULL));
    while (s->tokens == 0) ek_engine_step(s->engine);
    free(ids);
    s->time = ek_alloc((size_t)steps * sizeof *s->time);
    s->ratio = ek_alloc((size_t)steps * sizeof *s->ratio);
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        printf("bench_steps SHAPE LAYERS DEPTH THREADS [formats [steps [isa]]]\n");
        return 2;
    }
    const int layers = atoi(argv[2]), depth = atoi(argv[3]), threads = atoi(argv[4]);
    const int steps = argc > 6 ? atoi(argv[6]) : 100;
    char list[256];
    snprintf(list, sizeof list, "%s", argc > 5 ? argv[5] : "f16,bf16,8,4");
    side sides[MAX_FORMATS];
    int n = 0;
    unsigned cpu = ek_cpu_detect();
    if (argc > 7) fail_on(ek_cpu_mask(argv[7], &cpu));
    ek_pool *pool;
    fail_on(ek_pool_open(&pool, threads));
    for (char *at = list, *name; (name = strsep(&at, ",")) && n < MAX_FORMATS; n++) {
        sides[n] = (side){.name = name};
        prepare(&sides[n], argv[1], layers, depth, steps, pool, cpu);
    }
    for (int i = 0; i < steps; i++) {
        for (int k = 0; k < n; k++) {
            side *s = &sides[(i + k) % n];
            const double start = threads == 1 ? ek_thread_time() : ek_now();
            ek_engine_step(s->engine);
            s->time[i] = (threads == 1 ? ek_thread_time() : ek_now()) - start;
        }
        for (int k = 0; k < n; k++) sides[k].ratio[i] = sides[k].time[i] / sides[0].time[i];
    }
    printf("%s, %s, %d layers, depth %d, %d threads, %d steps in turns\n", ek_cpu_model(), argv[1], layers, depth,
           threads, steps);
    printf("%8s %10s %10s %12s\n", "--kv", "median ms", "least ms", "to the first");
    for (int k = 0; k < n; k++) {
        const double ratio = ek_median(sides[k].ratio, steps), time = ek_median(sides[k].time, steps);
        printf("%8s %10.3f %10.3f %12.4f\n", sides[k].name, 1e3 * time, 1e3 * sides[k].time[0], ratio);
        ek_engine_close(sides[k].engine);
        ek_model_close(sides[k].model);
        free(sides[k].time);
        free(sides[k].ratio);
    }
    ek_pool_close(pool);
    return 0;
}
