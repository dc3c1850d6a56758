/* Sampling: the token of every row against engine/sample/sampler.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash/rng.h"
#include "dev.h"
#include "engine/sample/masks.h"
#include "engine/sample/sampler.h"

enum { MAX_ROWS = 32, SORTERS = 3 };

typedef struct batch {
    int n_rows, vocab;
    ek_sampling opt[MAX_ROWS];
    float *logits[MAX_ROWS];
    const int32_t *tokens[MAX_ROWS];
    int n_prompt[MAX_ROWS], n_tokens[MAX_ROWS];
    const uint64_t *allowed[MAX_ROWS]; /* NULL: all */
} batch;

typedef struct queued {
    dev *d;
    ek_cuda_sample_args a;
    int n_rows;
    CUdeviceptr held[8 + 4 * MAX_ROWS];
    int n_held;
    size_t best_bytes;
} queued;

static CUdeviceptr hold(queued *s, const void *from, size_t bytes)
{
    return s->held[s->n_held++] = up(s->d, from, bytes);
}

static int by_token(const void *a, const void *b)
{
    const ek_cuda_bias *x = a, *y = b;
    return x->token != y->token ? (x->token > y->token) - (x->token < y->token) : 0;
}

/* Entries of a token adjacent and in their order. */
static void sort_bias(ek_cuda_bias *b, int n)
{
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && by_token(&b[j - 1], &b[j]) > 0; j--) {
            ek_cuda_bias t = b[j];
            b[j] = b[j - 1], b[j - 1] = t;
        }
}

static ek_cuda_sample row_of(queued *s, const batch *b, int r)
{
    const ek_sampling *o = &b->opt[r];
    ek_cuda_bias *bias = calloc((size_t)o->n_bias + 1, sizeof *bias);
    ek_cuda_count *count = calloc((size_t)b->n_tokens[r] + 1, sizeof *count);
    int n_count = 0;
    for (int i = 0; i < o->n_bias; i++) bias[i] = (ek_cuda_bias){o->bias[i].token, o->bias[i].bias};
    sort_bias(bias, o->n_bias);
    bool penalties = o->repetition_penalty != 1 || o->presence_penalty != 0 || o->frequency_penalty != 0;
    for (int i = 0; i < b->n_tokens[r] && penalties; i++) {
        int k = 0;
        while (k < n_count && count[k].token != b->tokens[r][i]) k++;
        if (k == n_count) count[n_count++] = (ek_cuda_count){b->tokens[r][i], 0};
        if (i >= b->n_prompt[r]) count[k].replied++;
    }
    ek_cuda_sample row = {.logits = hold(s, b->logits[r], (size_t)b->vocab * 4),
                          .bias = hold(s, bias, (size_t)(o->n_bias + 1) * sizeof *bias),
                          .count = hold(s, count, (size_t)(n_count + 1) * sizeof *count),
                          .seed = o->seed,
                          .n_bias = o->n_bias,
                          .n_count = n_count,
                          .temperature = o->temperature,
                          .top_p = o->top_p,
                          .min_p = o->min_p,
                          .repetition = o->repetition_penalty,
                          .presence = o->presence_penalty,
                          .frequency = o->frequency_penalty,
                          .top_k = o->top_k,
                          .pos = b->n_tokens[r]};
    if (b->allowed[r]) row.allowed = hold(s, b->allowed[r], sizeof(uint64_t) * (size_t)ek_mask_words(b->vocab));
    free(bias), free(count);
    return row;
}

static void prepare(queued *s, dev *d, const batch *b, const int32_t *suppress, int n_suppress)
{
    *s = (queued){.d = d, .n_rows = b->n_rows};
    ek_cuda_sample row[MAX_ROWS];
    for (int r = 0; r < b->n_rows; r++) row[r] = row_of(s, b, r);
    size_t n = (size_t)b->n_rows, blocks = (size_t)(b->vocab + 63) / 64, leaves = (size_t)(b->vocab + 255) / 256;
    s->best_bytes = n * 3 * 8;
    CUdeviceptr best = hold(s, NULL, s->best_bytes);
    s->a = (ek_cuda_sample_args){.rows = hold(s, row, n * sizeof *row),
                                 .suppress = hold(s, suppress, (size_t)n_suppress * 4),
                                 .best = best,
                                 .draw = best + n * 8,
                                 .block = hold(s, NULL, n * blocks * 4),
                                 .leaf = hold(s, NULL, n * leaves * 4),
                                 .token = hold(s, NULL, n * 4),
                                 .sorted = hold(s, NULL, SORTERS * 2 * 8 * (size_t)b->vocab),
                                 .n_suppress = n_suppress,
                                 .vocab_size = b->vocab,
                                 .n_rows = b->n_rows};
}

static void queue(void *arg, int i)
{
    queued *s = arg;
    dev *d = s->d;
    (void)i;
    unsigned rows = (unsigned)s->n_rows, wide = s->n_rows > 8 ? 16 : 64;
    ek_cuda_kernel mask = find(d, "ek_sample_mask", 0), edit = find(d, "ek_sample_edit", 0),
                   scale = find(d, "ek_sample_scale", 0), weights = find(d, "ek_sample_weights", 0),
                   choose = find(d, "ek_sample_choose", 0), all = find(d, "ek_sample_all", 0);
    must(ek_cuda_fill(d->c, s->a.best, 0, s->best_bytes));
    launch(d, &mask, (ek_cuda_grid){.x = wide, .y = rows, .threads = 256}, &s->a);
    launch(d, &edit, (ek_cuda_grid){.x = rows, .threads = 256}, &s->a);
    launch(d, &scale, (ek_cuda_grid){.x = wide, .y = rows, .threads = 256, .overlap = true}, &s->a);
    launch(d, &weights, (ek_cuda_grid){.x = wide, .y = rows, .threads = 256, .overlap = true}, &s->a);
    launch(d, &choose, (ek_cuda_grid){.x = rows, .threads = 1024}, &s->a);
    launch(d, &all, (ek_cuda_grid){.x = wide, .y = rows, .threads = 256}, &s->a);
}

/* Behind queue: what it left undecided. */
static void queue_sort(void *arg, int i)
{
    queued *s = arg;
    (void)i;
    ek_cuda_kernel sort = find(s->d, "ek_sample_sort", 0);
    launch(s->d, &sort, (ek_cuda_grid){.x = SORTERS, .threads = 1024}, &s->a);
}

static void queue_both(void *arg, int i)
{
    queue(arg, i);
    queue_sort(arg, i);
}

static void finish(queued *s)
{
    for (int i = 0; i < s->n_held; i++) drop(s->d, s->held[i]);
}

/* kind 0: wide, like a capped head; 1: many ties; 2: nearly flat; 3: one far above */
static void make_logits(float *z, int n, int kind, uint64_t seed)
{
    for (int i = 0; i < n; i++) {
        uint64_t at = (uint64_t)i;
        float sum = uniform(seed, at) + uniform(seed + 1, at) + uniform(seed + 2, at) + uniform(seed + 3, at);
        z[i] = kind == 1 ? floorf(sum * 20) / 4 : kind == 2 ? sum * 0.01f : sum * 5;
    }
    if (kind == 3) z[n / 2] = 29;
}

static void compare(dev *d, int vocab, int *sorted)
{
    static const struct {
        float temperature;
        int top_k;
        float top_p, min_p;
    } o[] = {{0, 0, 1, 0},        {1, 0, 1, 0},           {0.7f, 64, 0.95f, 0}, {1, 64, 1, 0},        {1.3f, 1, 1, 0},
             {1, 1000, 1, 0.01f}, {1, 1024, 0.9f, 0},     {1, 0, 0.9f, 0},      {0.8f, 0, 0.5f, 0},   {1, 0, 1, 0.05f},
             {2, 0, 0.99f, 0.1f}, {1, 50, 0, 0},          {1, 7, 0.3f, 0.5f},   {0.3f, 0, 1, 0},      {5, 20, 1, 0},
             {1, 1025, 1, 0},     {1.5f, 3000, 0.97f, 0}, {2, 0, 0.9999f, 0},   {3, 4000, 1, 0.001f}, {9, 0, 1, 1e-6f}};
    enum { N = sizeof o / sizeof *o };
    ek_sampler *cpu;
    int32_t suppress[] = {0, 5, vocab - 1}, history[200];
    ek_sampler_open(&cpu, 0, vocab, suppress, 3);
    ek_logit_bias bias[] = {{7, 3}, {9, -INFINITY}, {7, 0.1f}, {vocab / 2, -4}, {7, -1}};
    uint64_t *allowed = malloc(sizeof *allowed * (size_t)ek_mask_words(vocab));
    for (int i = 0; i < ek_mask_words(vocab); i++)
        allowed[i] = i % 3 ? ek_mix64((uint64_t)i) : ek_mix64((uint64_t)i) & ek_mix64(~(uint64_t)i) & 0xff00ff;
    for (int i = 0; i < 200; i++) history[i] = (int32_t)((i * i * 31 + i) % (vocab < 90 ? vocab : 90));
    for (int kind = 0; kind < 4; kind++)
        for (int variant = 0; variant < (d->quick ? 2 : 4); variant++) {
            batch b = {.n_rows = N, .vocab = vocab};
            int32_t want[N];
            for (int r = 0; r < N; r++) {
                bool extra = variant % 2;
                b.opt[r] = (ek_sampling){.temperature = o[r].temperature,
                                         .top_k = o[r].top_k,
                                         .top_p = o[r].top_p,
                                         .min_p = o[r].min_p,
                                         .repetition_penalty = extra ? 1.3f : 1,
                                         .presence_penalty = extra ? 0.5f : 0,
                                         .frequency_penalty = extra ? 0.2f : 0,
                                         .seed = 1234567u * (uint64_t)(variant + 1) + ((uint64_t)r << 40),
                                         .bias = bias,
                                         .n_bias = variant >= 1 ? 5 : 0};
                b.tokens[r] = history, b.n_prompt[r] = 60, b.n_tokens[r] = 100 + 3 * r;
                b.logits[r] = malloc((size_t)vocab * 4);
                make_logits(b.logits[r], vocab, kind, (uint64_t)(100 * r + variant));
                if (variant == 3 && r == 4)
                    for (int i = 0; i < vocab; i++) b.logits[r][i] = -INFINITY;
                if (variant >= 2 && r % 3 == 0) b.allowed[r] = allowed;
                want[r] = ek_sample(cpu, b.logits[r], b.allowed[r], &b.opt[r], history, b.n_prompt[r], b.n_tokens[r]);
            }
            queued s;
            prepare(&s, d, &b, suppress, 3);
            queue(&s, 0);
            int32_t *got = down(d, s.a.token, sizeof want);
            for (int r = 0; r < N; r++) *sorted += got[r] == EK_CUDA_UNDECIDED;
            free(got);
            queue_sort(&s, 0);
            got = down(d, s.a.token, sizeof want);
            same(d, want, got, sizeof want, false, "sampling, vocabulary %d, logits %d, variant %d", vocab, kind,
                 variant);
            finish(&s);
            for (int r = 0; r < N; r++) free(b.logits[r]);
        }
    free(allowed);
    ek_sampler_close(cpu);
}

void test_sample(dev *d)
{
    int sorted = 0;
    compare(d, 300, &sorted);
    if (!d->few) compare(d, 5003, &sorted);
    if (!d->quick) compare(d, 262144, &sorted);
    printf("         %d rows were sorted\n", sorted);
}

void speed_sample(dev *d)
{
    enum { VOCAB = 262144 };
    static const struct {
        const char *name;
        float temperature;
        int top_k;
        float top_p;
    } o[] = {{"greedy", 0, 0, 1},
             {"all", 1, 0, 1},
             {"top_k 64, top_p .95", 1, 64, 0.95f},
             {"top_p .9", 1, 0, 0.9f},
             {"top_k 4000, sorted", 1, 4000, 1},
             {"top_p .9999, sorted", 9, 0, 0.9999f}};
    for (int n = 1; n <= 32; n *= 32)
        for (size_t i = 0; i < sizeof o / sizeof *o; i++) {
            batch b = {.n_rows = n, .vocab = VOCAB};
            for (int r = 0; r < n; r++) {
                b.opt[r] = (ek_sampling){.temperature = o[i].temperature,
                                         .top_k = o[i].top_k,
                                         .top_p = o[i].top_p,
                                         .repetition_penalty = 1,
                                         .seed = (uint64_t)r};
                b.logits[r] = malloc(VOCAB * 4);
                make_logits(b.logits[r], VOCAB, 0, (uint64_t)r);
            }
            queued s;
            prepare(&s, d, &b, NULL, 0);
            printf("sampling %2d rows, %s: %.1f us\n", n, o[i].name,
                   time_us(d, strstr(o[i].name, "sorted") ? queue_both : queue, &s, 8));
            finish(&s);
            for (int r = 0; r < n; r++) free(b.logits[r]);
        }
}
