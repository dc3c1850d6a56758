#include "cli/selftest/selftest.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "engine/trace.h"

enum { N_ASKS = 4, MAX_PARTS = 2, MAX_TOKENS = 320, REPLY = 8, BUDGET = 70, SAMPLES = 20000 };

typedef struct bed {
    ek_model *m;
    const ek_config *c;
    ek_towers *towers;
    ek_part_kind kind;
    uint64_t seed;
    ek_media *media[2]; /* of one size */
    int32_t tokens[N_ASKS][MAX_TOKENS];
    ek_part part[N_ASKS][MAX_PARTS];
    ek_ask ask[N_ASKS];
    ek_trace want[N_ASKS];
} bed;

static ek_err draw_picture(bed *b, int which)
{
    ek_image image;
    const ek_picture_opts o = {.budget = BUDGET, .patching = ek_towers_get(b->towers)->patching};
    EK_TRY(ek_image_make(&image, 96, 64));
    for (size_t i = 0; i < ek_image_bytes(&image); i++)
        image.rgb[i] = (uint8_t)(ek_mix64(b->seed + (uint64_t)which * 7 + i / 24) >> 8);
    ek_err err = ek_media_make_picture(&b->media[which], EK_PART_IMAGE, &image, &o);
    ek_image_free(&image);
    return err;
}

static ek_err make_sound(bed *b, int which)
{
    float *v = ek_alloc(sizeof *v * SAMPLES);
    const int period = 40 + 7 * which;
    for (int i = 0; i < SAMPLES; i++) v[i] = (float)(i % period - period / 2) / (float)period;
    ek_err err = ek_media_make_sound(&b->media[which], v, SAMPLES, ek_towers_get(b->towers)->sound_kind);
    free(v);
    return err;
}

static int32_t text_token(const bed *b, uint64_t r)
{
    int32_t token = (int32_t)(ek_mix64(b->seed * 31 + r) % (uint64_t)b->c->vocab_size);
    while (ek_part_kind_of(&b->c->media, token) < EK_PART_KINDS) token--;
    return token;
}

static void add_text(bed *b, ek_ask *a, int32_t *tokens, uint64_t r, int n)
{
    for (int i = 0; i < n; i++) tokens[a->n_tokens++] = text_token(b, r + (uint64_t)i);
}

static void add_part(bed *b, ek_ask *a, int i, ek_media *m)
{
    b->tokens[i][a->n_tokens++] = b->c->media.begin[m->kind];
    b->part[i][a->n_parts++] = (ek_part){m, a->n_tokens};
    for (int k = 0; k < m->tokens; k++) b->tokens[i][a->n_tokens++] = b->c->media.soft[m->kind];
    b->tokens[i][a->n_tokens++] = b->c->media.end[m->kind];
}

/* Two requests that differ only in the picture or sound, one with both, one of text. */
static void grow(bed *b)
{
    for (int i = 0; i < N_ASKS; i++) {
        ek_ask *a = &b->ask[i];
        *a = (ek_ask){.tokens = b->tokens[i], .part = b->part[i], .max_tokens = REPLY, .ignore_eos = true};
        a->sampling = ek_sampling_greedy();
        add_text(b, a, b->tokens[i], 0, 9);
        if (i < 2) add_part(b, a, i, b->media[i]);
        if (i == 2) add_part(b, a, i, b->media[1]), add_part(b, a, i, b->media[0]);
        add_text(b, a, b->tokens[i], i == 3 ? 900 : 100, 12);
        a->prompt_logits_from = i == 2 ? a->n_tokens : 0;
    }
}

static ek_err run(bed *b, const ek_ask *ask, int n, int chunk, ek_trace *out, ek_engine_stats *stats)
{
    ek_engine_opts o = ek_engine_defaults();
    ek_engine *e;
    o.max_requests = o.max_queue = n;
    o.ctx_tokens = MAX_TOKENS + REPLY < b->c->max_position_embeddings ? MAX_TOKENS + REPLY : 0;
    if (chunk) o.chunk = chunk;
    o.towers = b->towers;
    EK_TRY(ek_engine_open(&e, b->m, &o));
    ek_err err = ek_trace_run(e, ask, n, out);
    ek_engine_stats_read(e, stats);
    ek_engine_close(e);
    return err;
}

static bool run_alone(bed *b, char *where, size_t room)
{
    ek_engine_stats stats;
    for (int i = 0; i < N_ASKS; i++) {
        ek_err err = run(b, &b->ask[i], 1, 0, &b->want[i], &stats);
        if (!err && b->want[i].finish != EK_FINISH_ERROR) continue;
        snprintf(where, room, "alone: %s", err ? ek_err_text() : b->want[i].text);
        return false;
    }
    const int last = b->ask[0].n_tokens - 1;
    if (b->want[0].row[last] != b->want[1].row[last]) return true;
    snprintf(where, room, "two %s give the same logits: this row proved nothing",
             b->kind == EK_PART_SOUND ? "sounds" : "pictures");
    return false;
}

/* All requests together, each twice. */
static bool run_company(bed *b, int chunk, int apart, char *where, size_t room)
{
    ek_ask ask[2 * N_ASKS];
    ek_trace got[2 * N_ASKS] = {0};
    ek_engine_stats stats;
    for (int i = 0; i < 2 * N_ASKS; i++) {
        ask[i] = b->ask[i % N_ASKS];
        ask[i].arrive = i / N_ASKS * 1000 + i * apart;
    }
    bool good = run(b, ask, 2 * N_ASKS, chunk, got, &stats) == EK_OK;
    if (!good) snprintf(where, room, "%s", ek_err_text());
    for (int i = 0; i < 2 * N_ASKS; i++) {
        good = good && ek_trace_same(&b->want[i % N_ASKS], &got[i], where, room);
        ek_trace_fini(&got[i]);
    }
    if (good && stats.media_reused[b->kind == EK_PART_SOUND] == 0) {
        snprintf(where, room, "no features were there again: this row proved nothing");
        return false;
    }
    return good;
}

static bool run_all(bed *b, char *did, char *where, size_t room)
{
    const bool sound = b->kind == EK_PART_SOUND;
    ek_err err = EK_OK;
    for (int i = 0; i < 2 && !err; i++) err = sound ? make_sound(b, i) : draw_picture(b, i);
    if (err) {
        snprintf(where, room, "%s", ek_err_text());
        return false;
    }
    grow(b);
    if (!run_alone(b, where, room)) return false;
    static const int chunks[] = {0, 7, 64};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++)
        if (!run_company(b, chunks[i], (int)i, where, room)) return false;
    snprintf(did, room, "2 %s of %d tokens, in 4 prompts", sound ? "sounds" : "images", b->media[0]->tokens);
    return true;
}

bool ek_selftest_media(ek_model *m, ek_towers *t, ek_part_kind kind, uint64_t seed, char *did, char *where, size_t room)
{
    bed *b = ek_alloc(sizeof *b);
    *b = (bed){.m = m, .c = ek_model_config(m), .towers = t, .kind = kind, .seed = seed};
    const bool good = run_all(b, did, where, room);
    for (int i = 0; i < N_ASKS; i++) ek_trace_fini(&b->want[i]);
    for (int i = 0; i < 2; i++) ek_media_release(b->media[i]);
    free(b);
    return good;
}
