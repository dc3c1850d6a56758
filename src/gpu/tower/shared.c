/* What all encoders share: memory on the device, weights, and products by the decoder's recipes, queued as they are
 * written. */
#include <string.h>

#include "gpu/tower/state.h"
#include "ops/linear/linear_layout.h"

/* --- memory and weights. Everything is visited twice: the first visit counts bytes (base is 0), the second copies. */

enum { ALIGN = 256 };

CUdeviceptr ek_gpu_tower_take(ek_gpu_tower *t, size_t bytes)
{
    const CUdeviceptr p = t->base + t->at;
    t->at += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return p;
}

CUdeviceptr ek_gpu_tower_take_rows(ek_gpu_tower *t, int64_t rows, int64_t width)
{
    return ek_gpu_tower_take(t, sizeof(float) * (size_t)rows * (size_t)width);
}

static void note(ek_gpu_tower *t, ek_err err)
{
    if (!t->err) t->err = err;
}

/* Counts or copies n matrices as one: panels of the first, then of the second, and so on. Only the last one may end
 * within a panel. */
static void join(ek_gpu_tower *t, ek_gpu_matrix *to, const ek_linear *const *from, int n)
{
    ek_linear all = *from[0];
    for (int i = 1; i < n; i++) all.n += from[i]->n, all.n_panels += from[i]->n_panels, all.bytes += from[i]->bytes;
    note(t, ek_cuda_linear_plan(&to->l, &all));
    to->at = ek_gpu_tower_take(t, to->l.bytes);
    if (!t->base && ek_wform_is_q(all.form) && all.panel_bytes > t->buffer.bytes) t->buffer.bytes = all.panel_bytes;
    for (int i = 0, first = 0; t->base && !t->err && i < n; first += from[i++]->n_panels)
        note(t, ek_gpu_upload_matrix(t->g, &to->l, from[i], to->at, first, t->buffer));
}

void ek_gpu_tower_matrix(ek_gpu_tower *t, ek_gpu_matrix *to, const ek_linear *from)
{
    join(t, to, &from, 1);
}

void ek_gpu_tower_vector(ek_gpu_tower *t, CUdeviceptr *to, const float *from, int n)
{
    if (!from) return;
    *to = ek_gpu_tower_take(t, sizeof *from * (size_t)n);
    if (t->base && !t->err) note(t, ek_cuda_upload(t->g->c, *to, from, sizeof *from * (size_t)n));
}

/* Whether the panels of b may follow those of a in one matrix. */
static bool alike(const ek_linear *a, const ek_linear *b)
{
    return a->form == b->form && a->form != EK_W_PLANES && a->k == b->k && a->group == b->group &&
           a->a_group == b->a_group && a->bits == b->bits && a->zero == b->zero && a->limbs == b->limbs &&
           a->biased == b->biased && a->scale_dtype == b->scale_dtype && a->panel_bytes == b->panel_bytes &&
           a->n % EK_PANEL == 0;
}

void ek_gpu_tower_group(ek_gpu_tower *t, ek_gpu_group *to, const ek_clipped *const *from, int n)
{
    const ek_linear *w[EK_GPU_TOWER_INPUTS];
    *to = (ek_gpu_group){.n = n};
    bool one = true;
    for (int i = 0; i < n; i++) {
        int x = 0;
        while (x < to->n_x && memcmp(to->x_clip[x], from[i]->clip.in, sizeof to->x_clip[x]) != 0) x++;
        if (x == to->n_x) memcpy(to->x_clip[to->n_x++], from[i]->clip.in, sizeof to->x_clip[x]);
        w[i] = &from[i]->w;
        to->from[i] = x, to->at[i] = to->width, to->width += w[i]->n;
        one &= x == 0 && (i == 0 || alike(w[i - 1], w[i]));
    }
    to->n_products = one ? 1 : n;
    for (int i = 0; i < to->n_products; i++) join(t, &to->m[i], &w[i], one ? n : 1);
}

/* --- products */

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
    for (int i = 0; i < m->n_products; i++) project(t, &m->m[i], &in[m->from[i]], ek_gpu_tower_part(y, m, i), m->width);
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
