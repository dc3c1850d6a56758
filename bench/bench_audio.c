/* 30 s of sound through an audio tower of E2B's shapes with random weights, in each instruction set: how long a prompt
 * waits for it. Usage: bench_audio [THREADS] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash/rng.h"
#include "base/machine/cpu.h"
#include "media/limits.h"
#include "model/tower/tower_part.h"

enum { TEXT = 1536, HIDDEN = 1024, LARGEST = 4 * HIDDEN * HIDDEN };
static const double limit = 5; /* seconds, on two cores */

static uint16_t weights[LARGEST];                  /* bf16, of every tensor */
static const uint16_t bound[2] = {0xc1a0, 0x41a0}; /* -20, 20 */

static bool ends(const char *s, const char *with)
{
    const size_t n = strlen(s), m = strlen(with);
    return n >= m && strcmp(s + n - m, with) == 0;
}

static bool find(ek_tower_source *s, const char *name, ek_tower_tensor *out)
{
    static const struct {
        const char *end;
        int n;
        int64_t dim[4];
    } shape[] = {{"layer0.conv.weight", 4, {128, 1, 3, 3}},
                 {"layer1.conv.weight", 4, {32, 128, 3, 3}},
                 {"layer0.norm.weight", 1, {128}},
                 {"layer1.norm.weight", 1, {32}},
                 {"depthwise_conv1d.weight", 3, {HIDDEN, 1, 5}},
                 {"per_dim_scale", 1, {128}},
                 {"output_proj.bias", 1, {1536}},
                 {"_min", 0, {0}},
                 {"_max", 0, {0}},
                 {"weight", 1, {HIDDEN}}};
    size_t i = 0;
    (void)s;
    while (!ends(name, shape[i].end)) i++;
    *out = (ek_tower_tensor){.name = name, .file = "-", .n_dims = shape[i].n, .type = ek_weight_type_float(EK_BF16)};
    memcpy(out->dim, shape[i].dim, sizeof shape[i].dim);
    out->data = (const uint8_t *)(ends(name, "_min") ? &bound[0] : ends(name, "_max") ? &bound[1] : weights);
    return true;
}

static bool has(ek_tower_source *s, const char *begin)
{
    (void)s, (void)begin;
    return true;
}

static ek_err matrix(ek_tower_source *s, const char *name, int n, int k, ek_weight_data *out)
{
    (void)s, (void)name, (void)n, (void)k;
    *out = (ek_weight_data){.type = ek_weight_type_float(EK_BF16), .plane = {(const uint8_t *)weights}};
    return EK_OK;
}

static double process_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static ek_err bench(const char *isa, int threads, const ek_sound *sound)
{
    static const ek_tower_source_ops ops = {.find = find, .has = has, .matrix = matrix};
    json_t *config = json_pack("{s:{s:s}}", "audio_config", "model_type", "gemma4_audio");
    ek_tower_source source = {.ops = &ops, .path = (char *)(uintptr_t) "-", .file = "-", .config = config};
    ek_tower_binder bound_weights = {.from = &source};
    ek_tower_ops kernels = {0};
    ek_weights *block = ek_alloc(sizeof *block);
    ek_tower_part *part;
    ek_tower_work *work;
    ek_sound_kind kind;
    int tokens;
    EK_TRY(ek_cpu_mask(isa, &kernels.cpu));
    EK_TRY(ek_pool_open(&kernels.pool, threads));
    ek_linear_init(&kernels.linear, kernels.cpu);
    ek_row_init(&kernels.rows, kernels.cpu);
    const ek_pack_opts pack = {.cpu = kernels.cpu, .pool = kernels.pool};
    EK_TRY(ek_tower_audio_open(&part, &kind, &bound_weights, &kernels, TEXT));
    EK_TRY(ek_items_plan(&bound_weights.items, block, &pack));
    EK_TRY(ek_items_pack(&bound_weights.items, block, &pack));
    EK_TRY(part->ops->ready(part));
    EK_TRY(ek_sound_tokens(&tokens, sound->samples, kind));
    double best = 1e9, least = 1e9, macs = 0;
    for (int round = 0; round < 3; round++) {
        const double begin = ek_now(), cpu = process_time();
        EK_TRY(ek_tower_audio_begin(&work, part, sound, tokens));
        macs = work->left;
        while (work->left > 0) work->ops->advance(work, macs);
        const double took = ek_now() - begin, spent = process_time() - cpu;
        best = took < best ? took : best, least = spent < least ? spent : least;
        work->ops->free(work);
    }
    printf(
        "%-10s %d threads: %6.2f s (limit on two cores %.0f s), %6.2f s of processor time, %6.1f G multiply-adds/s\n",
        isa, threads, best, limit, least, macs / best / 1e9);
    part->ops->close(part);
    ek_pool_close(kernels.pool);
    json_decref(config);
    return EK_OK;
}

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? atoi(argv[1]) : 2;
    ek_sound sound = {EK_SOUND_MAX_SAMPLES, ek_alloc(sizeof(float) * EK_SOUND_MAX_SAMPLES)};
    for (int i = 0; i < sound.samples; i++) sound.v[i] = (float)(ek_mix64((uint64_t)i) >> 40) * 0x1p-24f - 0.5f;
    for (int i = 0; i < LARGEST; i++) { /* +-2^-5 to 2^-4, of every sign */
        const uint64_t h = ek_mix64((uint64_t)i + 1);
        weights[i] = (uint16_t)((h & 0x8000) | 0x3d00 | (h >> 20 & 0x7f));
    }
    printf("%s, 30 s of sound, E2B's shapes, bf16\n", ek_cpu_model());
    for (const char *const *isa = ek_cpu_isas() + 1; *isa; isa++) /* scalar takes minutes */
        if (bench(*isa, threads, &sound)) fprintf(stderr, "%s\n", ek_err_text());
    return 0;
}
