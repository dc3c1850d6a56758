/* The executor over several devices with whole layers. Every step, or microbatch of a step, goes through the CPU's
 * layers, if there are any, and then through each device's. A device's own executor (gpu/several/executor.c) computes
 * its layers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/machine/cpu.h"
#include "gpu/fit/fit.h"
#include "gpu/several/state.h"
#include "model/pass.h"

/* The first layers, on the CPU, from tokens to hidden states; their pages, and their part of a page at its beginning.
 */
typedef struct front_part {
    int end; /* layers [0, end); 0: there are none */
    ek_kv_memory kv;
    size_t kv_bytes[EK_PAGE_KINDS];
    ek_scratch *scratch;
    float *rows; /* pinned: hidden states of all microbatches */
} front_part;

typedef struct split {
    ek_ranks *r;
    int n;
    ek_executor on[EK_RANKS];
    ek_stage stage[EK_RANKS];
    front_part front;
    ek_microbatches microbatches[2]; /* of the running step and of the step begun after it */
    uint64_t at[2];                  /* the number of each step's first microbatch, as the devices count */
    uint64_t n_begun, n_ended;       /* steps */
    const ek_microbatches *ended;    /* the microbatches of the step that ended last, and their results on the host */
    int first_logits;
    int32_t *result[EK_MICROBATCHES];
} split;

_Static_assert(EK_GPU_MAX_FLIGHTS >= 2 * EK_MICROBATCHES, "of all pieces, and of those of a step behind");

/* Minimum rows of a prompt's microbatch. */
enum { MIN_MICROBATCH = 256, MIN_MICROBATCH_OF_HOST = 128 };

static ek_gpu_run *run_of(const split *x, int i)
{
    return x->on[i].arg;
}

static const ek_gpu_share *share_of(const split *x, int i)
{
    return &run_of(x, i)->g->share;
}

/* --- opening */

static ek_err open_pages(front_part *f, const ek_executor_sizes *z)
{
    const double have = ek_memory_available();
    double need = 0;
    for (int k = 0; k < EK_PAGE_KINDS; k++) need += (double)f->kv.stride[k] * z->n_pages[k];
    if (have > 0 && need > have)
        return ek_fail(EK_ENOMEM, "keys and values of the CPU's layers need %.2f GB, %.2f GB of memory are available",
                       need / 1e9, have / 1e9);
    for (int k = 0; k < EK_PAGE_KINDS; k++) {
        f->kv_bytes[k] = f->kv.stride[k] * (size_t)z->n_pages[k];
        if (f->kv_bytes[k] == 0) continue;
        f->kv.base[k] = ek_alloc_big(f->kv_bytes[k]);
        if (!f->kv.base[k]) return ek_fail_in(EK_ENOMEM, "%d pages of %zu bytes", z->n_pages[k], f->kv.stride[k]);
    }
    return EK_OK;
}

static ek_err open_front(split *x, const ek_executor_sizes *z)
{
    const ek_config *c = &x->r->m->config;
    front_part *f = &x->front;
    void *p = NULL;
    if (!f->end) return EK_OK;
    EK_TRY(open_pages(f, z));
    EK_TRY(ek_scratch_open(&f->scratch, x->r->m, z->max_rows, z->max_logits, z->max_ctx));
    EK_TRY(ek_cuda_enter(run_of(x, 0)->g->c));
    EK_TRY(ek_cuda_alloc_host(run_of(x, 0)->g->c, &p, sizeof(float) * (size_t)c->hidden_size * (size_t)z->max_rows));
    f->rows = p;
    return EK_OK;
}

static void close_front(split *x)
{
    front_part *f = &x->front;
    if (f->rows && ek_cuda_enter(run_of(x, 0)->g->c) == EK_OK) {
        ek_cuda_sync(run_of(x, 0)->g->c);
        ek_cuda_free_host(run_of(x, 0)->g->c, f->rows);
    }
    for (int k = 0; k < EK_PAGE_KINDS; k++) ek_free_big(f->kv.base[k], f->kv_bytes[k]);
    ek_scratch_close(f->scratch);
}

static ek_err open_split(void *arg, const ek_executor_sizes *z)
{
    split *x = arg;
    EK_TRY(open_front(x, z));
    for (int i = 0; i < 2; i++) ek_microbatches_open(&x->microbatches[i], z->max_rows);
    for (int i = 0; i < x->n; i++) {
        EK_TRY(x->on[i].open(x->on[i].arg, z));
        EK_TRY(ek_ranks_check_taken(x->r, i, run_of(x, i)));
    }
    return EK_OK;
}

static void close_split(void *arg)
{
    split *x = arg;
    close_front(x);
    for (int i = 0; i < x->n; i++) x->on[i].close(x->on[i].arg);
    for (int i = 0; i < 2; i++) ek_microbatches_close(&x->microbatches[i]);
    free(x);
}

/* --- a step */

/* Microbatch `microbatch` of s as a step of device i. Draws and logits belong to the last device. */
static ek_step step_of(const split *x, const ek_microbatches *p, const ek_step *s, int microbatch, int i)
{
    ek_step own = ek_microbatches_step(p, s, microbatch);
    if (i + 1 < x->n) own.draw = NULL, own.n_draws = 0, own.masks = NULL;
    return own;
}

static ek_microbatches *microbatches_of(split *x, uint64_t step)
{
    return &x->microbatches[step % 2];
}

/* Keeps the first error's sentence while later ones are written. */
typedef struct first {
    ek_err err;
    char text[512];
} first;

static void keep(first *f, ek_err err)
{
    if (!err || f->err) return;
    f->err = err;
    snprintf(f->text, sizeof f->text, "%s", ek_err_text());
}

static ek_err fail_with(const first *f)
{
    return f->err ? ek_fail(f->err, "%s", f->text) : EK_OK;
}

/* Computes the hidden states of the microbatch's rows for the first device. */
static ek_err step_front(split *x, const ek_microbatches *p, const ek_step *s, int microbatch)
{
    const ek_step own = ek_microbatches_step(p, s, microbatch);
    const int hidden = x->r->m->config.hidden_size;
    float *const rows = x->front.rows + (size_t)p->first[microbatch] * (size_t)hidden;
    run_of(x, 0)->near.given = rows;
    return ek_model_forward_front(x->r->m, x->front.scratch, &x->front.kv, own.row, own.n_rows, own.seq, own.n_seqs,
                                  x->front.end, rows, hidden);
}

/* Begins a microbatch on all devices, so that the first device can go on with the next microbatch. */
static ek_err begin_microbatch(split *x, const ek_microbatches *p, const ek_step *s, int microbatch,
                               int begun[EK_RANKS])
{
    if (x->front.end) EK_TRY(step_front(x, p, s, microbatch));
    for (int i = 0; i < x->n; i++) {
        const ek_step own = step_of(x, p, s, microbatch, i);
        if (s->follows) run_of(x, i)->near.drawn = x->at[(x->n_begun - 1) % 2] + (uint64_t)p->after[microbatch];
        EK_TRY(x->on[i].begin(x->on[i].arg, &own));
        begun[i]++;
    }
    return EK_OK;
}

/* If the host decodes per-layer embeddings, it has room for those of one step only. */
static int max_microbatches(const split *x)
{
    const ek_config *c = &x->r->m->config;
    if ((x->n == 1 && !x->front.end) || x->r->place.host_experts) return 1;
    for (int i = 0; i < x->n; i++)
        if (c->per_layer_size && !run_of(x, i)->g->w.table.l.n) return 1;
    return EK_MICROBATCHES;
}

/* Whether all rows follow draws of the previous step. */
static bool only_follows(const ek_step *s)
{
    for (int i = 0; s->follows && i < s->n_rows; i++)
        if (s->follows[i] < 0) return false;
    return s->follows;
}

/* Divides a step into the number of microbatches with the least time; in tests into as many as possible. */
static void divide(split *x, ek_microbatches *p, const ek_step *s)
{
    const bool turns = only_follows(s);
    const ek_microbatches *front = s->follows ? microbatches_of(x, x->n_begun - 1) : NULL;
    const int forced = x->r->min_microbatch, min = forced         ? forced
                                                   : x->front.end ? MIN_MICROBATCH_OF_HOST
                                                                  : MIN_MICROBATCH;
    const int limit = turns ? x->n : s->n_rows / min, all = max_microbatches(x);
    int max = limit < all ? limit : all, wanted = 0;
    for (int i = 0; i < s->n_rows; i++) wanted += s->row[i].wants_logits;
    if (!forced && !x->front.end) max = ek_stage_microbatches(x->stage, x->n, s->n_rows, wanted, turns, max);
    if (turns) ek_microbatches_follow(p, s, front, max, 1);
    else ek_microbatches_divide(p, s, front, max, min);
    x->r->turns += p->turns && p->n > 1, x->r->prompts_ahead += front && !turns;
}

/* If one device cannot begin a microbatch, the step is begun on none. */
static ek_err begin_split(void *arg, const ek_step *s)
{
    split *x = arg;
    ek_microbatches *p = microbatches_of(x, x->n_begun);
    int begun[EK_RANKS] = {0};
    first f = {0};
    divide(x, p, s);
    x->at[x->n_begun % 2] = run_of(x, x->n - 1)->flights.n_begun;
    for (int microbatch = 0; microbatch < p->n && !f.err; microbatch++)
        keep(&f, begin_microbatch(x, p, s, microbatch, begun));
    if (!f.err) x->n_begun++;
    for (int i = 0; i < x->n && f.err; i++)
        for (; begun[i] > 0; begun[i]--) ek_gpu_forget(&x->on[i]);
    return fail_with(&f);
}

static ek_err end_split(void *arg, const ek_step *s)
{
    split *x = arg;
    const ek_microbatches *p = microbatches_of(x, x->n_ended++);
    first f = {0};
    for (int microbatch = 0; microbatch < p->n; microbatch++) {
        for (int i = 0; i < x->n; i++) {
            const ek_step own = step_of(x, p, s, microbatch, i);
            keep(&f, x->on[i].end(x->on[i].arg, &own));
        }
        x->result[microbatch] = run_of(x, x->n - 1)->flights.result;
    }
    x->ended = p, x->first_logits = s->first_logits;
    return fail_with(&f);
}

static ek_err step_split(void *arg, const ek_step *s)
{
    EK_TRY(begin_split(arg, s));
    return end_split(arg, s);
}

static const float *logits_split(void *arg, int row)
{
    const split *x = arg;
    return x->on[x->n - 1].logits(x->on[x->n - 1].arg, row);
}

static uint64_t digest_split(void *arg, int row)
{
    const split *x = arg;
    run_of(x, x->n - 1)->flights.result = x->result[ek_microbatches_with(x->ended, row - x->first_logits)];
    return x->on[x->n - 1].digest(x->on[x->n - 1].arg, row);
}

/* --- pages: each device has the part of its layers, and the CPU that of the first ones */

/* The CPU's part of a page, of stride[kind] bytes. */
static uint8_t *front_page(const split *x, ek_layer_kind kind, int32_t page)
{
    const front_part *f = &x->front;
    EK_ASSERT(page >= 0 && f->kv.stride[kind] * (size_t)page < f->kv_bytes[kind]);
    return f->kv.base[kind] + f->kv.stride[kind] * (size_t)page;
}

static void copy_page_split(void *arg, ek_layer_kind kind, int32_t from, int32_t to)
{
    const split *x = arg;
    const size_t bytes = x->front.kv.stride[kind];
    if (bytes) memcpy(front_page(x, kind, to), front_page(x, kind, from), bytes);
    for (int i = 0; i < x->n; i++)
        if (share_of(x, i)->kv_bytes[kind]) x->on[i].copy_page(x->on[i].arg, kind, from, to);
}

static void read_page_split(void *arg, ek_layer_kind kind, int32_t page, void *out)
{
    const split *x = arg;
    const size_t bytes = x->front.kv.stride[kind];
    if (bytes) memcpy(out, front_page(x, kind, page), bytes);
    for (int i = 0; i < x->n; i++)
        if (share_of(x, i)->kv_bytes[kind])
            x->on[i].read_page(x->on[i].arg, kind, page, (uint8_t *)out + share_of(x, i)->kv_at[kind]);
}

static void write_page_split(void *arg, ek_layer_kind kind, int32_t page, const void *in)
{
    const split *x = arg;
    const size_t bytes = x->front.kv.stride[kind];
    if (bytes) memcpy(front_page(x, kind, page), in, bytes);
    for (int i = 0; i < x->n; i++)
        if (share_of(x, i)->kv_bytes[kind])
            x->on[i].write_page(x->on[i].arg, kind, page, (const uint8_t *)in + share_of(x, i)->kv_at[kind]);
}

static void poison_page_split(void *arg, ek_layer_kind kind, int32_t page)
{
    const split *x = arg;
    const size_t bytes = x->front.kv.stride[kind];
    if (bytes) memset(front_page(x, kind, page), 0xff, bytes);
    for (int i = 0; i < x->n; i++)
        if (share_of(x, i)->kv_bytes[kind]) x->on[i].poison_page(x->on[i].arg, kind, page);
}

static const char *broken_split(void *arg)
{
    const split *x = arg;
    for (int i = 0; i < x->n; i++) {
        const char *why = x->on[i].broken(x->on[i].arg);
        if (why) return why;
    }
    return NULL;
}

/* --- making it */

static double room_of(const split *x)
{
    double room = INFINITY;
    for (int i = 0; i < x->n; i++) {
        const double all = ek_ranks_room(x->r, i);
        room = all < room ? all : room;
    }
    const double host = x->front.end ? ek_memory_available() / 2 : 0;
    const double all = host > 0 ? ek_ranks_pages_for(x->r, x->front.kv.stride, host) : INFINITY;
    room = all < room ? all : room;
    return room > 1 ? room : 1; /* 0 would mean the host's memory */
}

/* The cost of a further row among few; the CPU's layers have the cost of the CPU's executor. */
static float row_cost(const split *x)
{
    const float device = x->on[0].row_cost, host = 0.25f;
    const int layers = x->r->place.host_end + x->r->place.host_experts;
    return device + (host - device) * (float)layers / (float)x->r->m->config.n_layers;
}

static void join(split *x)
{
    for (int i = 0; i < x->n; i++) {
        run_of(x, i)->near.front = i ? run_of(x, i - 1) : NULL;
        run_of(x, i)->near.behind = i + 1 < x->n ? run_of(x, i + 1) : NULL;
        run_of(x, i)->near.last = run_of(x, x->n - 1);
    }
}

ek_executor ek_ranks_by_layers(ek_ranks *r)
{
    split *x = ek_alloc(sizeof *x);
    *x = (split){.r = r, .n = r->n, .front.end = r->place.host_end};
    for (int i = 0; i < x->n; i++) {
        x->on[i] = ek_gpu_executor(r->gpu[i]);
        x->stage[i] = ek_stage_of(r->m, r->place.share[i].first, r->place.share[i].end);
        run_of(x, i)->flights.n_flights = 2 * EK_MICROBATCHES; /* and those of the next step */
    }
    join(x);
    memcpy(x->front.kv.stride, share_of(x, 0)->kv_at, sizeof x->front.kv.stride); /* up to the first device's part */
    const bool host = r->place.host_end || r->place.host_experts;
    ek_executor out = x->on[x->n - 1]; /* draft, draft_arg, draft_cost */
    out.arg = x;
    out.room = room_of(x), out.row_cost = row_cost(x), out.leaves_host = !host;
    out.open = open_split, out.close = close_split;
    out.step = step_split;
    out.begin = host ? NULL : begin_split, out.end = host ? NULL : end_split;
    out.draw = NULL; /* draws cannot follow later, because each microbatch has its own */
    out.begins_prompts = !host && x->n > 1;
    out.logits = logits_split, out.digest = digest_split;
    out.copy_page = copy_page_split, out.read_page = read_page_split, out.write_page = write_page_split;
    out.poison_page = poison_page_split, out.ready_pages = NULL;
    out.broken = broken_split;
    return out;
}
