#include "gpu/recipe/linear.h"

#include "cuda/operand_args.h"
#include "cuda/product/product.h"

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
