#include "gpu/recipe/linear.h"

#include "cuda/product/product.h"

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
    const ek_cuda_product p = ek_gpu_product_of(w->x, m, in->n);
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
