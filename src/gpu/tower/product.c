/* Products of an encoder by the decoder's recipes, queued as they are written. */
#include "gpu/tower/state.h"

#include "gpu/weights/weights.h"

/* Maximum bytes of a product's parts. */
enum { PARTS = 64 << 20 };

static void raise_to(size_t *of, size_t bytes)
{
    if (bytes > *of) *of = bytes;
}

void ek_gpu_tower_need(ek_gpu_tower *t, const ek_gpu_matrix *m, int rows)
{
    ek_gpu_run *x = &t->run;
    x->g = t->g, x->buf.segment_bytes = PARTS;
    const ek_cuda_product p = ek_gpu_product_of(x, m, rows);
    raise_to(&x->buf.stack_bytes, p.stack);
    raise_to(&t->parts_bytes, p.parts ? sizeof(float) * (size_t)p.parts * (size_t)rows * (size_t)m->l.n : 0);
    if (!m->l.units) return;
    ek_cuda_acts acts;
    raise_to(&t->acts_bytes, ek_cuda_acts_plan(&acts, m->l.k, m->l.a_group) * (size_t)rows);
    raise_to(&x->buf.operand_bytes, p.operand);
}

void ek_gpu_tower_need_group(ek_gpu_tower *t, const ek_gpu_group *m, int rows)
{
    for (int i = 0; i < m->n_products; i++) ek_gpu_tower_need(t, &m->m[i], rows);
}

void ek_gpu_tower_take_products(ek_gpu_tower *t)
{
    ek_gpu_run *x = &t->run;
    x->buf.stack = ek_gpu_tower_take(t, x->buf.stack_bytes);
    x->buf.segments = ek_gpu_tower_take(t, t->parts_bytes);
    x->buf.acts = ek_gpu_tower_take(t, t->acts_bytes);
    for (int i = 0; i < 2; i++) x->buf.operand[i] = ek_gpu_tower_take(t, x->buf.operand_bytes);
    t->writer.x = x;
    ek_gpu_write_home(&t->writer);
}

/* The records are those of the rows that were quantised last. */
static void project(ek_gpu_tower *t, const ek_gpu_matrix *m, ek_gpu_input *in, CUdeviceptr y, int64_t ldy)
{
    if (t->read != in) in->acts.q = 0;
    t->read = in;
    ek_gpu_project(&t->writer, m, in, y, ldy);
    ek_gpu_queue_written(&t->writer);
}

void ek_gpu_tower_product(ek_gpu_tower *t, const ek_gpu_matrix *m, int rows, CUdeviceptr x, int64_t ldx, CUdeviceptr y,
                          int64_t ldy)
{
    ek_gpu_input in = ek_gpu_rows(x, ldx, rows, m->l.k);
    project(t, m, &in, y, ldy);
    t->read = NULL;
}

void ek_gpu_tower_products(ek_gpu_tower *t, const ek_gpu_group *m, int rows, const CUdeviceptr *x, CUdeviceptr y)
{
    const int k = m->m[0].l.k;
    ek_gpu_input in[EK_GPU_TOWER_INPUTS];
    for (int i = 0; i < m->n_x; i++) in[i] = ek_gpu_rows(x[i], k, rows, k);
    for (int i = 0; i < m->n_products; i++)
        project(t, &m->m[i], &in[m->from[i]], y + sizeof(float) * (size_t)m->at[i], m->width);
    t->read = NULL;
}

void ek_gpu_tower_stage_for(ek_cuda_tower_stage_args *a, const ek_gpu_group *m, const CUdeviceptr *x, CUdeviceptr norm,
                            float eps)
{
    a->n_x = m->n_x, a->x_norm = norm, a->x_eps = eps;
    for (int i = 0; i < m->n_x; i++) {
        a->x[i] = x[i];
        for (int side = 0; side < 2; side++) a->x_clip[i][side] = m->x_clip[i][side];
    }
}

ek_cuda_grid ek_gpu_tower_row_grid(int rows, int width)
{
    return (ek_cuda_grid){.x = (unsigned)rows, .threads = ek_gpu_over(width, 256) * 32, .overlap = true};
}

ek_cuda_grid ek_gpu_tower_gate_grid(int rows, int n)
{
    return (ek_cuda_grid){
        .x = ek_gpu_over(n, 256 * EK_CUDA_TOWER_EACH), .y = (unsigned)rows, .threads = 256, .overlap = true};
}
