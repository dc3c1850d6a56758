/* The table of per-layer embeddings (E2B, E4B) on the device. It is packed piece by piece like a matrix of its type, so
 * that ek_embed can decode its rows. If it does not fit, or has a type without matrices, the CPU decodes rows and
 * copies them. */
#include "gpu/weights/weights.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/log.h"
#include "ops/linear/linear_layout.h"

enum { PIECE = 4096, TASK = 128 }; /* rows */

typedef struct piece {
    ek_linear w;
    ek_weight_data rows;
    ek_err err[PIECE / TASK];
} piece;

static void pack_task(void *arg, int task, int worker)
{
    (void)worker;
    piece *p = arg;
    const int at = task * TASK, n = p->rows.n - at < TASK ? p->rows.n - at : TASK;
    const ek_weight_data some = ek_weight_rows(&p->rows, at, n);
    p->err[task] = ek_linear_pack(&p->w, at, &some);
}

static ek_err copy_piece(ek_gpu *g, piece *p, int first, CUdeviceptr buffer)
{
    const ek_cuda_linear *l = &g->w.table.l;
    const int tasks = (p->rows.n + TASK - 1) / TASK;
    ek_pool_run(g->m->pool, pack_task, p, tasks);
    for (int i = 0; i < tasks; i++) EK_TRY(p->err[i]);
    const bool q = l->units > 0;
    EK_TRY(ek_cuda_upload(g->c, q ? buffer : g->w.table.at + (size_t)(first / EK_PANEL) * p->w.panel_bytes, p->w.data,
                          p->w.bytes));
    if (q) EK_TRY(ek_gpu_pack(g, l, &p->w, buffer, g->w.table.at, first / EK_PANEL, p->w.n_panels));
    return ek_cuda_sync(g->c); /* the memory of the piece is used again */
}

static ek_err copy(ek_gpu *g, const ek_weight_data *data, piece *p, CUdeviceptr buffer)
{
    const int whole = p->w.n;
    uint8_t *mem = p->w.data;
    for (int r = 0; r < data->n; r += PIECE) {
        const int n = data->n - r < PIECE ? data->n - r : PIECE;
        if (n < whole) EK_TRY(ek_linear_plan(&p->w, g->m->cpu, n, data->k, data->type));
        p->w.data = mem;
        p->rows = ek_weight_rows(data, r, n);
        EK_TRY(copy_piece(g, p, r, buffer));
        ek_progress("copying per-layer embeddings to the device", (double)r, (double)data->n);
    }
    return EK_OK;
}

/* Bytes that are left of the device's free memory and of its limit. */
static double left_of(const ek_gpu *g)
{
    size_t free, total;
    if (ek_cuda_room(g->c, &free, &total)) return 0;
    const double given = g->max_bytes - (double)g->bytes;
    return g->max_bytes > 0 && given < (double)free ? given : (double)free;
}

bool ek_gpu_table_fits(double table, double left, double kept)
{
    return table > 0 && table <= left / 4 && table <= left - kept;
}

double ek_gpu_table_plan(ek_gpu *g)
{
    const ek_weight_data *data = &g->m->w.per_layer_embed.data;
    ek_linear whole;
    if (!g->m->config.per_layer_size || !data->plane[0]) return 0;
    if (ek_linear_plan(&whole, g->m->cpu, data->n, data->k, data->type) || ek_cuda_linear_plan(&g->w.table.l, &whole))
        return 0;
    return g->w.table.l.bytes <= ek_cuda_max_block(g->c) ? (double)g->w.table.l.bytes : 0;
}

ek_err ek_gpu_table_upload(ek_gpu *g)
{
    const ek_weight_data *data = &g->m->w.per_layer_embed.data;
    if (!g->m->config.per_layer_size) return EK_OK;
    if (!data->plane[0]) {
        g->w.table = (ek_gpu_matrix){
            .l = {.n = data->n, .k = data->k}, .invented = true, .seed = g->m->w.per_layer_embed.seed};
        return EK_OK;
    }
    if (!ek_gpu_table_fits(ek_gpu_table_plan(g), left_of(g), g->kept_step + g->kept_keys + g->kept_rest)) {
        g->w.table = (ek_gpu_matrix){0};
        return EK_OK;
    }
    piece *p = ek_alloc(sizeof *p);
    CUdeviceptr buffer = 0;
    const int first = data->n < PIECE ? data->n : PIECE;
    ek_err err = ek_linear_plan(&p->w, g->m->cpu, first, data->k, data->type);
    const size_t bytes = p->w.bytes;
    uint8_t *mem = err ? NULL : ek_alloc_big(bytes);
    p->w.data = mem;
    if (!err && !mem) err = ek_fail(EK_ENOMEM, "%zu bytes for embeddings on their way to the device", bytes);
    if (!err) err = ek_cuda_alloc(g->c, &g->w.table.at, g->w.table.l.bytes, "per-layer embeddings");
    if (!err) err = ek_cuda_alloc(g->c, &buffer, bytes, "embeddings on their way");
    if (!err) err = copy(g, data, p, buffer);
    if (!err)
        ek_log(EK_LOG_DEBUG, "per-layer embeddings: %.2f GB of the device's memory", (double)g->w.table.l.bytes / 1e9);
    ek_cuda_free(g->c, buffer);
    if (mem) ek_free_big(mem, bytes);
    free(p);
    return err;
}
