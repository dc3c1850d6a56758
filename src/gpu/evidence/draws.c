/* Compares draws: a row for each way from logits to a token, with a mask, a bias and penalties among them. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "engine/sample/masks.h"
#include "engine/sample/sampler.h"
#include "gpu/evidence/evidence.h"

enum { VOCAB = 2000, ROWS = 7, N_TOKENS = 3, N_PROMPT = 1 };
static const int32_t history[N_TOKENS] = {5, 9, 700}, suppress[] = {0, VOCAB - 1};
enum { N_BIAS = 3 };
static const ek_logit_bias bias[N_BIAS] = {{7, 3}, {7, -1.25f}, {900, -INFINITY}};
static const struct {
    const char *kernel; /* that decides */
    float temperature;
    int top_k;
    float top_p, min_p;
} way[ROWS] = {{"ek_sample_all", 0, 0, 1, 0},
               {"ek_sample_all", 0.7f, 0, 1, 0},
               {"ek_sample_choose", 0.8f, 16, 0.95f, 0},
               {"ek_sample_choose", 1, 0, 0.9f, 0},
               {"ek_sample_choose", 1.3f, 0, 1, 0.05f},
               {"ek_sample_sort", 3, 1500, 0.999f, 0},
               {"ek_sample_choose", 9, 0, 0.9999f, 1e-6f}};

static ek_sampling options(int r)
{
    ek_sampling o = ek_sampling_greedy();
    o.temperature = way[r].temperature, o.top_k = way[r].top_k, o.top_p = way[r].top_p, o.min_p = way[r].min_p;
    o.seed = 0x9E3779B97F4A7C15u * (uint64_t)(r + 1);
    if (r % 2) o.bias = bias, o.n_bias = N_BIAS;
    if (r >= 3) o.repetition_penalty = 1.3f, o.presence_penalty = 0.5f, o.frequency_penalty = 0.25f;
    return o;
}

static ek_cuda_sample row_of(ek_trial *t, int r, const float *logits, const uint64_t *allowed)
{
    ek_cuda_bias entries[N_BIAS];
    static const ek_cuda_count counts[] = {{5, 0}, {9, 1}, {700, 1}};
    const ek_sampling o = options(r);
    ek_cuda_sample row = {.logits = ek_trial_up(t, logits, sizeof *logits * VOCAB),
                          .seed = o.seed,
                          .n_bias = o.n_bias,
                          .temperature = o.temperature,
                          .top_p = o.top_p,
                          .min_p = o.min_p,
                          .repetition = o.repetition_penalty,
                          .presence = o.presence_penalty,
                          .frequency = o.frequency_penalty,
                          .top_k = o.top_k,
                          .pos = N_TOKENS};
    for (int i = 0; i < N_BIAS; i++) entries[i] = (ek_cuda_bias){bias[i].token, bias[i].bias};
    if (o.n_bias) row.bias = ek_trial_up(t, entries, sizeof entries);
    if (ek_sampling_has_penalties(&o)) row.count = ek_trial_up(t, counts, sizeof counts), row.n_count = N_TOKENS;
    if (allowed) row.allowed = ek_trial_up(t, allowed, sizeof *allowed * (size_t)ek_mask_words(VOCAB));
    return row;
}

/* The same order as in gpu/step/sample.c. */
static void launch(ek_gpu *g, const ek_cuda_sample_args *a)
{
    const ek_cuda_grid each = {.x = 16, .y = ROWS, .threads = 256};
    ek_gpu_launch(g, "ek_sample_mask", each, a);
    ek_gpu_launch(g, "ek_sample_edit", (ek_cuda_grid){.x = ROWS, .threads = 256}, a);
    ek_gpu_launch(g, "ek_sample_scale", each, a);
    ek_gpu_launch(g, "ek_sample_weights", each, a);
    ek_gpu_launch(g, "ek_sample_choose", (ek_cuda_grid){.x = ROWS, .threads = 1024}, a);
    ek_gpu_launch(g, "ek_sample_all", each, a);
    ek_gpu_launch(g, "ek_sample_sort", (ek_cuda_grid){.x = 2, .threads = 1024}, a);
}

static void fill(float *logits, uint64_t *allowed)
{
    for (int i = 0; i < ROWS * VOCAB; i++)
        logits[i] = 4 * (float)((int)(ek_mix64((uint64_t)i) >> 40 & 0xffff) + (int)(ek_mix64(~(uint64_t)i) >> 48)) /
                    0x1p15f;
    for (int i = 0; i < ek_mask_words(VOCAB); i++) allowed[i] = ek_mix64((uint64_t)i + 99);
}

/* Changes a row as the first three kernels do, in place. */
static void edit(float *z, const ek_sampling *o, const uint64_t *mask)
{
    for (int i = 0; i < VOCAB; i++)
        if (mask && !(mask[i / 64] >> i % 64 & 1)) z[i] = -INFINITY;
    for (int i = 0; i < 2; i++) z[suppress[i]] = -INFINITY;
    for (int i = 0; i < o->n_bias; i++) z[o->bias[i].token] += o->bias[i].bias;
    for (int i = 0; i < N_TOKENS && ek_sampling_has_penalties(o); i++) {
        float *const v = &z[history[i]];
        *v = *v < 0 ? *v * o->repetition_penalty : *v / o->repetition_penalty;
        if (i >= N_PROMPT) *v = *v - o->presence_penalty, *v = *v - o->frequency_penalty;
    }
    for (int i = 0; i < VOCAB && o->temperature >= EK_MIN_TEMPERATURE; i++) z[i] = z[i] / o->temperature;
}

static const uint64_t *mask_of(int r, const uint64_t *allowed)
{
    return r % 3 == 1 ? allowed : NULL;
}

static ek_err compare(ek_trial *t, const ek_cuda_sample *row, const ek_cuda_sample_args *a, const int32_t *want,
                      float *logits, const uint64_t *allowed)
{
    for (int r = 0; r < ROWS; r++) {
        const ek_sampling o = options(r);
        float *const z = logits + r * VOCAB;
        edit(z, &o, mask_of(r, allowed));
        EK_TRY(ek_trial_floats(t, "ek_sample_mask, edit and scale", row[r].logits, z, VOCAB));
        EK_TRY(ek_trial_bytes(t, way[r].kernel, a->token + sizeof *want * (size_t)r, &want[r], sizeof *want));
    }
    return EK_OK;
}

ek_err ek_trial_draws(ek_trial *t)
{
    ek_sampler *cpu;
    ek_cuda_sample rows[ROWS];
    int32_t want[ROWS];
    const size_t blocks = (VOCAB + 63) / 64, leaves = (VOCAB + 255) / 256;
    float *const logits = ek_alloc(sizeof *logits * ROWS * VOCAB);
    uint64_t *const allowed = ek_alloc(sizeof *allowed * (size_t)ek_mask_words(VOCAB));
    t->used = 0;
    fill(logits, allowed);
    ek_sampler_open(&cpu, 0, VOCAB, suppress, 2);
    for (int r = 0; r < ROWS; r++) {
        const ek_sampling o = options(r);
        const uint64_t *const mask = mask_of(r, allowed);
        rows[r] = row_of(t, r, logits + r * VOCAB, mask);
        want[r] = ek_sample(cpu, logits + r * VOCAB, mask, &o, history, N_PROMPT, N_TOKENS);
    }
    ek_cuda_sample_args a = {.n_suppress = 2, .vocab_size = VOCAB, .n_rows = ROWS};
    uint64_t zero[3 * ROWS] = {0};
    a.best = ek_trial_up(t, zero, sizeof zero), a.draw = a.best + ROWS * sizeof *zero;
    a.rows = ek_trial_up(t, rows, sizeof rows), a.suppress = ek_trial_up(t, suppress, sizeof suppress);
    a.block = ek_trial_up(t, NULL, sizeof(float) * ROWS * blocks);
    a.leaf = ek_trial_up(t, NULL, sizeof(float) * ROWS * leaves);
    a.token = ek_trial_up(t, NULL, sizeof want), a.sorted = ek_trial_up(t, NULL, sizeof(uint64_t) * 2 * 2 * VOCAB);
    launch(t->g, &a);
    const ek_err err = compare(t, rows, &a, want, logits, allowed);
    ek_sampler_close(cpu);
    free(logits), free(allowed);
    return err;
}
