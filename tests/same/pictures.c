/* Pictures, frames and sounds of scenes, and a tower that reads them. */
#include "pictures.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"

static uint64_t draw(const scene *s, uint64_t what)
{
    return ek_mix64(ek_mix64(s->seed ^ 0x9c7) + what);
}

/* Other than a soft token. */
static int32_t text_token(const scene *s, int32_t token)
{
    return token >= s->config.vocab_size - EK_PART_KINDS ? token - EK_PART_KINDS : token;
}

static void make_media(scene *s)
{
    static const int tokens[N_CONTENTS / 2] = {9, LONGEST_SPAN, 20, 33};
    for (int k = 0; k < EK_PART_KINDS; k++) s->config.media.soft[k] = s->config.vocab_size - 1 - k;
    for (int i = 0; i < N_CONTENTS; i++) {
        ek_media *m = s->media[i] = ek_alloc(sizeof *m);
        m->kind = (ek_part_kind)(i / 2 % EK_PART_KINDS);
        m->tokens = tokens[i / 2];
        for (int k = 0; k < 4; k++) {
            uint64_t r = draw(s, 8000 + (uint64_t)(i * 4 + k));
            memcpy(m->digest + 8 * k, &r, sizeof r);
        }
        atomic_init(&m->refs, 1);
    }
}

/* As the ask before, but for one of its pictures. */
static void grow_twin(scene *s, int i)
{
    ek_ask *a = &s->ask[i];
    const ek_ask *of = &s->ask[i - 1];
    int at = (int)(draw(s, 8300 + (uint64_t)i) % (uint64_t)of->n_parts);
    a->n_tokens = of->n_tokens, a->n_parts = of->n_parts, a->prompt_logits_from = of->prompt_logits_from;
    s->tokens[i] = ek_realloc(s->tokens[i], sizeof *s->tokens[i] * (size_t)a->n_tokens);
    a->tokens = memcpy(s->tokens[i], of->tokens, sizeof *of->tokens * (size_t)a->n_tokens);
    memcpy(s->part[i], s->part[i - 1], sizeof s->part[i]);
    int which = 0;
    while (s->media[which] != s->part[i][at].media) which++;
    s->part[i][at].media = s->media[which ^ 1];
}

void scene_grow_media(scene *s)
{
    make_media(s);
    for (int i = 0; i < s->n; i++) {
        ek_ask *a = &s->ask[i];
        a->part = s->part[i];
        if (i > 0 && s->ask[i - 1].n_parts > 0 && draw(s, 8400 + (uint64_t)i) % 2) {
            grow_twin(s, i);
            continue;
        }
        for (int k = 0; k < a->n_tokens; k++) s->tokens[i][k] = text_token(s, s->tokens[i][k]);
        for (int k = 0, at = 0; k < MAX_SPANS; k++) {
            uint64_t r = draw(s, 8100 + (uint64_t)(i * MAX_SPANS + k));
            ek_part *part = &s->part[i][k];
            *part = (ek_part){s->media[(r >> 8) % N_CONTENTS], at + 1 + (int)(r % 50)};
            at = part->first + part->media->tokens;
            if (at > a->n_tokens) break;
            for (int p = part->first; p < at; p++) s->tokens[i][p] = s->config.media.soft[part->media->kind];
            a->n_parts++;
        }
    }
}

/* --- a tower: rows are a hash of the content */

static struct {
    const ek_media *m;
    float *rows;
    double left;
    int hidden;
} tower;

static ek_err begin_tower(void *arg, const ek_media *m, float *rows)
{
    (void)arg;
    EK_ASSERT(!tower.m);
    tower.m = m, tower.rows = rows, tower.left = m->tokens * 1000.0;
    memset(rows, 0xff, sizeof *rows * (size_t)m->tokens * (size_t)tower.hidden);
    return EK_OK;
}

static ek_err advance_tower(void *arg, double macs, bool *done)
{
    const ek_media *m = tower.m;
    uint64_t h;
    (void)arg;
    tower.left -= macs;
    *done = tower.left <= 0;
    if (!*done) return EK_OK;
    memcpy(&h, m->digest, sizeof h);
    for (int i = 0; i < m->tokens * tower.hidden; i++)
        tower.rows[i] = (float)(int32_t)(ek_mix64(h + (uint64_t)i) >> 32) * 0x1p-31f;
    tower.m = NULL;
    return EK_OK;
}

static void drop_tower(void *arg)
{
    (void)arg;
    tower.m = NULL;
}

ek_encoder scene_encoder(const scene *s)
{
    tower.m = NULL;
    tower.hidden = s->config.hidden_size;
    return (ek_encoder){.takes = {true, true, true},
                        .everywhere = s->seed % 2,
                        .max_tokens = LONGEST_SPAN,
                        .row_macs = 100,
                        .begin = begin_tower,
                        .advance = advance_tower,
                        .drop = drop_tower};
}

void scene_free_media(scene *s)
{
    for (int i = 0; i < N_CONTENTS && s->media[i]; i++) {
        EK_ASSERT(atomic_load(&s->media[i]->refs) == 1); /* no request and no engine holds it */
        ek_media_release(s->media[i]);
    }
}
