/* The memory of an encoder on its device, and its weights. Everything is visited twice: the first visit counts bytes
 * (base is 0), the second copies. */
#include <string.h>

#include "gpu/tower/state.h"
#include "ops/linear/linear_layout.h"

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
