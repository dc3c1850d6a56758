/* How long a stream waits while an image or a sound of another request is encoded: an engine on random weights of a
 * published shape, 4 bits, with the towers of that shape (or of a folder). In steps of 512 rows of a prompt, by
 * processor time of the whole process, so that other programs do not count.
 * Usage: bench_slices SHAPE LAYERS THREADS [TOWERS [N]], as in: bench_slices e2b 0 2; LAYERS 0: all; TOWERS: a folder,
 * or
 * "-"; N: ends when the stream has N tokens of the time of an encoding */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "base/machine/cpu.h"
#include "engine/engine.h"
#include "media/limits.h"
#include "media/part/part.h"

enum { STEP = 512, CONTEXT = 4096, TOKENS = 1120 };

typedef struct stream {
    int tokens, finished;
    clock_t last, longest;
} stream;

static ek_config config;
static ek_engine *engine;
static ek_towers *towers;
static double step; /* seconds of a step of a prompt */
static int max_tokens = INT_MAX;

static void fail_on(ek_err err)
{
    if (err == EK_OK) return;
    printf("%s\n", ek_err_text());
    exit(1);
}

static double seconds(clock_t t)
{
    return (double)t / CLOCKS_PER_SEC;
}

static void on_event(void *arg, const ek_event *e)
{
    stream *s = arg;
    if (e->finish == EK_FINISH_ERROR) fail_on(ek_fail(e->err, "%s", e->text));
    s->finished += e->finish != EK_FINISH_NONE;
    s->tokens += e->token >= 0;
    const clock_t now = clock();
    if (s->tokens > 1 && now - s->last > s->longest) s->longest = now - s->last;
    s->last = now;
}

/* A prompt of n tokens, of which m, unless NULL, has those behind the third. */
static ek_request_id submit(stream *s, uint64_t seed, int n, int reply, ek_media *m)
{
    static int32_t ids[CONTEXT];
    ek_part part = {.media = m, .first = 4};
    ek_request_id id;
    int at = 0;
    for (; at < 3; at++) ids[at] = (int32_t)(1000 + ek_mix64(seed + (uint64_t)at) % 200000);
    if (m) ids[at++] = config.media.begin[m->kind];
    for (int i = 0; m && i < m->tokens; i++) ids[at++] = config.media.soft[m->kind];
    if (m) ids[at++] = config.media.end[m->kind];
    for (; at < n || at < 8 || (m && at < m->tokens + 10); at++)
        ids[at] = (int32_t)(1000 + ek_mix64(seed + (uint64_t)at) % 200000);
    const ek_request_opts r = {.tokens = ids,
                               .n_tokens = at,
                               .part = &part,
                               .n_parts = m != NULL,
                               .max_tokens = reply,
                               .sampling = ek_sampling_greedy(),
                               .ignore_eos = true,
                               .sink = on_event,
                               .arg = s,
                               .prompt_logits_from = at};
    fail_on(ek_engine_submit(engine, &r, &id));
    return id;
}

static void open_all(const char *shape, int layers, int threads, const char *folder)
{
    ek_pool *pool;
    ek_model *model;
    fail_on(ek_pool_open(&pool, threads));
    ek_model_opts opts = {.cpu = ek_cpu_detect(), .pool = pool};
    fail_on(ek_config_published(&config, shape, layers));
    fail_on(ek_model_synthetic(&model, &config, 4, 1, &opts));
    const ek_towers_opts t = {.cpu = opts.cpu, .pool = pool, .synthetic = folder ? NULL : shape};
    fail_on(ek_towers_open(&towers, folder, &t));
    ek_engine_opts o = ek_engine_defaults();
    o.max_requests = 2, o.ctx_tokens = CONTEXT, o.cache_bytes = 0, o.feature_bytes = 0;
    o.towers = towers, o.load_towers = true;
    fail_on(ek_engine_open(&engine, model, &o));
}

static void measure_step(void)
{
    stream s = {0};
    for (int i = 0; i < 3; i++) {
        submit(&s, 1000 * (uint64_t)i, STEP, 1, NULL);
        const clock_t start = clock();
        while (ek_engine_step(engine)) continue;
        const double took = seconds(clock() - start);
        if (i == 0 || took < step) step = took;
    }
}

/* A stream beside the encoding of m: its longest gap then, and without it. */
static void measure(ek_media *m, const char *what)
{
    stream a = {0}, b = {0};
    const ek_request_id id = submit(&a, 7, 20, INT_MAX, NULL);
    while (a.tokens < 12) ek_engine_step(engine);
    const double alone = seconds(a.longest);
    a.longest = 0;
    const ek_request_id other = submit(&b, 8, 0, 1, m);
    const clock_t start = clock();
    const int before = a.tokens;
    double longest = 0, took = 0;
    int n = 0;
    while (!b.finished && n < max_tokens) {
        ek_engine_stats stats;
        if (took == 0) longest = seconds(a.longest), n = a.tokens - before;
        ek_engine_step(engine);
        ek_engine_stats_read(engine, &stats);
        if (took == 0 && stats.encoded[m->kind == EK_PART_SOUND]) took = seconds(clock() - start);
    }
    const bool whole = took > 0;
    if (!whole) took = seconds(clock() - start);
    ek_engine_cancel(engine, id), ek_engine_cancel(engine, other);
    while (ek_engine_step(engine)) continue;
    printf(
        "%s, %s in %.1f s, with %d tokens of a stream in between, at most %.3f s from one to the next, which are %.2f "
        "steps of %d rows (%.3f s); alone %.3f s; while its rows were computed %.2f steps\n",
        what, whole ? "encoded" : "begun", took, n, longest, longest / step, STEP, step, alone,
        seconds(a.longest) / step);
}

static void measure_image(void)
{
    const ek_picture_opts o = {.budget = TOKENS, .patching = ek_towers_get(towers)->patching};
    ek_image image;
    ek_media *m;
    fail_on(ek_image_make(&image, 1920, 1344));
    for (size_t i = 0; i < ek_image_bytes(&image); i++) image.rgb[i] = (uint8_t)(i * i >> 7);
    fail_on(ek_media_make_picture(&m, EK_PART_IMAGE, &image, &o));
    measure(m, "an image of 1,120 tokens");
    ek_media_release(m);
    ek_image_free(&image);
}

static void measure_sound(void)
{
    enum { SAMPLES = 30 * EK_SOUND_RATE };
    float *v = ek_alloc(sizeof *v * SAMPLES);
    ek_media *m;
    for (int i = 0; i < SAMPLES; i++) v[i] = (float)(ek_mix64((uint64_t)i) % 1000) / 1000 - 0.5f;
    fail_on(ek_media_make_sound(&m, v, SAMPLES, ek_towers_get(towers)->sound_kind));
    measure(m, "a sound of 30 s");
    ek_media_release(m);
    free(v);
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        printf("usage: bench_slices SHAPE LAYERS THREADS [TOWERS [N]]\n");
        return 2;
    }
    open_all(argv[1], atoi(argv[2]), atoi(argv[3]), argc > 4 && strcmp(argv[4], "-") != 0 ? argv[4] : NULL);
    if (argc > 5) max_tokens = atoi(argv[5]);
    measure_step();
    if (ek_towers_get(towers)->image) measure_image();
    if (ek_towers_get(towers)->sound) measure_sound();
    return 0;
}
