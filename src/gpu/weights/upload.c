/* Copies the weights to the device. Matrices of Form Q are copied in the CPU's layout and rearranged there by
 * ek_pack_q; Form F and vectors are copied unchanged. The weights of a deferred model are read some layers at a time,
 * so that host memory never holds more. */
#include "gpu/weights/weights.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/log.h"
#include "cuda/model_args.h"
#include "cuda/product/layout.h"
#include "cuda/product/product.h"
#include "ops/linear/linear_layout.h"

enum { ALIGN = 256 };

/* Layers are read together up to this fraction of all bytes, and up to this many bytes. */
static const double GROUP_PART = 1.0 / 16, GROUP_BYTES = 1e9;

/* Visits everything twice: the first visit counts bytes, the second copies. */
typedef struct upload {
    ek_gpu *g;
    bool copies,
        reads; /* copies: the second visit; reads: layers of a deferred model are read before they are copied */
    const ek_rows_wanted *wanted; /* the rows that it reads */
    int read_end;                 /* layers [g->share.first, read_end) were read */
    size_t at, done, max; /* the offset in the current block, all bytes so far, and the maximum bytes of a block */
    int block;
    ek_gpu_buffer buffer;
    ek_err err;
} upload;

static void note(upload *u, ek_err err)
{
    if (!u->err) u->err = err;
}

/* Takes memory behind the last piece, or in the next block. Both visits take the same. */
static CUdeviceptr take(upload *u, size_t bytes)
{
    const size_t whole = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (u->at && whole > u->max - u->at) u->block++, u->at = 0;
    if (u->block == EK_GPU_BLOCKS) {
        note(u,
             ek_fail(EK_EUNSUPPORTED, "weights need more than %d blocks of %.2f GB, the most that %s:%d gives at once",
                     EK_GPU_BLOCKS, (double)u->max / 1e9, ek_cuda_maker(u->g->c), ek_cuda_ordinal(u->g->c)));
        return 0;
    }
    if (whole > u->max) {
        note(u, ek_fail(EK_EUNSUPPORTED, "weights have a piece of %.2f GB; %s:%d gives at most %.2f GB at once",
                        (double)whole / 1e9, ek_cuda_maker(u->g->c), ek_cuda_ordinal(u->g->c), (double)u->max / 1e9));
        return 0;
    }
    const CUdeviceptr at = u->g->block[u->block] + u->at;
    u->at += whole, u->done += whole;
    u->g->block_bytes[u->block] = u->at;
    return at;
}

static void vector(upload *u, CUdeviceptr *to, const float *from, int n)
{
    if (!from || u->err) return;
    *to = take(u, sizeof(float) * (size_t)n);
    if (u->copies) note(u, ek_cuda_upload(u->g->c, *to, from, sizeof(float) * (size_t)n));
}

ek_err ek_gpu_pack(ek_gpu *g, const ek_cuda_linear *l, const ek_linear *w, CUdeviceptr from, CUdeviceptr to, int first,
                   int n)
{
    const ek_cuda_grid grid = {.x = (unsigned)l->units, .y = (unsigned)n, .threads = 32};
    if (w->form == EK_W_PLANES) {
        ek_cuda_pack_planes_args a;
        ek_cuda_planes_args(&a, l, w);
        a.from = from, a.codes = to, a.scales = to + l->code_bytes, a.first = first;
        ek_gpu_launch(g, "ek_pack_planes", grid, &a);
        return g->err;
    }
    ek_cuda_pack_args a = {.from = from,
                           .codes = to,
                           .scales = to + l->code_bytes,
                           .panel_bytes = (int64_t)w->panel_bytes,
                           .group_bytes = (int64_t)ek_linear_group_bytes(w),
                           .first = first,
                           .k = l->k,
                           .units = l->units,
                           .group = l->group,
                           .a_group = l->a_group,
                           .bits = l->bits,
                           .scale_bytes = l->f32_scales ? 4 : 2,
                           .biased = l->biased};
    ek_gpu_launch(g, "ek_pack_q", grid, &a);
    return g->err;
}

ek_err ek_gpu_upload_matrix(ek_gpu *g, const ek_cuda_linear *l, const ek_linear *w, CUdeviceptr to, int first,
                            ek_gpu_buffer through)
{
    const bool q = ek_wform_is_q(w->form);
    const size_t step = q ? through.bytes / w->panel_bytes : EK_CUDA_GRID_Y;
    for (int p = 0, n; p < w->n_panels; p += n) {
        n = ek_linear_adjacent(w, p);
        if ((size_t)n > step) n = (int)step;
        if (n > EK_CUDA_GRID_Y) n = EK_CUDA_GRID_Y;
        const CUdeviceptr at = q ? through.at : to + (size_t)(first + p) * w->panel_bytes;
        EK_TRY(ek_cuda_upload(g->c, at, ek_linear_panel(w, p), (size_t)n * w->panel_bytes));
        if (q) EK_TRY(ek_gpu_pack(g, l, w, at, to, first + p, n));
    }
    return EK_OK;
}

/* Copies `copies` matrices of one layout, one after the other. */
static void matrices(upload *u, ek_gpu_matrix *to, const ek_linear *from, int copies)
{
    if (from->n == 0 || u->err) return;
    if (!u->copies) {
        note(u, ek_cuda_linear_plan(&to->l, from));
        if (!ek_wform_is_q(from->form)) to->l.bytes = (to->l.bytes + ALIGN - 1) / ALIGN * ALIGN;
        if (ek_wform_is_q(from->form) && from->panel_bytes > u->buffer.bytes) u->buffer.bytes = from->panel_bytes;
        const bool q = ek_wform_is_q(from->form);
        int leaves = (from->k + EK_KBLOCK_Q - 1) / EK_KBLOCK_Q, levels = q ? 0 : ek_cuda_floats_levels(from->k);
        int *max = q ? &u->g->levels : &u->g->float_levels;
        while (q && leaves >> levels) levels++;
        if (levels > *max) *max = levels;
    }
    to->at = take(u, to->l.bytes * (size_t)copies);
    for (int i = 0; i < copies && u->copies && !u->err; i++) {
        note(u, ek_gpu_upload_matrix(u->g, &to->l, &from[i], to->at + to->l.bytes * (size_t)i, 0, u->buffer));
        ek_progress("copying weights to the device", (double)u->done, (double)u->g->bytes);
    }
}

static void matrix(upload *u, ek_gpu_matrix *to, const ek_linear *from)
{
    matrices(u, to, from, 1);
}

/* Rows p of a matrix; they begin at a whole panel. parts: room for the positions of its panels. */
static ek_linear rows_of(const upload *u, const ek_linear *w, ek_gpu_range p, ek_linear_parts *parts)
{
    ek_linear out = *w;
    const int skip = p.first / EK_PANEL;
    out.n = p.n, out.n_panels = (p.n + EK_PANEL - 1) / EK_PANEL;
    out.bytes = (size_t)out.n_panels * w->panel_bytes;
    if (!u->copies) { /* the first visit needs no weights in memory */
        out.data = NULL, out.parts = NULL;
        return out;
    }
    if (!w->parts) {
        if (w->data) out.data = w->data + (size_t)skip * w->panel_bytes;
        return out;
    }
    *parts = (ek_linear_parts){0};
    for (int j = 0; j < EK_MAX_NODES && parts->first[j] < out.n_panels; j++) {
        const int end = w->parts->first[j + 1] - skip;
        parts->first[j + 1] = end < 0 ? 0 : end < out.n_panels ? end : out.n_panels;
        if (parts->first[j + 1] > parts->first[j]) parts->data[j] = ek_linear_panel(w, skip + parts->first[j]);
    }
    out.parts = parts;
    return out;
}

/* Copies this device's part of `copies` matrices of layer i. */
static void rows(upload *u, int i, ek_gpu_matrix *to, const ek_linear *from, int copies)
{
    ek_gpu *g = u->g;
    if (!g->share.shard.ranks || from->n == 0) {
        matrices(u, to, from, copies);
        return;
    }
    ek_linear_parts *parts = ek_alloc(sizeof *parts * (size_t)copies);
    ek_linear *some = ek_alloc(sizeof *some * (size_t)copies);
    for (int j = 0; j < copies; j++)
        some[j] = rows_of(u, &from[j], ek_gpu_rows_here(&g->share.shard, g->m, i, &from[j]), &parts[j]);
    matrices(u, to, some, copies);
    free(parts), free(some);
}

static void layer(upload *u, int i)
{
    const ek_layer_weights *from = &u->g->m->w.layer[i];
    ek_gpu_layer *to = &u->g->w.layer[i];
    const ek_config *c = &u->g->m->config;
    const ek_layer_config *l = &c->layer[i];
    int hidden = c->hidden_size;
    rows(u, i, &to->q, &from->q, 1), rows(u, i, &to->k, &from->k, 1), rows(u, i, &to->v, &from->v, 1);
    rows(u, i, &to->o, &from->o, 1), rows(u, i, &to->gate, &from->gate, 1), rows(u, i, &to->up, &from->up, 1);
    rows(u, i, &to->down, &from->down, 1);
    matrix(u, &to->per_layer_gate, &from->per_layer_gate), matrix(u, &to->per_layer_proj, &from->per_layer_proj);
    if (c->n_experts && ek_gpu_experts_are_here(&u->g->share, i)) {
        matrix(u, &to->router, &from->router);
        rows(u, i, &to->expert_gate, from->expert_gate, c->n_experts);
        rows(u, i, &to->expert_up, from->expert_up, c->n_experts);
        rows(u, i, &to->expert_down, from->expert_down, c->n_experts);
    }
    vector(u, &to->input_norm, from->input_norm, hidden);
    vector(u, &to->q_norm, from->q_norm, l->head_dim);
    vector(u, &to->k_norm, from->k_norm, l->head_dim);
    vector(u, &to->post_attention_norm, from->post_attention_norm, hidden);
    vector(u, &to->pre_mlp_norm, from->pre_mlp_norm, hidden);
    vector(u, &to->post_mlp_norm, from->post_mlp_norm, hidden);
    vector(u, &to->post_mlp_norm_1, from->post_mlp_norm_1, hidden);
    vector(u, &to->pre_mlp_norm_2, from->pre_mlp_norm_2, hidden);
    vector(u, &to->post_mlp_norm_2, from->post_mlp_norm_2, hidden);
    vector(u, &to->router_scale, from->router_scale, hidden);
    vector(u, &to->expert_scale, from->expert_scale, c->n_experts);
    vector(u, &to->post_per_layer_norm, from->post_per_layer_norm, hidden);
    vector(u, &to->scalar, from->scalar, 1);
}

/* The norm of the following layer, and the layout of its matrices on the next device: the last layer here ends as if
 * that layer were here, too. */
static void layer_behind(upload *u, int i)
{
    const ek_layer_weights *from = &u->g->m->w.layer[i];
    ek_gpu_layer *to = &u->g->w.layer[i];
    const ek_linear *const heads[] = {&from->q, &from->k, &from->v};
    ek_gpu_matrix *const plan[] = {&to->q, &to->k, &to->v};
    vector(u, &to->input_norm, from->input_norm, u->g->m->config.hidden_size);
    for (int j = 0; j < 3 && !u->copies; j++)
        if (heads[j]->n) note(u, ek_cuda_linear_plan(&plan[j]->l, heads[j]));
}

/* The outputs of a whole matrix that this device computes. */
static ek_gpu_matrix part_of(const ek_gpu *g, const ek_gpu_matrix *whole)
{
    ek_gpu_matrix out = *whole, *to = &out;
    const ek_gpu_range p = ek_gpu_outputs_here(&g->share.shard, to->l.n);
    const size_t skip = (size_t)(p.first / EK_PANEL), panels = (size_t)to->l.n_panels,
                 codes = to->l.code_bytes / panels * skip,
                 scales = (size_t)(to->l.units ? to->l.k / to->l.group : 0) * EK_PANEL * ek_cuda_linear_scale(&to->l);
    to->l.n = p.n, to->l.n_panels = (p.n + EK_PANEL - 1) / EK_PANEL;
    to->at += codes;
    to->l.code_bytes = to->l.code_bytes - codes +
                       scales * skip; /* the distance from the first code to the first scale */
    return out;
}

/* The head here is a part of a whole matrix: of the token table, or of a separate head. */
static void parts(ek_gpu *g)
{
    g->w.head = g->share.head && g->share.shard.ranks ? part_of(g, ek_gpu_head(&g->w)) : *ek_gpu_head(&g->w);
    for (int i = g->share.first; i < g->share.end && g->share.shard.ranks; i++)
        g->w.layer[i].o_part = g->share.shard.whole_o ? part_of(g, &g->w.layer[i].o) : g->w.layer[i].o;
}

/* Reads layers [first, end), and with `embed` the weights outside of layers; they replace those that were copied. */
static void read_some(upload *u, int first, int end, bool embed)
{
    const ek_model_share some = {.first = first, .end = end, .embed = embed, .rows = u->wanted, .quiet = true};
    if (u->err || !u->copies || !u->reads) return;
    note(u, ek_cuda_sync(u->g->c)); /* it is copied */
    if (!u->err) note(u, ek_model_pack(u->g->m, &some));
    u->read_end = end;
}

static void read_layer(upload *u, int i)
{
    const double part = (double)u->g->bytes * GROUP_PART, max = part < GROUP_BYTES ? part : GROUP_BYTES;
    double bytes = 0;
    int end = i;
    if (i < u->read_end) return;
    do bytes += ek_model_layer_bytes(u->g->m, end++);
    while (end < u->g->share.end && bytes + ek_model_layer_bytes(u->g->m, end) <= max);
    read_some(u, i, end, false);
}

static void all(upload *u)
{
    ek_gpu *g = u->g;
    const ek_model *m = g->m;
    const ek_config *c = &m->config;
    read_some(u, g->share.first, g->share.first, g->share.embed);
    if (g->share.embed) matrix(u, &g->w.embed, &m->w.embed), matrix(u, &g->w.own_head, &m->w.head);
    matrix(u, &g->w.per_layer_head, &m->w.per_layer_head), matrix(u, &g->w.per_layer_tail, &m->w.per_layer_tail);
    matrix(u, &g->w.pre_projection, &m->w.pre_projection);
    matrix(u, &g->w.post_projection, &m->w.post_projection);
    matrix(u, &g->w.centroids, &m->w.centroids);
    if (c->n_centroids) {
        const size_t bytes = sizeof(int32_t) * (size_t)c->vocab_size;
        g->w.ordering = take(u, bytes);
        if (u->copies) note(u, ek_cuda_upload(g->c, g->w.ordering, m->w.token_ordering, bytes));
    }
    vector(u, &g->w.norm, m->w.norm, c->hidden_size);
    vector(u, &g->w.per_layer_norm, m->w.per_layer_norm, c->per_layer_size);
    for (int k = 0; k < EK_KIND_COUNT; k++) vector(u, &g->w.rope[k], m->rope[k], m->n_rotated[k]);
    for (int i = g->share.first; i < g->share.end; i++) {
        read_layer(u, i);
        layer(u, i);
    }
    if (g->share.end < c->n_layers) layer_behind(u, g->share.end);
    g->w.suppress = take(u, sizeof(int32_t) * EK_MAX_STOP);
    if (u->copies) note(u, ek_cuda_upload(g->c, g->w.suppress, c->suppress, sizeof c->suppress));
}

static ek_err take_memory(upload *u)
{
    ek_gpu *g = u->g;
    size_t free, total;
    g->bytes = u->done, g->n_blocks = u->block + 1;
    EK_TRY(ek_cuda_room(g->c, &free, &total));
    ek_log(EK_LOG_DEBUG, "%s: %.2f GB of the device's memory, %.2f of %.2f GB are free",
           g->target ? "weights of the drafter" : "weights", (double)g->bytes / 1e9, (double)free / 1e9,
           (double)total / 1e9);
    for (int i = 0; i < g->n_blocks; i++) EK_TRY(ek_cuda_alloc(g->c, &g->block[i], g->block_bytes[i], "the weights"));
    return EK_OK;
}

void ek_gpu_set_share(ek_gpu *g, const ek_model_share *s, ek_gpu_shard shard)
{
    const ek_model *m = g->m;
    g->share = (ek_gpu_share){.first = s->first, .end = s->end, .embed = s->embed, .shard = shard};
    g->share.head = s->end == m->config.n_layers;
    g->share.host_experts = s->host_experts;
    ek_gpu_pages_here(g->share.kv_at, g->share.kv_bytes, m, s, &shard);
}

void ek_gpu_set_drafter(ek_gpu *own, ek_gpu *g, const ek_drafter *d)
{
    own->c = g->c, own->target = g, own->m = ek_drafter_model(d), own->prove = g->prove;
    own->position = ek_drafter_position(d);
    own->share = g->share; /* of pages */
    own->share.first = 0, own->share.end = own->m->config.n_layers, own->share.embed = true;
    own->share.shard = (ek_gpu_shard){0}; /* a drafter is whole on its device and reads keys on all devices */
}

ek_err ek_gpu_upload_plan(ek_gpu *g)
{
    upload u = {.g = g, .max = ek_cuda_max_block(g->c)};
    all(&u);
    g->bytes = u.done;
    return u.err;
}

ek_err ek_gpu_upload(ek_gpu *g, const ek_rows_wanted *wanted)
{
    upload u = {.g = g, .wanted = wanted, .max = ek_cuda_max_block(g->c), .buffer = {.bytes = EK_GPU_BUFFER}};
    u.reads = ek_model_is_deferred(g->m) && !ek_model_is_packed(g->m);
    if (!g->m->w.block && !u.reads) return ek_fail(EK_EINVAL, "the weights were released");
    all(&u);
    EK_TRY(u.err);
    EK_TRY(take_memory(&u));
    EK_TRY(ek_cuda_alloc(g->c, &u.buffer.at, u.buffer.bytes, "weights on their way"));
    u.copies = true, u.at = u.done = 0, u.block = 0;
    all(&u);
    if (!u.err) u.err = ek_cuda_sync(g->c);
    if (!u.err) parts(g);
    if (u.reads) ek_model_release_weights(g->m);
    ek_cuda_free(g->c, u.buffer.at);
    return u.err;
}
