/* Linear layers of a step on the device: which kernel, its arguments, its launch; rows are quantised where they are not
 * yet. */
#include "gpu/run.h"

static unsigned up(int n, int by)
{
    return (unsigned)((n + by - 1) / by);
}

ek_gpu_input ek_gpu_rows(CUdeviceptr f, int64_t ld, int n, int k)
{
    return (ek_gpu_input){.f = f, .ld = ld, .n = n, .k = k};
}

ek_cuda_acts ek_gpu_acts_for(ek_gpu_run *x, ek_gpu_input *in, const ek_gpu_matrix *w)
{
    in->acts.q = 0, in->number = 0;
    if (w->l.units == 0 || w->l.a_group == 16) return in->acts; /* groups of 16: by ek_quantize alone */
    ek_cuda_acts_plan(&in->acts, in->k, w->l.a_group);
    in->acts.q = x->acts;
    return in->acts;
}

void ek_gpu_quantize(ek_gpu_run *x, ek_gpu_input *in, const ek_gpu_matrix *w)
{
    if (w->l.units == 0 || (in->acts.q && in->acts.a_group == w->l.a_group)) return;
    EK_ASSERT(in->f);
    ek_cuda_acts_plan(&in->acts, in->k, w->l.a_group);
    in->acts.q = x->acts;
    ek_cuda_quantize_args a = {.to = in->acts, .x = in->f, .ldx = in->ld};
    ek_gpu_launch(
        x->g, "ek_quantize",
        (ek_cuda_grid){.x = up(in->k, w->l.a_group * 8), .y = (unsigned)in->n, .threads = 256, .overlap = true}, &a);
}

ek_cuda_linear_args ek_gpu_linear_args(ek_gpu_run *x, const ek_gpu_matrix *w, const ek_gpu_input *in,
                                       const ek_cuda_product *p, CUdeviceptr y, int64_t ldy)
{
    ek_cuda_linear_args a = {.x = in->acts,
                             .f = in->f,
                             .ldf = in->ld,
                             .y = y,
                             .ldy = ldy,
                             .stack = x->stack,
                             .image = w->l.units ? x->image[w->l.limbs - 1] : 0,
                             .rows = in->n,
                             .pass = p->pass,
                             .levels = p->levels,
                             .turn = p->turn,
                             .stages = p->stages};
    ek_cuda_linear_args_of(&a, &w->l, w->at);
    return a;
}

void ek_gpu_project(ek_gpu_run *x, const ek_gpu_matrix *w, ek_gpu_input *in, CUdeviceptr y, int64_t ldy)
{
    /* the leaves of attention have no use while a product runs */
    ek_cuda_product p = ek_cuda_product_plan(&w->l, in->n, ek_cuda_multiprocessors(x->g->c), x->leaf_bytes);
    ek_gpu_arrange(x, w, in, &p, (ek_cuda_arrange_args){0});
    ek_cuda_linear_args a = ek_gpu_linear_args(x, w, in, &p, y, ldy);
    if (p.parts) a.y = x->leaves, a.ldy = w->l.n, a.split = p.split;
    ek_gpu_launch(x->g, p.name, p.grid, &a);
    if (!p.parts) return;
    ek_cuda_join_args join = {.y = y, .parts = x->leaves, .ldy = ldy, .n = w->l.n, .rows = in->n, .n_parts = p.parts};
    ek_gpu_launch(x->g, "ek_product_join",
                  (ek_cuda_grid){.x = up(w->l.n, 256), .y = (unsigned)in->n, .threads = 256, .overlap = true}, &join);
}

void ek_gpu_project_two(ek_gpu_run *x, const ek_gpu_matrix *w, const ek_gpu_matrix *w2, ek_gpu_input *in, CUdeviceptr y,
                        CUdeviceptr y2, int64_t ldy)
{
    ek_cuda_product p = {.name = ""};
    if (ek_cuda_plane_wins(&w->l, in->n, ek_cuda_multiprocessors(x->g->c)) && ek_cuda_linear_alike(&w->l, &w2->l)) {
        ek_gpu_quantize(x, in, w);
        p = ek_cuda_plane_pair(&w->l, in->n, ek_cuda_multiprocessors(x->g->c));
        ek_cuda_leaf_args a = {.a = ek_gpu_linear_args(x, w, in, &p, y, ldy),
                               .codes2 = w2->at,
                               .scales2 = w2->at + w2->l.code_bytes,
                               .y2 = y2};
        ek_gpu_launch(x->g, p.name, p.grid, &a);
        return;
    }
    if (ek_cuda_linear_alike(&w->l, &w2->l))
        p = ek_cuda_products_plan(&w->l, in->n, 0, 2, ek_cuda_multiprocessors(x->g->c));
    if (!p.name[0]) {
        ek_gpu_project(x, w, in, y, ldy);
        ek_gpu_project(x, w2, in, y2, ldy);
        return;
    }
    ek_gpu_quantize(x, in, w);
    ek_cuda_products_args a = {.a = ek_gpu_linear_args(x, w, in, &p, y, ldy),
                               .codes2 = w2->at,
                               .scales2 = w2->at + w2->l.code_bytes,
                               .y2 = y2};
    ek_gpu_launch(x->g, p.name, p.grid, &a);
}

ek_gpu_input ek_gpu_gate(ek_gpu_run *x, CUdeviceptr g, CUdeviceptr u, int64_t ldg, int64_t ldu, int n, int k,
                         const ek_gpu_matrix *w)
{
    ek_gpu_input in = ek_gpu_rows(g, ldg, n, k);
    ek_cuda_gate_args a = {
        .g = g, .u = u, .ldg = ldg, .ldu = ldu, .ldy = ldg, .to = ek_gpu_acts_for(x, &in, w), .n = k};
    if (!a.to.q) a.y = g; /* in place: a warp reads what it alone writes */
    ek_gpu_launch(
        x->g, "ek_gate",
        (ek_cuda_grid){.x = up(k, 8 * (a.to.q ? a.to.a_group : 64)), .y = (unsigned)n, .threads = 256, .overlap = true},
        &a);
    return in;
}

bool ek_gpu_gated(ek_gpu_run *x, const ek_gpu_matrix *gate, const ek_gpu_matrix *upper, ek_cuda_leaf_args with,
                  int tile, int jobs, ek_gpu_input *in, int rows_out, const ek_gpu_matrix *w, ek_gpu_input *out)
{
    const ek_cuda_linear *l = &gate->l;
    const int multiprocessors = ek_cuda_multiprocessors(x->g->c);
    ek_cuda_product p;
    if ((upper && !ek_cuda_linear_alike(l, &upper->l)) ||
        !ek_cuda_gated_plan(&p, l, tile, jobs, upper ? EK_CUDA_GATE_MATRIX : EK_CUDA_GATE_ROW, &w->l, multiprocessors))
        return false;
    ek_gpu_quantize(x, in, gate);
    with.a = ek_gpu_linear_args(x, gate, in, &p, 0, 0);
    with.a.rows = tile;
    if (upper) with.codes2 = upper->at, with.scales2 = upper->at + l->code_bytes, with.expert_bytes = (int64_t)l->bytes;
    /* rows are read from one place for records while others are written */
    CUdeviceptr read = x->acts;
    x->acts = x->acts2, x->acts2 = read;
    *out = ek_gpu_rows(0, 0, rows_out, l->n);
    ek_cuda_acts_plan(&out->acts, out->k, w->l.a_group);
    out->acts.q = x->acts;
    with.to = out->acts;
    ek_gpu_launch(x->g, p.name, p.grid, &with);
    return true;
}
