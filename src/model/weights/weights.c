/* Loading weights: items are laid out in one block of memory and packed by all threads. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/hash/rng.h"
#include "base/log.h"
#include "base/machine/cpu.h"
#include "model/weights/weights.h"
#include "ops/weights/quantised_type.h"

enum {
    ALIGN = 64,
    NODE_ALIGN = 2 << 20,  /* a huge page has one node */
    CHUNK = 1 << 18,       /* elements per packing task */
    SLICE = 256,           /* tasks between two progress lines */
    SLICE_BYTES = 32 << 20 /* and the bytes that they read; then the file's pages are released */
};

/* A task: rows [row, row + n) of an item, whose panels belong to one node. */
typedef struct piece {
    const ek_item *item;
    int row, n, node;
} piece;

typedef struct packer {
    const ek_pack_opts *o;
    piece *piece;
    int n_pieces, first;
    int order[SLICE];  /* pieces of a slice, ordered by node */
    uint8_t **temp;    /* per thread: synthetic rows */
    atomic_int failed; /* index of a piece that could not be packed, plus one */
} packer;

static size_t up(size_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static ek_err plan(const ek_item *it, const ek_pack_opts *o)
{
    const ek_weight_type *type = it->data.type;
    if (!it->matrix) return EK_OK;
    if (o->exact && type->unpack) type = ek_weight_type_float(EK_F32);
    ek_err err = ek_linear_plan(it->matrix, o->cpu, it->data.n, it->data.k, type);
    if (!err && type->unpack) err = ek_linear_set_acts(it->matrix, ek_role_acts(it->role, type, o->activations));
    return err ? ek_fail_in(err, "tensor %s", it->name) : EK_OK;
}

static ek_err fill_vector(const ek_item *it, uint64_t seed)
{
    if (it->data.plane[0]) ek_weight_row(&it->data, 0, 0, it->data.k, *it->vector);
    else ek_invent_floats(*it->vector, it, seed, 0, it->data.k);
    for (int k = 0; k < it->data.k; k++)
        if (!isfinite((*it->vector)[k]))
            return ek_fail(EK_EFORMAT, "tensor %s: element %d is %g", it->name, k, (double)(*it->vector)[k]);
    return EK_OK;
}

static ek_err pack_rows(const piece *one, const ek_weight_data *rows)
{
    ek_linear *w = one->item->matrix;
    EK_TRY(ek_linear_pack(w, one->row, rows));
    const int odd = ek_linear_odd_row(w, one->row, one->n);
    if (odd < 0) return EK_OK;
    return ek_fail(EK_EFORMAT, "row %d has a %s that is infinite or no number", odd,
                   w->group > 0 ? "scale or bias" : "weight");
}

static void run_piece(void *arg, int task, int worker)
{
    packer *p = arg;
    const piece *one = &p->piece[p->first + p->order[task]];
    const ek_item *it = one->item;
    ek_weight_data rows = it->data.plane[0] ? ek_weight_rows(&it->data, one->row, one->n)
                                            : ek_invent_rows(it, p->o->seed, one->row, one->n, p->temp[worker]);
    if (pack_rows(one, &rows)) atomic_store(&p->failed, p->first + p->order[task] + 1);
}

/* Pieces start at multiples of a panel, so that no two threads write one panel. */
static int piece_rows(const ek_item *it)
{
    int rows = CHUNK / it->data.k / EK_PANEL * EK_PANEL;
    if (rows < EK_PANEL) rows = EK_PANEL;
    return rows < it->data.n ? rows : it->data.n;
}

static int cut_item(const ek_item *it, int nodes, piece *out)
{
    const ek_linear_parts *parts = it->matrix->parts;
    const int step = piece_rows(it);
    int n = 0;
    for (int j = 0; j < nodes; j++) {
        int r = parts ? parts->first[j] * EK_PANEL : 0, end = parts ? parts->first[j + 1] * EK_PANEL : it->data.n;
        if (end > it->data.n) end = it->data.n;
        for (; r < end; r += step, n++)
            if (out) out[n] = (piece){it, r, r + step <= end ? step : end - r, j};
    }
    return n;
}

static void cut(packer *p, const ek_items *list, size_t *temp_bytes)
{
    const int nodes = ek_pool_nodes(p->o->pool);
    int n = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass) p->piece = ek_alloc(sizeof *p->piece * (size_t)(n + 1));
        n = 0;
        for (int i = 0; i < list->n; i++) {
            const ek_item *it = &list->item[i];
            if (!it->matrix) continue;
            size_t bytes = it->data.plane[0] ? 0 : ek_invent_bytes(it, piece_rows(it));
            if (bytes > *temp_bytes) *temp_bytes = bytes;
            n += cut_item(it, nodes, pass ? p->piece + n : NULL);
        }
    }
    p->n_pieces = n;
}

/* Error messages belong to the thread that failed, so this thread repeats the failing piece. */
static ek_err fail_again(packer *p)
{
    const piece *one = &p->piece[p->failed - 1];
    ek_weight_data rows = ek_weight_rows(&one->item->data, one->row, one->n);
    ek_err err = pack_rows(one, &rows);
    EK_ASSERT(err);
    return ek_fail_in(err, "tensor %s", one->item->name);
}

/* The number of pieces from the first on that are packed together. */
static int slice(const packer *p)
{
    size_t bytes = 0;
    int n = 0;
    for (; n < SLICE && bytes < SLICE_BYTES && p->first + n < p->n_pieces; n++) {
        const piece *one = &p->piece[p->first + n];
        bytes += (size_t)one->n * ek_weight_row_bytes(one->item->data.type, one->item->data.k);
    }
    return n;
}

/* Packs n pieces, each by a thread of the node that will read it, because a page lies on the node of its first
 * writer. */
static void pack_slice(packer *p, int n)
{
    int end[EK_MAX_NODES], done = 0;
    for (int j = 0; j < ek_pool_nodes(p->o->pool); j++) {
        for (int i = 0; i < n; i++)
            if (p->piece[p->first + i].node == j) p->order[done++] = i;
        end[j] = done;
    }
    ek_pool_run_nodes(p->o->pool, run_piece, p, end, true);
}

/* from: the source of the weights, or NULL. Its packed pages are released at once, so that loading takes little more
 * memory than the loaded model. */
static ek_err pack_all(const ek_items *list, const ek_pack_opts *o, ek_source *from)
{
    packer p = {.o = o};
    size_t temp = 0;
    int threads = ek_pool_threads(o->pool);
    cut(&p, list, &temp);
    p.temp = ek_alloc(sizeof *p.temp * (size_t)threads);
    for (int i = 0; i < threads; i++) p.temp[i] = ek_alloc(temp);
    for (int n; p.first < p.n_pieces && !p.failed; p.first += n) {
        n = slice(&p);
        if (!o->quiet) ek_progress("packing weights", p.first, p.n_pieces);
        pack_slice(&p, n);
        if (from) ek_source_drop_pages(from);
    }
    if (!o->quiet) ek_progress("packing weights", p.n_pieces, p.n_pieces);
    ek_err err = p.failed ? fail_again(&p) : EK_OK;
    for (int i = 0; i < threads; i++) free(p.temp[i]);
    free(p.temp);
    free(p.piece);
    return err;
}

void ek_items_quantise(ek_items *list)
{
    for (int i = 0; i < list->n; i++) {
        ek_item *it = &list->item[i];
        const ek_weight_type *type = it->matrix ? ek_weight_type_quantised(it->data.type, it->data.k) : NULL;
        if (type) it->data.type = type;
    }
}

static int clip(int x, int lo, int hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

/* Lays out a node's part of an item; returns the bytes. at NULL: only counts. */
static size_t lay_out_item(const ek_item *it, ek_linear_parts *parts, const ek_pool *pool, const ek_rows_wanted *rows,
                           int node, uint8_t *at)
{
    if (it->vector && at && node == 0) *it->vector = (float *)(void *)at;
    if (it->vector) return node == 0 ? up((size_t)it->data.k * sizeof(float)) : 0;
    if (!it->matrix) return 0;
    int first = ek_linear_node_panel(it->matrix, pool, node), end = ek_linear_node_panel(it->matrix, pool, node + 1);
    if (rows) {
        int row = 0, n = it->matrix->n;
        rows->of(rows->arg, it, &row, &n);
        const int lo = row / EK_PANEL, hi = (row + n + EK_PANEL - 1) / EK_PANEL;
        first = clip(first, lo, hi), end = clip(end, lo, hi);
    }
    if (at && !parts) it->matrix->data = at, it->matrix->parts = NULL;
    if (at && parts) {
        it->matrix->parts = parts;
        parts->first[node] = first, parts->first[node + 1] = end, parts->data[node] = at;
    }
    return up((size_t)(end - first) * it->matrix->panel_bytes);
}

/* Lays the items out node by node, each node from the beginning of a huge page, because a huge page lies on one node as
 * a whole and a matrix may be smaller. Returns the block's size; block NULL: only counts. */
static size_t lay_out(const ek_items *list, ek_weights *w, const ek_pack_opts *o, const ek_rows_wanted *rows,
                      uint8_t *block)
{
    const int nodes = ek_pool_nodes(o->pool);
    size_t at = 0;
    if (block && (nodes > 1 || rows)) w->parts = ek_alloc(sizeof *w->parts * (size_t)list->n);
    for (int j = 0; j < nodes; j++) {
        at = (at + NODE_ALIGN - 1) / NODE_ALIGN * NODE_ALIGN;
        for (int i = 0; i < list->n; i++)
            at += lay_out_item(&list->item[i], w->parts ? &w->parts[i] : NULL, o->pool, rows, j,
                               block ? block + at : NULL);
        w->node_end[j] = at;
    }
    return at;
}

ek_err ek_items_plan(const ek_items *list, ek_weights *w, const ek_pack_opts *o)
{
    static float planned; /* marks a vector that exists but has no memory yet */
    w->mapped_bytes = 0;
    for (int i = 0; i < list->n; i++) {
        const ek_item *it = &list->item[i];
        EK_TRY(plan(it, o));
        if (it->vector) *it->vector = &planned;
        if (it->table && it->data.plane[0])
            w->mapped_bytes += (size_t)it->data.n * ek_weight_row_bytes(it->data.type, it->data.k);
    }
    w->block_bytes = lay_out(list, w, o, NULL, NULL);
    return EK_OK;
}

static ek_err take_memory(ek_weights *w, const ek_pack_opts *o)
{
    double has = o->limit > 0 ? o->limit : ek_memory_available(), needs = (double)w->block_bytes;
    if (has > 0 && needs > has)
        return ek_fail(EK_ENOMEM, "the weights need %.2f GB, %.2f GB can be taken", needs / 1e9, has / 1e9);
    if (!o->quiet)
        ek_log(EK_LOG_DEBUG, "weights of %s: %.1f MB in memory, %.1f MB stay in the file",
               w->source ? w->source->path : "-", needs / 1e6, (double)w->mapped_bytes / 1e6);
    w->block = ek_alloc_big(w->block_bytes);
    return w->block ? EK_OK : EK_ENOMEM;
}

static ek_err fill(const ek_items *list, ek_weights *w, const ek_pack_opts *o, const ek_rows_wanted *rows)
{
    EK_TRY(take_memory(w, o));
    lay_out(list, w, o, rows, w->block);
    for (int i = 0; i < list->n; i++)
        if (list->item[i].vector) EK_TRY(fill_vector(&list->item[i], o->seed));
    return pack_all(list, o, w->source);
}

/* Maps the file if it is there; otherwise packs the weights and writes the file. */
static ek_err fill_or_map(const ek_items *list, ek_weights *w, const ek_pack_opts *o)
{
    ek_packed p;
    EK_TRY(ek_packed_open(&p, o->packed_dir, o->packed_of, list, w, o));
    if (ek_packed_find(&p, w, o->pool)) {
        ek_log(EK_LOG_DEBUG, "weights of %s: %.1f MB in %s", o->packed_of, (double)w->block_bytes / 1e6, p.path);
        w->packed = ek_alloc(sizeof p);
        *w->packed = p;
        w->block = (uint8_t *)p.map.data + p.first;
        lay_out(list, w, o, NULL, w->block);
        return EK_OK;
    }
    ek_err err = fill(list, w, o, NULL);
    if (!err) ek_packed_write(&p, w, o->pool);
    ek_packed_close(&p);
    return err;
}

static void place_tables(const ek_items *list, const ek_pack_opts *o)
{
    for (int i = 0; i < list->n; i++) {
        const ek_item *it = &list->item[i];
        if (it->table) *it->table = (ek_embedding_table){it->data, o->seed ^ ek_fnv1a64(it->name)};
    }
}

ek_err ek_items_pack(const ek_items *list, ek_weights *w, const ek_pack_opts *o)
{
    place_tables(list, o);
    ek_err err = o->packed_dir ? fill_or_map(list, w, o) : fill(list, w, o, NULL);
    ek_pool_leave(o->pool); /* other threads may run the model's steps, and the pool starts new threads */
    return err;
}

ek_err ek_items_pack_layers(const ek_items *list, ek_weights *w, const ek_pack_opts *o, int first, int end, bool embed,
                            const ek_rows_wanted *rows)
{
    ek_items some = {.item = ek_alloc(sizeof *some.item * (size_t)list->n)};
    bool parts = false; /* only some rows of a matrix are wanted */
    for (int i = 0; i < list->n; i++) {
        const ek_item *it = &list->item[i];
        const bool whole = it->layer < 0 ? embed || (it->matrix != &w->embed && it->matrix != &w->head)
                                         : it->layer >= first && it->layer < end;
        int row = 0, n = it->matrix ? it->matrix->n : 1;
        if (rows && it->matrix) rows->of(rows->arg, it, &row, &n);
        if ((whole && n > 0) || (it->layer == end && it->vector)) some.item[some.n++] = *it;
        parts |= whole && it->matrix && n > 0 && n < it->matrix->n;
    }
    if (!parts) rows = NULL; /* whole matrices, so that a CPU may compute with them */
    ek_weights_release(w);
    w->block_bytes = lay_out(&some, w, o, rows, NULL);
    place_tables(&some, o);
    const bool kept = o->packed_dir && some.n == list->n && !rows;
    const ek_err err = kept ? fill_or_map(&some, w, o) : fill(&some, w, o, rows);
    ek_pool_leave(o->pool);
    ek_items_fini(&some);
    return err;
}

void ek_weights_release(ek_weights *w)
{
    if (w->packed) {
        ek_packed_close(w->packed);
        free(w->packed);
    } else {
        ek_free_big(w->block, w->block_bytes);
    }
    free(w->parts);
    w->block = NULL, w->packed = NULL, w->parts = NULL;
}

void ek_weights_fini(ek_weights *w)
{
    ek_weights_release(w);
    ek_source_close(w->source);
    free(w->experts);
    free(w->token_ordering);
    w->source = NULL, w->experts = NULL, w->token_ordering = NULL;
}
