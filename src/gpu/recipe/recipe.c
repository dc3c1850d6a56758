#include "gpu/recipe/recipe.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "gpu/step/step.h"
#include "gpu/weights/weights.h"

enum { KEPT_BYTES = 4 << 20, PLACES = 1 << 12 }; /* room for some twenty numbers of rows of a model of 60 layers */

struct ek_gpu_recipe {
    int n_lines;
    const ek_gpu_line *line;
    const ek_gpu_open_word *open;
    uint64_t *args; /* the open words among them are filled in here */
};

typedef struct place {
    uint64_t key; /* 0: free */
    ek_gpu_recipe recipe;
} place;

/* Recipes are kept one behind the other; if one has no room, all are forgotten. */
struct ek_gpu_recipes {
    ek_gpu_writer writer;
    uint8_t *kept;
    size_t used;
    int n;
    place place[PLACES];
    uint64_t value[EK_GPU_VALUES];
    /* the recipe that is being queued, and its open words */
    const ek_gpu_recipe *queued;
    const ek_gpu_open_word *open;
    int line;
};

/* --- writing */

static void add_args(ek_gpu_writer *w, ek_gpu_line *line, const void *args, size_t bytes)
{
    EK_ASSERT(bytes % 8 == 0 && w->n_args + bytes / 8 <= EK_GPU_RECIPE_ARGS / 8);
    uint64_t *to = w->args + w->n_args;
    memcpy(to, args, bytes);
    line->args = (uint32_t)w->n_args;
    for (size_t i = 0; i < bytes / 8; i++) {
        if (to[i] - ek_gpu_open_value(0) >= EK_GPU_VALUES) continue;
        EK_ASSERT(w->n_opens < EK_GPU_OPENS);
        w->open[w->n_opens++] = (ek_gpu_open_word){(uint16_t)i, (uint16_t)(to[i] - ek_gpu_open_value(0))};
        line->n_opens++;
    }
    w->n_args += bytes / 8;
}

static ek_gpu_line *add_line(ek_gpu_writer *w)
{
    EK_ASSERT(w->n_lines < EK_GPU_LINES);
    ek_gpu_line *line = &w->line[w->n_lines++];
    *line = (ek_gpu_line){0};
    return line;
}

void ek_gpu_write(ek_gpu_writer *w, const char *kernel, ek_cuda_grid grid, const void *args, size_t bytes)
{
    ek_gpu_line *line = add_line(w);
    line->kernel = ek_gpu_kernel_named(w->x->g, kernel), line->grid = grid;
    add_args(w, line, args, bytes);
}

void ek_gpu_write_attention(ek_gpu_writer *w, ek_layer_kind kind, const ek_cuda_attn_args *args)
{
    ek_gpu_line *line = add_line(w);
    line->tail = w->of.tail, line->kind = (uint8_t)kind;
    add_args(w, line, args, sizeof *args);
}

typedef struct host_args {
    int32_t layer, n;
} host_args;

void ek_gpu_write_host(ek_gpu_writer *w, ek_gpu_other ask, int n)
{
    const host_args a = {w->of.layer, n};
    ek_gpu_line *line = add_line(w);
    line->other = ask;
    add_args(w, line, &a, sizeof a);
}

void ek_gpu_write_home(ek_gpu_writer *w)
{
    w->acts = w->x->buf.acts, w->other_acts = w->x->buf.acts2;
    for (int i = 0; i < 2; i++) w->operand[i] = w->x->buf.operand[i], w->holds[i] = 0;
}

/* --- keeping */

ek_gpu_recipes *ek_gpu_recipes_open(const ek_gpu_run *x)
{
    ek_gpu_recipes *r = ek_alloc(sizeof *r);
    r->kept = ek_alloc(KEPT_BYTES);
    r->writer.x = x;
    return r;
}

void ek_gpu_recipes_close(ek_gpu_recipes *r)
{
    if (!r) return;
    free(r->kept);
    free(r);
}

static uint64_t key_of(const ek_gpu_subject *s)
{
    EK_ASSERT(s->layer < 1 << 10 && s->n < 1 << 20 && s->want < 1 << 20);
    const unsigned bits = s->drops | s->tail << 1 | s->finishes << 2 | s->single << 3 | s->prompt << 4;
    return (uint64_t)s->section << 55 | (uint64_t)s->layer << 45 | (uint64_t)s->n << 25 | (uint64_t)s->want << 5 | bits;
}

/* The index of the key, or the free index where it belongs. */
static size_t place_of(const ek_gpu_recipes *r, uint64_t key)
{
    size_t at = ek_mix64(key) % PLACES;
    while (r->place[at].key && r->place[at].key != key) at = (at + 1) % PLACES;
    return at;
}

const ek_gpu_recipe *ek_gpu_recipe_find(const ek_gpu_recipes *r, const ek_gpu_subject *of)
{
    const place *p = &r->place[place_of(r, key_of(of))];
    return p->key ? &p->recipe : NULL;
}

ek_gpu_writer *ek_gpu_recipe_begin(ek_gpu_recipes *r, const ek_gpu_subject *of)
{
    ek_gpu_writer *w = &r->writer;
    w->of = *of;
    w->n_inputs = 0, w->n_exchanges = 0, w->skips = w->known = false, w->n_lines = w->n_opens = 0;
    w->n_args = 0;
    ek_gpu_write_home(w);
    return w;
}

static void *keep(ek_gpu_recipes *r, const void *from, size_t bytes)
{
    void *to = r->kept + r->used;
    if (bytes) memcpy(to, from, bytes);
    r->used += (bytes + 7) / 8 * 8;
    return to;
}

const ek_gpu_recipe *ek_gpu_recipe_keep(ek_gpu_recipes *r)
{
    const ek_gpu_writer *w = &r->writer;
    const size_t lines = (size_t)w->n_lines * sizeof *w->line, opens = (size_t)w->n_opens * sizeof *w->open;
    if (r->used + lines + opens + w->n_args * 8 + 24 > KEPT_BYTES || r->n == PLACES / 2) {
        memset(r->place, 0, sizeof r->place);
        r->used = 0, r->n = 0;
    }
    const uint64_t key = key_of(&w->of);
    place *p = &r->place[place_of(r, key)];
    p->key = key, r->n++;
    p->recipe = (ek_gpu_recipe){.n_lines = w->n_lines,
                                .line = keep(r, w->line, lines),
                                .open = keep(r, w->open, opens),
                                .args = keep(r, w->args, w->n_args * 8)};
    return &p->recipe;
}

/* --- queuing */

void ek_gpu_recipes_set(ek_gpu_run *x)
{
    uint64_t *v = x->recipes->value;
    const size_t hidden = (size_t)x->g->m->config.hidden_size, vocab = (size_t)x->g->m->config.vocab_size,
                 first = (size_t)x->now.first_logits;
    v[EK_GPU_IDS] = x->now.id, v[EK_GPU_WANT] = x->now.want;
    v[EK_GPU_TABLE_IDS] = x->now.table_id, v[EK_GPU_TABLE_WANT] = x->now.table_want;
    v[EK_GPU_PLACE] = x->now.all.place, v[EK_GPU_TAIL_PLACE] = x->now.tail.place;
    for (int k = 0; k < EK_KIND_COUNT; k++) v[EK_GPU_PAGES + k] = x->now.table[k];
    v[EK_GPU_LD_PAGES] = (uint64_t)x->now.ld_table;
    v[EK_GPU_HIDDEN] = x->buf.hidden + sizeof(float) * first * hidden;
    v[EK_GPU_LOGITS] = x->buf.logits + sizeof(float) * first * vocab;
    v[EK_GPU_LOGITS_AT] = sizeof(float) * first * vocab;
    v[EK_GPU_LOGITS_HERE] = v[EK_GPU_LOGITS] +
                            sizeof(float) * (size_t)ek_gpu_outputs_here(&x->g->share.shard, (int)vocab).first;
    v[EK_GPU_BAD] = x->buf.bad + sizeof(int32_t) * first;
    v[EK_GPU_DIGEST] = x->now.digests ? x->buf.digest + sizeof(uint64_t) * first : 0;
    v[EK_GPU_FROM] = x->now.from, v[EK_GPU_N_TOKEN] = x->now.n_token;
}

void ek_gpu_queue_written(ek_gpu_writer *w)
{
    EK_ASSERT(w->n_opens == 0);
    for (int i = 0; i < w->n_lines; i++)
        ek_gpu_launch_kernel(w->x->g, w->line[i].kernel, w->line[i].grid, w->args + w->line[i].args);
    w->n_lines = 0, w->n_args = 0;
}

static void attend(ek_gpu_run *x, const ek_gpu_line *line, const uint64_t *args)
{
    ek_cuda_attn_args a;
    memcpy(&a, args, sizeof a);
    ek_gpu_attend(x, a, line->tail ? &x->now.tail.list[line->kind] : &x->now.all.list[line->kind]);
}

static void queue_other(ek_gpu_run *x, const ek_gpu_line *line, const uint64_t *args)
{
    host_args a;
    if (line->other == EK_GPU_ATTENTION) {
        attend(x, line, args);
        return;
    }
    memcpy(&a, args, sizeof a);
    if (x->g->err) return;
    ek_gpu_note(x->g, line->other == EK_GPU_HOST_ASK ? ek_gpu_host_ask(x, a.n) : ek_gpu_host_answer(x, a.layer, a.n));
}

void ek_gpu_queue_begin(ek_gpu_run *x, const ek_gpu_recipe *r)
{
    x->recipes->queued = r, x->recipes->open = r->open, x->recipes->line = 0;
}

bool ek_gpu_queue_more(ek_gpu_run *x)
{
    ek_gpu_recipes *q = x->recipes;
    for (bool puts = false; q->line < q->queued->n_lines && !puts; q->line++) {
        const ek_gpu_line *line = &q->queued->line[q->line];
        uint64_t *args = q->queued->args + line->args;
        for (int k = 0; k < line->n_opens; k++, q->open++) args[q->open->word] = q->value[q->open->value];
        if (line->kernel) ek_gpu_launch_kernel(x->g, line->kernel, line->grid, args);
        else queue_other(x, line, args);
        puts = line->puts;
    }
    return q->line < q->queued->n_lines;
}
