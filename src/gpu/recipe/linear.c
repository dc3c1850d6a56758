#include "gpu/recipe/linear.h"

#include "cuda/operand_args.h"
#include "cuda/product/product.h"

/* --- rows in the forms of kernels */

ek_gpu_input ek_gpu_rows(CUdeviceptr f, int64_t ld, int n, int k)
{
    return (ek_gpu_input){.f = f, .ld = ld, .n = n, .k = k};
}

ek_cuda_acts ek_gpu_acts_for(const ek_gpu_writer *w, ek_gpu_input *in, const ek_gpu_matrix *m)
{
    in->acts.q = 0, in->number = 0;
    if (m->l.units == 0 || m->l.a_group == 16) return in->acts; /* only ek_quantize writes groups of 16 */
    ek_cuda_acts_plan(&in->acts, in->k, m->l.a_group);
    in->acts.q = w->acts;
    return in->acts;
}

static ek_gpu_input rows_in_acts(const ek_gpu_writer *w, int k, int n, const ek_gpu_matrix *m)
{
    ek_gpu_input in = ek_gpu_rows(0, 0, n, k);
    ek_cuda_acts_plan(&in.acts, k, m->l.a_group);
    in.acts.q = w->acts;
    return in;
}

ek_gpu_input ek_gpu_turn_acts(ek_gpu_writer *w, int k, int n, const ek_gpu_matrix *m)
{
    const CUdeviceptr read = w->acts;
    w->acts = w->other_acts, w->other_acts = read;
    return rows_in_acts(w, k, n, m);
}

ek_gpu_input ek_gpu_turn_operand(ek_gpu_writer *w, int k, int n, const ek_gpu_matrix *m)
{
    const CUdeviceptr read = w->operand[0];
    w->operand[0] = w->operand[1], w->operand[1] = read;
    w->holds[1] = 0;
    ek_gpu_input in = rows_in_acts(w, k, n, m);
    in.operand = true;
    ek_gpu_hold(w, &in, 1, m->l.a_group);
    return in;
}

void ek_gpu_hold(ek_gpu_writer *w, ek_gpu_input *in, int limbs, int a_group)
{
    if (in->number == 0) in->number = ++w->n_inputs;
    w->holds[limbs - 1] = in->number, w->held_group[limbs - 1] = a_group;
}

void ek_gpu_quantize_to(ek_gpu_writer *w, const ek_cuda_acts *to, CUdeviceptr x, int64_t ldx, int n)
{
    ek_cuda_quantize_args a = {.to = *to, .x = x, .ldx = ldx};
    for (int first = 0, here; first < n; first += here) {
        here = n - first < EK_CUDA_GRID_Y ? n - first : EK_CUDA_GRID_Y;
        const ek_cuda_grid grid = {
            .x = ek_gpu_over(to->k, to->a_group * 8), .y = (unsigned)here, .threads = 256, .overlap = true};
        EK_GPU_WRITE(w, "ek_quantize", grid, a);
        a.to.q += (size_t)here * (size_t)to->ldq, a.x += sizeof(float) * (size_t)here * (size_t)ldx;
    }
}

void ek_gpu_quantize(ek_gpu_writer *w, ek_gpu_input *in, const ek_gpu_matrix *m)
{
    if (m->l.units == 0 || (in->acts.q && in->acts.a_group == m->l.a_group)) return;
    EK_ASSERT(in->f);
    ek_cuda_acts_plan(&in->acts, in->k, m->l.a_group);
    in->acts.q = w->acts;
    ek_gpu_quantize_to(w, &in->acts, in->f, in->ld, in->n);
}

void ek_gpu_arrange(ek_gpu_writer *w, const ek_gpu_matrix *m, ek_gpu_input *in, const ek_cuda_product *p,
                    ek_cuda_arrange_args with)
{
    if (!p->operand) {
        ek_gpu_quantize(w, in, m);
        return;
    }
    const int limbs = m->l.limbs;
    const CUdeviceptr operand = w->operand[limbs - 1];
    if (in->number && w->holds[limbs - 1] == in->number && w->held_group[limbs - 1] == m->l.a_group) return;
    ek_gpu_hold(w, in, limbs, m->l.a_group);
    if (in->f && !in->acts.q && !with.jobs && m->l.a_group == 64) {
        const ek_cuda_quantize_operands_args a = {
            .to = {.one = limbs == 1 ? operand : 0, .two = limbs == 2 ? operand : 0},
            .x = in->f,
            .ldx = in->ld,
            .k = in->k};
        const ek_cuda_grid grid = {
            .x = ek_gpu_over(in->k, 2048), .y = (unsigned)in->n, .threads = 256, .overlap = true};
        EK_GPU_WRITE(w, "ek_quantize_operands", grid, a);
        return;
    }
    ek_gpu_quantize(w, in, m);
    with.x = in->acts, with.operand = operand, with.rows = in->n;
    EK_GPU_WRITE(w, ek_cuda_arrange_name(&m->l), p->arrange, with);
}

/* --- products */

static const ek_cuda_chip *chip(const ek_gpu_run *x)
{
    return ek_cuda_chip_of(x->g->c);
}

ek_cuda_linear_args ek_gpu_linear_args(const ek_gpu_writer *w, const ek_gpu_matrix *m, const ek_gpu_input *in,
                                       const ek_cuda_product *p, CUdeviceptr y, int64_t ldy)
{
    ek_cuda_linear_args a = {.x = in->acts,
                             .f = in->f,
                             .ldf = in->ld,
                             .y = y,
                             .ldy = ldy,
                             .stack = w->x->buf.stack,
                             .operand = m->l.units ? w->operand[m->l.limbs - 1] : 0,
                             .rows = in->n,
                             .pass = p->pass,
                             .levels = p->levels,
                             .share = p->share,
                             .slots = p->slots};
    ek_cuda_linear_args_of(&a, &m->l, m->at);
    return a;
}

ek_cuda_product ek_gpu_product_of(const ek_gpu_run *x, const ek_gpu_matrix *m, int n)
{
    /* attention's segments are not used while a product runs */
    return ek_cuda_product_plan(&m->l, n, chip(x), x->buf.segment_bytes);
}

bool ek_gpu_reads_operand(const ek_gpu_run *x, const ek_gpu_matrix *m, int n)
{
    return m->l.units && m->l.a_group == 64 && ek_gpu_product_of(x, m, n).operand;
}

bool ek_gpu_reads_in_pairs(const ek_gpu_run *x, const ek_gpu_matrix *m, const ek_gpu_matrix *m2, int n)
{
    return ek_cuda_linear_alike(&m->l, &m2->l) && ek_cuda_products_plan(&m->l, n, 0, 2, chip(x)).name[0];
}

void ek_gpu_project(ek_gpu_writer *w, const ek_gpu_matrix *m, ek_gpu_input *in, CUdeviceptr y, int64_t ldy)
{
    double us;
    const ek_cuda_product p = in->operand
                                  ? ek_cuda_wide_plan_parts(&m->l, in->n, chip(w->x), w->x->buf.segment_bytes, &us)
                                  : ek_gpu_product_of(w->x, m, in->n);
    ek_gpu_arrange(w, m, in, &p, (ek_cuda_arrange_args){0});
    ek_cuda_linear_args a = ek_gpu_linear_args(w, m, in, &p, y, ldy);
    if (p.parts) a.y = w->x->buf.segments, a.ldy = m->l.n, a.split = p.split;
    EK_GPU_WRITE(w, p.name, p.grid, a);
    if (!p.parts) return;
    const ek_cuda_join_args join = {
        .y = y, .parts = w->x->buf.segments, .ldy = ldy, .n = m->l.n, .rows = in->n, .n_parts = p.parts};
    const ek_cuda_grid grid = {.x = ek_gpu_over(m->l.n, 256), .y = (unsigned)in->n, .threads = 256, .overlap = true};
    EK_GPU_WRITE(w, "ek_product_join", grid, join);
}

void ek_gpu_project_two(ek_gpu_writer *w, const ek_gpu_matrix *m, const ek_gpu_matrix *m2, ek_gpu_input *in,
                        CUdeviceptr y, CUdeviceptr y2, int64_t ldy)
{
    const ek_cuda_chip *on = chip(w->x);
    const CUdeviceptr codes2 = m2->at, scales2 = m2->at + m2->l.code_bytes;
    ek_cuda_product p;
    if (ek_cuda_linear_alike(&m->l, &m2->l) && ek_cuda_pair_plan(&p, &m->l, in->n, on)) {
        ek_gpu_quantize(w, in, m);
        const ek_cuda_warp_args a = {
            .a = ek_gpu_linear_args(w, m, in, &p, y, ldy), .codes2 = codes2, .scales2 = scales2, .y2 = y2};
        EK_GPU_WRITE(w, p.name, p.grid, a);
        return;
    }
    if (!ek_gpu_reads_in_pairs(w->x, m, m2, in->n)) {
        ek_gpu_project(w, m, in, y, ldy);
        ek_gpu_project(w, m2, in, y2, ldy);
        return;
    }
    p = ek_cuda_products_plan(&m->l, in->n, 0, 2, on);
    ek_gpu_quantize(w, in, m);
    const ek_cuda_products_args a = {
        .a = ek_gpu_linear_args(w, m, in, &p, y, ldy), .codes2 = codes2, .scales2 = scales2, .y2 = y2};
    EK_GPU_WRITE(w, p.name, p.grid, a);
}
