/* The executor of a CUDA device: pages, logits and scratch in device memory; a step is one copy of its lists, the
 * kernels, and the tokens back. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "gpu/gpu.h"
#include "gpu/recipe/sections.h"
#include "gpu/several/state.h"
#include "gpu/step/step.h"

/* --- borders between two devices' layers. The hidden states of all rows are copied forward, one float row each. A step
 * that begins before the previous one has ended needs its tokens, which are copied back to the devices that look them
 * up. Copies are queued; devices wait for each other's events, the host for none. */

/* Takes only the tokens that s follows: the last device may write those of another microbatch meanwhile. */
static ek_err take_tokens(ek_gpu_run *x, const ek_step *s)
{
    const ek_gpu_run *last = x->near.last;
    int first = INT_MAX, end = 0;
    if (!s->follows || !last || last == x || !x->g->share.embed) return EK_OK;
    for (int r = 0; r < s->n_rows; r++) {
        if (s->follows[r] < 0) continue;
        first = s->follows[r] < first ? s->follows[r] : first;
        end = s->follows[r] >= end ? s->follows[r] + 1 : end;
    }
    if (end == 0) return EK_OK;
    const size_t at = sizeof(int32_t) * (size_t)first, bytes = sizeof(int32_t) * (size_t)(end - first);
    EK_TRY(ek_cuda_follow(x->g->c, ek_gpu_ended(&last->flights, x->near.drawn)));
    return ek_cuda_copy_from(x->g->c, x->buf.token + at, last->g->c, last->buf.token + at, bytes);
}

/* Queues the copies of a step's rows and tokens, after its lists and before its kernels. The device before the border
 * has begun the step, and the device after it has not. */
static ek_err take_rows(ek_gpu_run *x, const ek_step *s)
{
    const size_t bytes = sizeof(float) * (size_t)x->g->m->config.hidden_size * (size_t)s->n_rows;
    EK_TRY(take_tokens(x, s));
    /* the next device must have taken the rows of the previous step before they are overwritten */
    if (x->near.behind) EK_TRY(ek_cuda_follow(x->g->c, x->near.behind->near.taken));
    if (x->near.given) return ek_cuda_upload(x->g->c, x->buf.h, x->near.given, bytes);
    if (!x->near.front) return EK_OK;
    EK_TRY(ek_cuda_follow(x->g->c, ek_gpu_ended(&x->near.front->flights, x->near.front->flights.n_begun - 1)));
    EK_TRY(ek_cuda_copy_from(x->g->c, x->buf.h, x->near.front->g->c, x->near.front->buf.h, bytes));
    return ek_cuda_event_record(x->g->c, x->near.taken);
}

/* --- a step */

typedef struct embed_arg {
    ek_gpu_run *x;
    const ek_step *s;
    int before, behind; /* elements */
} embed_arg;

/* The per-layer embeddings of row `task`, or from task n on of row task - n among those with logits. */
static void embed_task(void *arg, int task, int worker)
{
    (void)worker;
    const embed_arg *e = arg;
    const ek_model *m = e->x->g->m;
    const int n = e->s->n_rows, r = task < n ? task : e->x->lists.want_host[task - n];
    const int id = e->s->row[r].embedding ? m->config.pad : e->s->row[r].token;
    float *to = e->x->temp_host;
    if (task < n) {
        to += (size_t)task * (size_t)e->before;
        if (e->before) ek_embedding_row(&m->w.per_layer_embed, id, 0, e->before, to);
    } else {
        to += (size_t)n * (size_t)e->before + (size_t)(task - n) * (size_t)e->behind;
        if (e->behind) ek_embedding_row(&m->w.per_layer_embed, id, e->before, e->behind, to);
    }
}

/* Copies the rows' embeddings that lie in the file, and rows that are vectors themselves. */
static ek_err upload_embeddings(ek_gpu_run *x, const ek_step *s)
{
    ek_gpu_run *const maker = x->exchange.follower ? x->exchange.peer[0] : x; /* the device that makes them for all */
    const ek_config *c = &x->g->m->config;
    const size_t hidden = sizeof(float) * (size_t)c->hidden_size;
    for (int r = 0; r < s->n_rows; r++)
        if (s->row[r].embedding && x->g->share.embed)
            EK_TRY(ek_cuda_upload(x->g->c, ek_gpu_embedded(x) + hidden * (size_t)r, s->row[r].embedding, hidden));
    if (!c->per_layer_size || x->g->w.table.l.n) return EK_OK;
    embed_arg e = {.x = maker, .s = s, .before = ek_prompt_layers(c) * c->per_layer_size};
    e.behind = c->n_layers * c->per_layer_size - e.before;
    if (!x->exchange.follower)
        ek_pool_run(s->n_rows < EK_ROWS_WORTH_WAKING ? NULL : x->g->m->pool, embed_task, &e, s->n_rows + x->now.n_want);
    size_t n = (size_t)s->n_rows * (size_t)e.before + (size_t)x->now.n_want * (size_t)e.behind;
    return ek_cuda_upload(x->g->c, x->buf.temp, maker->temp_host, sizeof(float) * n);
}

static ek_err download_shown(ek_gpu_run *x)
{
    const size_t row = sizeof(float) * (size_t)x->g->m->config.vocab_size;
    for (int i = x->now.first_logits; i < x->now.first_logits + x->now.n_want; i++)
        if (x->lists.shown[i])
            EK_TRY(ek_cuda_download(x->g->c, (uint8_t *)x->logits_host + row * (size_t)i,
                                    x->buf.logits + row * (size_t)i, row));
    return EK_OK;
}

static ek_err queue_forward(ek_gpu_run *const *x, int n)
{
    for (int i = 0; i < n; i++) {
        if (n > 1) EK_TRY(ek_cuda_enter(x[i]->g->c));
        EK_TRY(ek_cuda_fill(x[i]->g->c, x[i]->buf.best, 0, (size_t)x[i]->z.max_logits * 36));
    }
    ek_gpu_forward(x, n);
    for (int i = 0; i < n; i++) {
        EK_TRY(x[i]->g->err);
        if (n > 1) EK_TRY(ek_cuda_enter(x[i]->g->c));
        EK_TRY(download_shown(x[i]));
    }
    return EK_OK;
}

static ek_err queue_draws(ek_gpu_run *const *x, int n)
{
    for (int i = 0; i < n; i++) {
        if (n > 1) EK_TRY(ek_cuda_enter(x[i]->g->c));
        ek_gpu_draw(x[i]);
        EK_TRY(x[i]->g->err);
    }
    return EK_OK;
}

static ek_err queue_all(ek_gpu_run *const *x, int n)
{
    EK_TRY(queue_forward(x, n));
    return queue_draws(x, n);
}

/* Queues the draws after the forward pass, which the device computes while masks are made. */
static ek_err queue_masked_draws(ek_gpu_run *const *x, int n, const ek_step *s)
{
    ek_masks_wait(s->masks);
    for (int i = 0; i < n && x[0]->now.masks; i++) {
        if (n > 1) EK_TRY(ek_cuda_enter(x[i]->g->c));
        EK_TRY(ek_gpu_put_masks(x[i], s));
    }
    return ek_gpu_replay(x, n, queue_draws, EK_GPU_DRAWS);
}

/* Queues all kernels of a step, after its copies. */
static ek_err queue_kernels(ek_gpu_run *const *x, int n, const ek_step *s)
{
    if (!x[0]->now.masks && !s->draws_later) return ek_gpu_replay(x, n, queue_all, EK_GPU_ALL);
    EK_TRY(ek_gpu_replay(x, n, queue_forward, EK_GPU_FORWARD));
    return s->draws_later ? EK_OK : queue_masked_draws(x, n, s);
}

/* Lists the draws, and the rows of logits that the host reads. */
static ek_err list_draws(ek_gpu_run *x, const ek_step *s)
{
    if (x->now.n_want)
        memcpy(x->lists.shown + s->first_logits, s->shown + s->first_logits,
               sizeof *x->lists.shown * (size_t)x->now.n_want);
    EK_TRY(ek_gpu_samples(x, s, x->lists.shown));
    if (x->exchange.follower) memset(x->lists.shown, 0, sizeof *x->lists.shown * (size_t)x->z.max_logits);
    return EK_OK;
}

/* The draws are not known yet, because the host still reads rows of logits of the previous step. */
static void put_off_draws(ek_gpu_run *x)
{
    memset(x->lists.shown, 0, sizeof *x->lists.shown * (size_t)x->z.max_logits);
    ek_gpu_no_samples(x);
}

/* Queues the copies from the host to the step. */
static ek_err queue_lists(ek_gpu_run *x, const ek_step *s)
{
    EK_TRY(ek_gpu_lists(x, s));
    x->now.digests = false;
    for (int i = 0; i < x->now.n_want && !x->exchange.follower; i++) x->now.digests |= s->digested[s->first_logits + i];
    if (s->draws_later) put_off_draws(x);
    else EK_TRY(list_draws(x, s));
    if (s->follows && !s->draws_later && x->now.n_draws < s->n_draws)
        return ek_fail(EK_EUNSUPPORTED, "%d draws of a step begun behind another are not the device's",
                       s->n_draws - x->now.n_draws);
    EK_TRY(ek_cuda_upload(x->g->c, x->block.device, x->block.host, x->now.masks ? x->now.first_mask : x->block.used));
    EK_TRY(ek_gpu_put_turns(x));
    EK_TRY(take_rows(x, s));
    return upload_embeddings(x, s);
}

/* Queues the copies of results to the host, and marks their end in the stream. */
static ek_err queue_results(ek_gpu_run *x, const ek_step *s, ek_gpu_flight *f)
{
    f->n_draws = x->now.n_draws, f->draws = x->now.n_draws == s->n_draws, f->disturbed = false;
    if (x->g->share.head) EK_TRY(ek_cuda_download(x->g->c, f->result, x->buf.digest, (size_t)x->z.max_logits * 16));
    if (x->exchange.control) EK_TRY(ek_cuda_download(x->g->c, f->result + 4 * x->z.max_logits, x->exchange.control, 8));
    return ek_cuda_event_record(x->g->c, f->ended);
}

/* Whether s can begin after the step that was begun: its tokens, and everything about its rows that depends on them,
 * are on the device. */
static ek_err check_follows(ek_gpu_run *x, const ek_step *s)
{
    if (!s->follows) return EK_OK;
    ek_gpu_run *draws = x->near.last ? x->near.last : x; /* the device that has the head */
    if (!ek_gpu_flight_of(&draws->flights, draws->flights.n_begun - 1)->draws)
        return ek_fail(EK_EUNSUPPORTED, "the tokens before are not the device's");
    if (x->g->m->config.per_layer_size && !x->g->w.table.l.n)
        return ek_fail(EK_EUNSUPPORTED, "per-layer embeddings of tokens that are not known are the file's");
    if (x->pending)
        return ek_fail(x->pending, "%s", x->pending_text); /* the error of an earlier action outside of steps */
    return EK_OK;
}

/* Checks the step before anything is queued. */
static ek_err check_step(ek_gpu_run *x, const ek_step *s)
{
    EK_ASSERT(x->flights.n_begun - x->flights.n_ended < (uint64_t)x->flights.n_flights &&
              (!s->follows || x->flights.n_begun > x->flights.n_ended));
    EK_TRY(ek_cuda_enter(x->g->c));
    EK_TRY(check_follows(x, s));
    if (x->pending) return ek_fail(x->pending, "%s", x->pending_text);
    return ek_pass_check(&x->lists.limits, s->row, s->n_rows, s->n_seqs);
}

static ek_err put_number(ek_gpu_run *x)
{
    void *host = NULL;
    CUdeviceptr device = 0;
    const uint32_t step = x->exchange.n_exchanged - 1;
    EK_TRY(ek_gpu_block_take(&x->block, sizeof step, &host, &device));
    EK_ASSERT(device == x->block.device); /* exchanges look for it there */
    memcpy(host, &step, sizeof step);
    return EK_OK;
}

/* Prepares everything that comes before devices wait for each other. */
static ek_err prepare(ek_gpu_run *x, const ek_step *s)
{
    EK_TRY(ek_cuda_enter(x->g->c));
    if (s->follows) ek_gpu_flight_of(&x->flights, x->flights.n_begun - 1)->disturbed = true;
    x->g->err = EK_OK;
    x->block.host = ek_gpu_flight_of(&x->flights, x->flights.n_begun)->block, x->block.used = 0;
    if (x->exchange.control) EK_TRY(put_number(x));
    x->now.first_logits = s->first_logits, x->now.first_draw = s->first_draw;
    return queue_lists(x, s);
}

static ek_err queue_step(ek_gpu_run *const *x, int n, const ek_step *s)
{
    for (int i = 0; i < n; i++) EK_TRY(prepare(x[i], s));
    EK_TRY(queue_kernels(x, n, s));
    for (int i = 0; i < n && !s->draws_later; i++) {
        EK_TRY(ek_cuda_enter(x[i]->g->c));
        EK_TRY(queue_results(x[i], s, ek_gpu_flight_of(&x[i]->flights, x[i]->flights.n_begun)));
    }
    return EK_OK;
}

/* Waits until nothing queued can still read the block. */
static ek_err release(ek_gpu_run *const *x, int n, ek_err err)
{
    char text[512];
    snprintf(text, sizeof text, "%s", ek_err_text());
    ek_gpu_release(x, n);
    return ek_fail(err, "%s", text);
}

ek_err ek_gpu_begin(ek_gpu_run *const *x, int n, const ek_step *s)
{
    for (int i = 0; i < n; i++) EK_TRY(check_step(x[i], s));
    if (x[0]->exchange.control) EK_TRY(ek_gpu_number(x, n));
    const ek_err err = queue_step(x, n, s);
    for (int i = 0; i < n && !err; i++) x[i]->flights.n_begun++;
    return err ? release(x, n, err) : EK_OK;
}

/* The lists of draws lie behind those of the forward pass, which may be running already. */
static ek_err prepare_draws(ek_gpu_run *x, const ek_step *s)
{
    const size_t from = x->block.used;
    EK_TRY(ek_cuda_enter(x->g->c));
    EK_TRY(x->g->err);
    EK_TRY(list_draws(x, s));
    const size_t end = x->now.masks ? x->now.first_mask : x->block.used;
    if (end > from) EK_TRY(ek_cuda_upload(x->g->c, x->block.device + from, x->block.host + from, end - from));
    return download_shown(x);
}

static ek_err queue_late_draws(ek_gpu_run *const *x, int n, const ek_step *s)
{
    for (int i = 0; i < n; i++) EK_TRY(prepare_draws(x[i], s));
    EK_TRY(queue_masked_draws(x, n, s));
    for (int i = 0; i < n; i++) {
        EK_TRY(ek_cuda_enter(x[i]->g->c));
        EK_TRY(queue_results(x[i], s, ek_gpu_flight_of(&x[i]->flights, x[i]->flights.n_begun - 1)));
    }
    return EK_OK;
}

ek_err ek_gpu_draw_late(ek_gpu_run *const *x, int n, const ek_step *s)
{
    EK_ASSERT(s->draws_later && x[0]->flights.n_begun == x[0]->flights.n_ended + 1);
    const ek_err err = queue_late_draws(x, n, s);
    for (int i = 0; i < n && err; i++) x[i]->flights.n_begun--;
    return err ? release(x, n, err) : EK_OK;
}

static ek_err draw_run(void *arg, const ek_step *s)
{
    ek_gpu_run *x = arg;
    return ek_gpu_draw_late(&x, 1, s);
}

static ek_err begin_run(void *arg, const ek_step *s)
{
    ek_gpu_run *x = arg;
    return ek_gpu_begin(&x, 1, s);
}

ek_err ek_gpu_end(ek_gpu_run *const *x, int n, const ek_step *s)
{
    const ek_gpu_flight *f = ek_gpu_flight_of(&x[0]->flights, x[0]->flights.n_ended);
    ek_err err = n == 1 ? ek_cuda_enter(x[0]->g->c) : ek_gpu_await(x, n, x[0]->flights.n_ended);
    for (int i = 0; i < n; i++) {
        EK_ASSERT(x[i]->flights.n_ended < x[i]->flights.n_begun);
        x[i]->flights.result = ek_gpu_flight_of(&x[i]->flights, x[i]->flights.n_ended++)->result;
    }
    EK_TRY(err);
    if (n == 1) EK_TRY(ek_cuda_event_wait(x[0]->g->c, f->ended));
    else EK_TRY(ek_cuda_enter(x[0]->g->c));
    ek_masks_wait(s->masks); /* for draws that the CPU makes */
    return ek_gpu_deliver(x[0], s, f);
}

static ek_err end_run(void *arg, const ek_step *s)
{
    ek_gpu_run *x = arg;
    return ek_gpu_end(&x, 1, s);
}

static ek_err step_run(void *arg, const ek_step *s)
{
    EK_TRY(begin_run(arg, s));
    return end_run(arg, s);
}

static const float *logits_run(void *arg, int row)
{
    const ek_gpu_run *x = arg;
    return x->logits_host + (size_t)row * (size_t)x->g->m->config.vocab_size;
}

static uint64_t digest_run(void *arg, int row)
{
    const ek_gpu_run *x = arg;
    uint64_t digest;
    memcpy(&digest, x->flights.result + 2 * row, sizeof digest);
    return digest;
}

/* After a failed copy the page differs from the engine's belief, and the engine does not ask again: all later steps
 * must fail. */
static void note_pending(ek_gpu_run *x, ek_err err)
{
    ek_gpu_fail_later(x, err, "the device cannot be used any more: it lacks a page");
}

static CUdeviceptr page_at(const ek_gpu_run *x, ek_layer_kind kind, int32_t page)
{
    EK_ASSERT(page >= 0 && page < x->z.n_pages[kind]);
    return x->buf.pages[kind] + x->buf.page_bytes[kind] * (size_t)page;
}

static void copy_page_run(void *arg, ek_layer_kind kind, int32_t from, int32_t to)
{
    ek_gpu_run *x = arg;
    note_pending(x, ek_cuda_enter(x->g->c));
    note_pending(x, ek_cuda_copy(x->g->c, page_at(x, kind, to), page_at(x, kind, from), x->buf.page_bytes[kind]));
}

/* A page that cannot be read must not reach a disk. The engine asks whether the device is lost; after any other error
 * the process ends. */
static void read_page_run(void *arg, ek_layer_kind kind, int32_t page, void *out)
{
    const ek_gpu_run *x = arg;
    const size_t bytes = x->buf.page_bytes[kind];
    ek_err err = ek_cuda_enter(x->g->c);
    if (!err) err = ek_cuda_download(x->g->c, out, page_at(x, kind, page), bytes);
    if (!err) err = ek_cuda_sync(x->g->c);
    EK_ASSERT(!err || ek_cuda_broken(x->g->c));
}

static void write_page_run(void *arg, ek_layer_kind kind, int32_t page, const void *in)
{
    ek_gpu_run *x = arg;
    note_pending(x, ek_cuda_enter(x->g->c));
    note_pending(x, ek_cuda_upload(x->g->c, page_at(x, kind, page), in, x->buf.page_bytes[kind]));
    note_pending(x, ek_cuda_sync(x->g->c)); /* after this the caller may change `in` */
}

static void poison_page_run(void *arg, ek_layer_kind kind, int32_t page)
{
    ek_gpu_run *x = arg;
    note_pending(x, ek_cuda_enter(x->g->c));
    note_pending(x, ek_cuda_fill(x->g->c, page_at(x, kind, page), 0xff, x->buf.page_bytes[kind]));
}

static const char *broken_run(void *arg)
{
    const ek_gpu_run *x = arg;
    const char *why = ek_cuda_why(x->g->c);
    return why || !x->pending ? why : x->pending_text;
}

void ek_gpu_forget(const ek_executor *on)
{
    ek_gpu_run *x = on->arg;
    EK_ASSERT(x->flights.n_begun > x->flights.n_ended);
    if (ek_cuda_enter(x->g->c) == EK_OK) ek_cuda_sync(x->g->c); /* nothing queued may still read the block */
    x->flights.n_begun--;
}

ek_executor ek_gpu_executor(ek_gpu *g)
{
    ek_gpu_run *x = ek_alloc(sizeof *x);
    size_t free = 0, total = 0;
    double room;
    x->g = g, x->flights.n_flights = EK_GPU_FLIGHTS;
    if (ek_cuda_enter(g->c) == EK_OK) ek_cuda_room(g->c, &free, &total);
    room = fmin((double)free * EK_GPU_KEYS_SHARE - g->reserved, (double)ek_cuda_max_block(g->c));
    return (ek_executor){.config = &g->m->config,
                         .layout = &g->m->layout,
                         .model = g->m,
                         .leaves_host = true,
                         .room = room > 1 ? room : 1, /* 0 would mean the host's memory */
                         .arg = x,
                         .open = ek_gpu_run_open,
                         .step = step_run,
                         .begin = begin_run,
                         .end = end_run,
                         .draw = draw_run,
                         .logits = logits_run,
                         .digest = digest_run,
                         .row_cost = 0.03f, /* measured: batch 8 against 1, E2B on an H100 */
                         .row_tile = ek_cuda_chip_of(g->c)->wgmma ? EK_CUDA_WIDE_COLUMNS : 0,
                         .copy_page = copy_page_run,
                         .read_page = read_page_run,
                         .write_page = write_page_run,
                         .poison_page = poison_page_run,
                         .broken = broken_run,
                         .draft = g->drafter ? ek_gpu_draft : NULL,
                         .draft_arg = x,
                         .draft_cost = g->drafter ? g->drafter->draft_cost : 0,
                         .close = ek_gpu_run_close};
}
