#include "gpu/recipe/exchange.h"
#include "gpu/recipe/linear.h"

#include <stddef.h>

#include "cuda/product/product.h"

/* Whether the launch by whole tiles of wgmma is faster than the other way; few: that is ek_cuda_gated_plan's. */
static bool wide_wins(const ek_gpu_run *x, const ek_gpu_gating *g, bool few)
{
    if (g->jobs) return !few && g->tile == EK_CUDA_WIDE_COLUMNS;
    return ek_cuda_wide_gate_wins(&g->gate->l, &g->next->l, g->tile, few, ek_cuda_chip_of(x->g->c),
                                  x->buf.segment_bytes);
}

ek_gpu_gated ek_gpu_choose_gated(const ek_gpu_run *x, const ek_gpu_gating *g)
{
    const ek_cuda_chip *chip = ek_cuda_chip_of(x->g->c);
    const ek_cuda_linear *l = &g->gate->l, *next = &g->next->l;
    ek_gpu_gated out = {.by = EK_GPU_GATE_APART};
    if (g->upper && !ek_cuda_linear_alike(l, &g->upper->l)) return out;
    const ek_cuda_gate gate = g->upper ? EK_CUDA_GATE_MATRIX : EK_CUDA_GATE_ROW;
    if (ek_cuda_gated_plan(&out.p, l, g->tile, g->jobs, gate, next, chip)) out.by = EK_GPU_GATE_FEW;
    ek_cuda_product wide;
    if (g->upper && !ek_gpu_is_sharded(x) && ek_cuda_wide_gate_plan(&wide, l, next, g->tile, g->jobs, chip) &&
        wide_wins(x, g, out.by == EK_GPU_GATE_FEW))
        out.by = EK_GPU_GATE_WIDE, out.p = wide;
    return out;
}

static ek_gpu_input write_few(ek_gpu_writer *w, const ek_cuda_product *p, const ek_gpu_gating *g,
                              ek_cuda_warp_args with, ek_gpu_input *in, int rows_out)
{
    const ek_cuda_linear *l = &g->gate->l;
    ek_gpu_quantize(w, in, g->gate);
    with.a = ek_gpu_linear_args(w, g->gate, in, p, 0, 0);
    with.a.rows = g->tile;
    if (g->upper)
        with.codes2 = g->upper->at, with.scales2 = g->upper->at + l->code_bytes, with.expert_bytes = (int64_t)l->bytes;
    ek_gpu_input out = {0};
    with.to = g->to;
    if (!g->to.q) out = ek_gpu_turn_acts(w, l->n, rows_out, g->next), with.to = out.acts;
    EK_GPU_WRITE(w, p->name, p->grid, with);
    w->known |= with.jobs && with.holds;
    return out;
}

static ek_gpu_input write_wide(ek_gpu_writer *w, const ek_cuda_product *p, const ek_gpu_gating *g,
                               const ek_cuda_warp_args *with, ek_gpu_input *in, int rows_out)
{
    const ek_cuda_linear *l = &g->gate->l;
    ek_gpu_arrange(w, g->gate, in, p,
                   (ek_cuda_arrange_args){.jobs = with->jobs, .n_jobs = with->n_jobs, .index = with->index});
    ek_cuda_products_args a = {.a = ek_gpu_linear_args(w, g->gate, in, p, 0, 0),
                               .codes2 = g->upper->at,
                               .scales2 = g->upper->at + l->code_bytes,
                               .y2 = w->operand[1],
                               .jobs = with->jobs,
                               .n_jobs = with->n_jobs,
                               .index = with->index,
                               .expert_bytes = (int64_t)l->bytes};
    a.a.rows = g->tile;
    EK_GPU_WRITE(w, p->name, p->grid, a);
    return ek_gpu_turn_operand(w, l->n, rows_out, g->next);
}

ek_gpu_input ek_gpu_write_gated(ek_gpu_writer *w, const ek_gpu_gated *by, const ek_gpu_gating *g,
                                ek_cuda_warp_args with, ek_gpu_input *in, int rows_out)
{
    EK_ASSERT(by->by != EK_GPU_GATE_APART);
    return by->by == EK_GPU_GATE_FEW ? write_few(w, &by->p, g, with, in, rows_out)
                                     : write_wide(w, &by->p, g, &with, in, rows_out);
}

/* n rows; for experts one row for each pair. */
static void write_gate(ek_gpu_writer *w, ek_cuda_gate_args *a, int n)
{
    if (!a->to.q) a->y = a->g; /* in place, because only the same warp reads what it writes */
    for (int first = 0, here; first < n; first += here) {
        here = n - first < EK_CUDA_GRID_Y ? n - first : EK_CUDA_GRID_Y;
        const ek_cuda_grid grid = {.x = ek_gpu_over(a->n, 8 * (a->to.q ? a->to.a_group : 64)),
                                   .y = (unsigned)here,
                                   .threads = 256,
                                   .overlap = true};
        EK_GPU_WRITE(w, "ek_gate", grid, *a);
        a->g += sizeof(float) * (size_t)here * (size_t)a->ldg, a->u += sizeof(float) * (size_t)here * (size_t)a->ldu;
        if (a->to.q) a->to.q += (size_t)here * (size_t)a->to.ldq;
        else a->y += sizeof(float) * (size_t)here * (size_t)a->ldy;
    }
}

void ek_gpu_gate_to(ek_gpu_writer *w, const ek_cuda_acts *to, CUdeviceptr g, CUdeviceptr u, int64_t ld, int n, int k)
{
    ek_cuda_gate_args a = {.g = g, .u = u, .ldg = ld, .ldu = ld, .ldy = ld, .to = *to, .n = k};
    write_gate(w, &a, n);
}

ek_gpu_input ek_gpu_gate(ek_gpu_writer *w, CUdeviceptr g, CUdeviceptr u, int64_t ldg, int64_t ldu, int n, int k,
                         const ek_gpu_matrix *m)
{
    ek_gpu_input in = ek_gpu_rows(g, ldg, n, k);
    ek_cuda_gate_args a = {
        .g = g, .u = u, .ldg = ldg, .ldu = ldu, .ldy = ldg, .to = ek_gpu_acts_for(w, &in, m), .n = k};
    write_gate(w, &a, n);
    return in;
}

static ek_gpu_gating mlp_of(const ek_gpu_run *x, int i, int n)
{
    const ek_gpu_layer *l = &x->g->w.layer[i];
    return (ek_gpu_gating){.gate = &l->gate, .upper = &l->up, .next = &l->down, .tile = n};
}

ek_gpu_gated ek_gpu_choose_mlp(const ek_gpu_run *x, int i, int n)
{
    const ek_gpu_gating g = mlp_of(x, i, n);
    return ek_gpu_choose_gated(x, &g);
}

/* Gate and up of the part by two products, for n rows. */
static void write_apart(ek_gpu_writer *w, const ek_gpu_gating *g, ek_gpu_input *in, ek_gpu_range part, int n)
{
    const ek_gpu_run *x = w->x;
    const int width = g->next->l.k;
    const CUdeviceptr gate = ek_gpu_at_part(x->buf.gate, part), up = ek_gpu_at_part(x->buf.up, part);
    ek_gpu_project_two(w, g->gate, g->upper, in, gate, up, width);
    ek_gpu_gate_to(w, &g->to, gate, up, width, n, part.n);
}

ek_gpu_input ek_gpu_write_mlp_part(ek_gpu_writer *w, int i, ek_gpu_input *in, int n, ek_gpu_exchange *e)
{
    const ek_gpu_run *x = w->x;
    ek_gpu_gating g = mlp_of(x, i, n);
    const bool records = ek_gpu_goes_as_records(x, g.next);
    const ek_gpu_parts parts = ek_gpu_inputs_of(x, g.next);
    const ek_gpu_range part = ek_gpu_part_here(x, &parts);
    const int width = g.next->l.k;
    const ek_gpu_input all = records ? ek_gpu_records_for(g.next, x->exchange.gathered, n)
                                     : ek_gpu_rows(x->buf.gate, width, n, width);
    if (records) g.to = ek_gpu_part_of_records(&all.acts, part);
    const ek_gpu_gated by = ek_gpu_choose_gated(x, &g);
    if (records && by.by == EK_GPU_GATE_FEW) ek_gpu_write_gated(w, &by, &g, (ek_cuda_warp_args){0}, in, n);
    else write_apart(w, &g, in, part, n);
    if (records) ek_gpu_exchange_records(x, e, offsetof(ek_gpu_run, exchange.gathered), &all, g.next, &parts);
    else ek_gpu_exchange_floats(x, e, offsetof(ek_gpu_run, buf.gate), width, &parts, n);
    return all;
}

void ek_gpu_write_down_part(ek_gpu_writer *w, int i, ek_gpu_input *gated)
{
    const ek_gpu_run *x = w->x;
    const int hidden = x->g->m->config.hidden_size;
    const ek_gpu_parts parts = ek_gpu_outputs_of(x, hidden);
    ek_gpu_project(w, &x->g->w.layer[i].down, gated, ek_gpu_at_part(x->buf.y, ek_gpu_part_here(x, &parts)), hidden);
}

static void write_sharded_mlp(ek_gpu_writer *w, int i, ek_gpu_input *in, int n)
{
    ek_gpu_exchange e = {0};
    ek_gpu_input gated = ek_gpu_write_mlp_part(w, i, in, n, &e);
    ek_gpu_write_exchange(w, &e);
    ek_gpu_write_down_part(w, i, &gated);
    ek_gpu_write_exchange_y(w, n);
}

void ek_gpu_write_mlp(ek_gpu_writer *w, int i, ek_gpu_input *in, int n)
{
    const ek_gpu_run *x = w->x;
    if (ek_gpu_is_sharded(x)) {
        write_sharded_mlp(w, i, in, n);
        return;
    }
    const ek_gpu_gating g = mlp_of(x, i, n);
    const ek_gpu_gated by = ek_gpu_choose_gated(x, &g);
    const int inter = x->g->m->config.layer[i].intermediate_size;
    ek_gpu_input gated;
    if (by.by == EK_GPU_GATE_APART) {
        ek_gpu_project_two(w, g.gate, g.upper, in, x->buf.gate, x->buf.up, inter);
        gated = ek_gpu_gate(w, x->buf.gate, x->buf.up, inter, inter, n, inter, g.next);
    } else {
        gated = ek_gpu_write_gated(w, &by, &g, (ek_cuda_warp_args){0}, in, n);
    }
    ek_gpu_project(w, g.next, &gated, x->buf.y, x->g->m->config.hidden_size);
}
