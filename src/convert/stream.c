#include "convert/stream.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/hash/rng.h"

enum { CHUNK = 1 << 18, SLICE = 32 }; /* weights of a piece; pieces per thread between two checks of cancel */

/* Rows [row, row + n) of an item. They become the rows of the tensor from `to` on. */
typedef struct piece {
    const ek_out *out;
    const ek_item *item;
    int row, n;
    int64_t to;
} piece;

typedef struct worker {
    float *x;                         /* a row */
    uint8_t *plane[EK_TARGET_PLANES]; /* the places of the converted piece */
    uint8_t *invented;
} worker;

typedef struct job {
    const ek_stream_opts *o;
    ek_outdir *to;
    piece *list;
    int n, first;
    worker *worker;
    atomic_int failed; /* the first piece that failed; n if none failed */
} job;

/* ------------------------------------------------------------------ one piece */

static ek_err check_values(const piece *p, int row, const float *x)
{
    const ek_target *t = p->out->target;
    if (t->block == 1 && t->max == 0) return EK_OK; /* a float with float32's range holds every value */
    float max = t->max > 0 ? t->max : 3e38f, worst = 0;
    bool fits = true;
    for (int i = 0; i < p->out->k; i++) fits &= fabsf(x[i]) <= max;
    if (fits) return EK_OK;
    for (int i = 0; i < p->out->k && fabsf(worst) <= max; i++) worst = x[i];
    return ek_fail(EK_EFORMAT, "%s: a weight of row %lld is %g, %s holds values up to %g", p->out->plane[0].name,
                   (long long)(p->to + row), (double)worst, t->name, (double)max);
}

static ek_err put_plane(const job *j, const piece *p, int i, const uint8_t *bytes)
{
    const ek_out_plane *plane = &p->out->plane[i];
    return ek_outdir_write(j->to, plane->file, plane->at + (uint64_t)p->to * plane->row_bytes, bytes,
                           (size_t)p->n * plane->row_bytes);
}

/* Copies the bytes unchanged from the source. */
static ek_err copy(const job *j, const piece *p, const ek_weight_data *rows)
{
    for (int i = 0; i < p->out->n_planes; i++) EK_TRY(put_plane(j, p, i, ek_weight_plane_row(rows, i, 0)));
    return EK_OK;
}

static void read_row(const job *j, const piece *p, const ek_weight_data *rows, int row, float *x)
{
    const ek_item *it = p->item;
    if (rows->plane[0]) ek_weight_row(rows, row, 0, rows->k, x);
    else if (it->vector) ek_invent_floats(x, it, j->o->seed, 0, rows->k);
    else {
        ek_embedding_table table = {it->data, j->o->seed ^ ek_fnv1a64(it->name)};
        ek_embedding_row(&table, p->row + row, 0, rows->k, x);
    }
}

static ek_err run_piece(const job *j, const piece *p, worker *w)
{
    const ek_target *t = p->out->target;
    ek_weight_data rows = ek_weight_rows(&p->item->data, p->row, p->n);
    if (p->item->matrix && !rows.plane[0]) rows = ek_invent_rows(p->item, j->o->seed, p->row, p->n, w->invented);
    if (ek_target_holds(t, &rows)) return copy(j, p, &rows);
    for (int r = 0; r < p->n; r++) {
        uint8_t *plane[EK_TARGET_PLANES];
        read_row(j, p, &rows, r, w->x);
        EK_TRY(check_values(p, r, w->x));
        for (int i = 0; i < EK_TARGET_PLANES; i++) plane[i] = w->plane[i] + (size_t)r * p->out->plane[i].row_bytes;
        t->put(w->x, p->out->k, plane, j->o->search);
    }
    for (int i = 0; i < p->out->n_planes; i++) EK_TRY(put_plane(j, p, i, w->plane[i]));
    return EK_OK;
}

static void task(void *arg, int i, int number)
{
    job *j = arg;
    int at = j->first + i, seen = atomic_load(&j->failed);
    if (seen < at || !run_piece(j, &j->list[at], &j->worker[number])) return;
    while (at < seen && !atomic_compare_exchange_weak(&j->failed, &seen, at)) {
    }
}

/* ------------------------------------------------------------------ all pieces */

static int piece_rows(const ek_out *t)
{
    return t->k < CHUNK ? CHUNK / t->k : 1;
}

static void cut(job *j, const ek_layout *l)
{
    for (int pass = 0; pass < 2; pass++) {
        if (pass) j->list = ek_alloc(sizeof *j->list * (size_t)(j->n + 1));
        j->n = 0;
        for (int i = 0; i < l->n; i++) {
            const ek_out *t = &l->out[i];
            int64_t to = 0;
            for (int part = 0; part < t->n_parts; part++) {
                const ek_item *it = t->part[part];
                int step = piece_rows(t), rows = it->data.n;
                for (int r = 0; r < rows; r += step, j->n++)
                    if (pass) j->list[j->n] = (piece){t, it, r, r + step < rows ? step : rows - r, to + r};
                to += rows;
            }
        }
    }
    atomic_store(&j->failed, j->n);
}

static void open_workers(job *j, const ek_layout *l, int threads)
{
    size_t plane[EK_TARGET_PLANES] = {1, 1, 1}, invented = 1, x = 1;
    for (int i = 0; i < j->n; i++) {
        const piece *p = &j->list[i];
        for (int a = 0; a < p->out->n_planes; a++) {
            size_t bytes = (size_t)p->n * p->out->plane[a].row_bytes;
            if (bytes > plane[a]) plane[a] = bytes;
        }
        if (p->item->matrix && !p->item->data.plane[0] && ek_invent_bytes(p->item, p->n) > invented)
            invented = ek_invent_bytes(p->item, p->n);
    }
    for (int i = 0; i < l->n; i++) x = (size_t)l->out[i].k > x ? (size_t)l->out[i].k : x;
    j->worker = ek_alloc(sizeof *j->worker * (size_t)threads);
    for (int i = 0; i < threads; i++) {
        worker *w = &j->worker[i];
        *w = (worker){.x = ek_alloc(x * sizeof *w->x), .invented = ek_alloc(invented)};
        for (int a = 0; a < EK_TARGET_PLANES; a++) w->plane[a] = ek_alloc(plane[a]);
    }
}

static void close_workers(job *j, int threads)
{
    for (int i = 0; i < threads; i++) {
        for (int a = 0; a < EK_TARGET_PLANES; a++) free(j->worker[i].plane[a]);
        free(j->worker[i].x);
        free(j->worker[i].invented);
    }
    free(j->worker);
    free(j->list);
}

static ek_err run_all(job *j, int threads)
{
    int slice = SLICE * threads;
    for (; j->first < j->n; j->first += slice) {
        int left = j->n - j->first;
        if (j->o->cancel && *j->o->cancel) return ek_fail(EK_ECANCELLED, "stopped; nothing was written");
        ek_progress("converting", j->first, j->n);
        ek_pool_run(j->o->pool, task, j, left < slice ? left : slice);
        int failed = atomic_load(&j->failed);
        if (failed == j->n) continue;
        /* An error's sentence belongs to its thread, so the piece is run again on this thread. */
        ek_err err = run_piece(j, &j->list[failed], &j->worker[0]);
        return err ? err : ek_fail(EK_EIO, "%s: a piece failed once", j->list[failed].out->plane[0].name);
    }
    ek_progress("converting", j->n, j->n);
    return EK_OK;
}

ek_err ek_stream(const ek_layout *l, ek_outdir *to, const ek_stream_opts *o)
{
    job j = {.o = o, .to = to};
    int threads = o->pool ? ek_pool_threads(o->pool) : 1;
    cut(&j, l);
    open_workers(&j, l, threads);
    ek_err err = run_all(&j, threads);
    close_workers(&j, threads);
    return err;
}
