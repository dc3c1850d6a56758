/* The executor over several devices that divide outputs. Every step runs on all devices at once, each computes its part
 * of every row, and parts go to all devices (gpu/recipe/exchange.h). All devices draw the same tokens; the first
 * device's go to the host. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "gpu/several/state.h"

typedef struct split {
    ek_ranks *r;
    int n;
    ek_executor on[EK_RANKS];
    ek_gpu_run *run[EK_RANKS];
    uint8_t *page[EK_PAGE_KINDS]; /* one device's part of a page, while it is copied */
} split;

/* --- opening */

static ek_err open_split(void *arg, const ek_executor_sizes *z)
{
    split *x = arg;
    for (int i = 0; i < x->n; i++) {
        EK_TRY(x->on[i].open(x->run[i], z));
        EK_TRY(ek_ranks_check_taken(x->r, i, x->run[i]));
    }
    for (int k = 0; k < EK_PAGE_KINDS; k++) {
        size_t max = 0;
        for (int i = 0; i < x->n; i++) max = x->run[i]->buf.page_bytes[k] > max ? x->run[i]->buf.page_bytes[k] : max;
        if (max) x->page[k] = ek_alloc(max);
    }
    return EK_OK;
}

static void close_split(void *arg)
{
    split *x = arg;
    /* no device may write into memory that another one has released */
    for (int i = 0; i < x->n; i++)
        if (ek_cuda_enter(x->run[i]->g->c) == EK_OK) ek_cuda_sync(x->run[i]->g->c);
    for (int i = 0; i < x->n; i++) x->on[i].close(x->run[i]);
    for (int k = 0; k < EK_PAGE_KINDS; k++) free(x->page[k]);
    free(x);
}

/* --- a step */

static ek_err begin_split(void *arg, const ek_step *s)
{
    split *x = arg;
    return ek_gpu_begin(x->run, x->n, s);
}

static ek_err end_split(void *arg, const ek_step *s)
{
    split *x = arg;
    return ek_gpu_end(x->run, x->n, s);
}

static ek_err draw_split(void *arg, const ek_step *s)
{
    split *x = arg;
    return ek_gpu_draw_late(x->run, x->n, s);
}

static ek_err step_split(void *arg, const ek_step *s)
{
    EK_TRY(begin_split(arg, s));
    return end_split(arg, s);
}

static const float *logits_split(void *arg, int row)
{
    const split *x = arg;
    return x->on[0].logits(x->run[0], row);
}

static uint64_t digest_split(void *arg, int row)
{
    const split *x = arg;
    return x->on[0].digest(x->run[0], row);
}

/* --- pages: each device has the part of its KV heads, layer by layer */

/* A layer's block of which a device has a part: its offsets in a whole page and in the device's part. */
typedef struct block {
    size_t whole, part, bytes;
} block;

/* The blocks of device i's part of a page. Returns their number. */
static int blocks_of(const split *x, int i, ek_layer_kind kind, block out[EK_MAX_LAYERS])
{
    const ek_model *m = x->r->m;
    const bool start = kind >= EK_KIND_COUNT;
    const ek_kv_format k = start ? ek_kv_start_format(m->k_format) : m->k_format,
                       v = start ? ek_kv_start_format(m->v_format) : m->v_format;
    int n = 0;
    for (int j = 0; j < m->config.n_layers; j++) {
        const ek_layer_config *l = &m->config.layer[j];
        if (!l->owns_kv || (start ? ek_kv_start_kind(l->kind) : l->kind) != kind) continue;
        const ek_gpu_head_part here = ek_gpu_heads_of(x->run[i], l);
        const size_t head = ek_kv_k_bytes(k, l->head_dim) + ek_kv_v_bytes(v, l->head_dim),
                     at = start ? m->kv_start_offset[j] : m->kv_offset[j];
        out[n++] = (block){.whole = at + head * (size_t)here.kv.first,
                           .part = ek_gpu_kv_here(&here, l, at),
                           .bytes = head * (size_t)here.kv.n};
    }
    return n;
}

static void copy_page_split(void *arg, ek_layer_kind kind, int32_t from, int32_t to)
{
    const split *x = arg;
    for (int i = 0; i < x->n; i++) x->on[i].copy_page(x->run[i], kind, from, to);
}

static void read_page_split(void *arg, ek_layer_kind kind, int32_t page, void *out)
{
    const split *x = arg;
    block b[EK_MAX_LAYERS];
    for (int i = 0; i < x->n; i++) {
        const int n = blocks_of(x, i, kind, b);
        x->on[i].read_page(x->run[i], kind, page, x->page[kind]);
        for (int j = 0; j < n; j++) memcpy((uint8_t *)out + b[j].whole, x->page[kind] + b[j].part, b[j].bytes);
    }
}

static void write_page_split(void *arg, ek_layer_kind kind, int32_t page, const void *in)
{
    const split *x = arg;
    block b[EK_MAX_LAYERS];
    for (int i = 0; i < x->n; i++) {
        const int n = blocks_of(x, i, kind, b);
        for (int j = 0; j < n; j++) memcpy(x->page[kind] + b[j].part, (const uint8_t *)in + b[j].whole, b[j].bytes);
        x->on[i].write_page(x->run[i], kind, page, x->page[kind]);
    }
}

static void poison_page_split(void *arg, ek_layer_kind kind, int32_t page)
{
    const split *x = arg;
    for (int i = 0; i < x->n; i++) x->on[i].poison_page(x->run[i], kind, page);
}

static const char *broken_split(void *arg)
{
    const split *x = arg;
    for (int i = 0; i < x->n; i++) {
        const char *why = x->on[i].broken(x->run[i]);
        if (why) return why;
    }
    return NULL;
}

/* --- making it */

static void join(split *x)
{
    for (int i = 0; i < x->n; i++) {
        x->run[i]->exchange.follower = i > 0;
        x->r->run[i] = x->run[i];
        for (int j = 0; j < x->n; j++) x->run[i]->exchange.peer[j] = x->run[j];
    }
}

ek_executor ek_ranks_by_outputs(ek_ranks *r)
{
    split *x = ek_alloc(sizeof *x);
    double room = 0;
    *x = (split){.r = r, .n = r->n};
    for (int i = 0; i < x->n; i++) {
        x->on[i] = ek_gpu_executor(r->gpu[i]);
        x->run[i] = x->on[i].arg;
        const double own = ek_ranks_room(r, i);
        room = i && room < own ? room : own;
    }
    join(x);
    ek_executor out = x->on[0];
    out.arg = x;
    out.room = room;
    out.open = open_split, out.close = close_split;
    out.step = step_split, out.begin = begin_split, out.end = end_split, out.draw = draw_split;
    out.logits = logits_split, out.digest = digest_split;
    out.copy_page = copy_page_split, out.read_page = read_page_split, out.write_page = write_page_split;
    out.poison_page = poison_page_split;
    out.broken = broken_split;
    return out;
}
