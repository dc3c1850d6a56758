/* Weights into memory: laid out in one block, packed by all threads. */
#include <stdatomic.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"
#include "model/weights.h"

enum { ALIGN = 64, CHUNK = 1 << 18, SLICE = 256 }; /* elements a task packs; tasks between two progress lines */

/* Rows [row, row + n) of an item: one task. */
typedef struct piece {
    const ek_item *item;
    int row, n;
} piece;

typedef struct packer {
    const ek_pack_opts *o;
    piece *piece;
    int n_pieces, first;
    uint8_t **temp; /* a thread's rows, decoded or invented */
    atomic_int failed;
} packer;

static size_t up(size_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static ek_err plan(const ek_item *it, const ek_linear *head, const ek_pack_opts *o, size_t *bytes)
{
    ek_err err = EK_OK;
    *bytes = 0;
    if (it->vector) *bytes = up((size_t)it->n * (size_t)it->k * sizeof(float));
    if (!it->matrix) return EK_OK;
    if (it->bits && o->exact) err = ek_linear_plan_float(it->matrix, o->cpu, it->n, it->k, EK_W_F32);
    else if (it->bits)
        err = ek_linear_plan_affine(it->matrix, o->cpu, it->n, it->k, it->bits, it->group, it->dtype, true);
    else
        err = ek_linear_plan_float(it->matrix, o->cpu, it->n, it->k,
                                   it->dtype == EK_BF16  ? EK_W_BF16
                                   : it->dtype == EK_F16 ? EK_W_F16
                                                         : EK_W_F32);
    /* One limb of activations is enough for the head alone: docs/NUMERICS.md 10. */
    if (!err && it->bits && !o->exact) err = ek_linear_set_limbs(it->matrix, it->matrix == head ? 1 : 2);
    if (err) return ek_fail_in(err, "tensor %s", it->name);
    *bytes = up(it->matrix->bytes);
    return EK_OK;
}

static ek_table as_table(const ek_item *it, uint64_t seed)
{
    return (ek_table){.values = it->values,
                      .scales = it->scales,
                      .biases = it->biases,
                      .dtype = it->dtype,
                      .bits = it->bits,
                      .group = it->group,
                      .rows = it->n,
                      .k = it->k,
                      .seed = seed ^ ek_fnv1a64(it->name)};
}

static void fill_vector(const ek_item *it, uint64_t seed)
{
    if (it->values) {
        ek_table t = as_table(it, 0);
        ek_table_row(&t, 0, 0, it->k, *it->vector);
    } else {
        ek_invent_floats(*it->vector, it, seed, 0, it->k);
    }
}

static size_t float_row(const ek_item *it)
{
    return (size_t)it->k * ek_dtype_size(it->dtype);
}

static ek_err pack_floats(const piece *p, const ek_pack_opts *o, void *temp)
{
    const ek_item *it = p->item;
    const void *src = temp;
    if (it->values) src = it->values + (size_t)p->row * float_row(it);
    else ek_invent_bf16(temp, it, o->seed, p->row, p->n);
    return ek_linear_pack_float(it->matrix, p->row, p->n, src, it->dtype);
}

static ek_err pack_affine(const piece *p, const ek_pack_opts *o, uint8_t *temp)
{
    const ek_item *it = p->item;
    size_t codes = (size_t)it->k * (size_t)it->bits / 8, groups = (size_t)(it->k / it->group);
    ek_item rows = *it;
    rows.n = p->n;
    if (it->values) {
        rows.values += (size_t)p->row * codes;
        rows.scales += (size_t)p->row * groups * ek_dtype_size(it->dtype);
        rows.biases += (size_t)p->row * groups * ek_dtype_size(it->dtype);
    } else {
        ek_bf16 *scales = (ek_bf16 *)(temp + up((size_t)p->n * codes));
        ek_bf16 *biases = scales + (size_t)p->n * groups;
        ek_invent_affine((uint32_t *)temp, scales, biases, it, o->seed, p->row, p->n);
        rows.values = temp, rows.scales = (uint8_t *)scales, rows.biases = (uint8_t *)biases;
    }
    if (o->exact)
        return ek_linear_pack_widened(it->matrix, p->row, p->n, rows.values, rows.scales, rows.biases, it->dtype,
                                      it->bits, it->group);
    return ek_linear_pack_affine(it->matrix, p->row, p->n, rows.values, rows.scales, rows.biases, it->dtype);
}

static void run_piece(void *arg, int task, int worker)
{
    packer *p = arg;
    const piece *one = &p->piece[p->first + task];
    ek_err err = one->item->bits ? pack_affine(one, p->o, p->temp[worker]) : pack_floats(one, p->o, p->temp[worker]);
    if (err) atomic_store(&p->failed, (int)err);
}

/* Pieces start at multiples of a panel, so that two threads never write one panel. */
static int piece_rows(const ek_item *it)
{
    int rows = CHUNK / it->k / EK_PANEL * EK_PANEL;
    if (rows < EK_PANEL) rows = EK_PANEL;
    return rows < it->n ? rows : it->n;
}

static void cut(packer *p, const ek_items *list, size_t *temp_bytes)
{
    int n = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass) p->piece = ek_alloc(sizeof *p->piece * (size_t)(n + 1));
        n = 0;
        for (int i = 0; i < list->n; i++) {
            const ek_item *it = &list->item[i];
            if (!it->matrix) continue;
            int step = piece_rows(it);
            size_t elements = (size_t)step * (size_t)it->k;
            if (elements * 2 + ALIGN > *temp_bytes) *temp_bytes = elements * 2 + ALIGN; /* bf16, or codes and scales */
            for (int r = 0; r < it->n; r += step, n++)
                if (pass) p->piece[n] = (piece){it, r, r + step <= it->n ? step : it->n - r};
        }
    }
    p->n_pieces = n;
}

static ek_err pack_all(const ek_items *list, const ek_pack_opts *o)
{
    packer p = {.o = o};
    size_t temp = 0;
    int threads = ek_pool_threads(o->pool);
    cut(&p, list, &temp);
    p.temp = ek_alloc(sizeof *p.temp * (size_t)threads);
    for (int i = 0; i < threads; i++) p.temp[i] = ek_alloc(temp);
    for (; p.first < p.n_pieces && !p.failed; p.first += SLICE) {
        int left = p.n_pieces - p.first;
        ek_progress("packing weights", p.first, p.n_pieces);
        ek_pool_run(o->pool, run_piece, &p, left < SLICE ? left : SLICE);
    }
    ek_progress("packing weights", p.n_pieces, p.n_pieces);
    for (int i = 0; i < threads; i++) free(p.temp[i]);
    free(p.temp);
    free(p.piece);
    return p.failed ? ek_fail((ek_err)p.failed, "a weight could not be packed") : EK_OK;
}

ek_err ek_items_plan(const ek_items *list, ek_weights *w, const ek_pack_opts *o)
{
    w->block_bytes = w->mapped_bytes = 0;
    for (int i = 0; i < list->n; i++) {
        const ek_item *it = &list->item[i];
        size_t bytes;
        EK_TRY(plan(it, &w->embed, o, &bytes));
        w->block_bytes += bytes;
        if (!it->table || !it->values) continue;
        size_t row = it->bits ? (size_t)it->k * (size_t)it->bits / 8 +
                                    (size_t)(it->k / it->group) * 2 * ek_dtype_size(it->dtype)
                              : float_row(it);
        w->mapped_bytes += (size_t)it->n * row;
    }
    return EK_OK;
}

static ek_err take_memory(ek_weights *w, const ek_pack_opts *o)
{
    double has = o->limit > 0 ? o->limit : ek_memory_available(), needs = (double)w->block_bytes;
    if (has > 0 && needs > has)
        return ek_fail(EK_ENOMEM, "the weights need %.2f GB, %.2f GB can be taken", needs / 1e9, has / 1e9);
    if (w->mapped_bytes)
        ek_log(EK_LOG_INFO, "weights: %.2f GB of memory, and %.2f GB that stay in the file", needs / 1e9,
               (double)w->mapped_bytes / 1e9);
    else ek_log(EK_LOG_INFO, "weights: %.2f GB of memory", needs / 1e9);
    w->block = ek_alloc_big(w->block_bytes);
    return w->block ? EK_OK : EK_ENOMEM;
}

ek_err ek_items_pack(const ek_items *list, ek_weights *w, const ek_pack_opts *o)
{
    EK_TRY(take_memory(w, o));
    uint8_t *at = w->block;
    for (int i = 0; i < list->n; i++) {
        const ek_item *it = &list->item[i];
        if (it->table) *it->table = as_table(it, o->seed);
        if (it->matrix) it->matrix->data = at, at += up(it->matrix->bytes);
        if (!it->vector) continue;
        *it->vector = (float *)at, at += up((size_t)it->k * sizeof(float));
        fill_vector(it, o->seed);
    }
    return pack_all(list, o);
}

void ek_weights_fini(ek_weights *w)
{
    ek_free_big(w->block, w->block_bytes);
    ek_checkpoint_close(w->mapped);
    free(w->experts);
    w->block = NULL, w->mapped = NULL, w->experts = NULL;
}
