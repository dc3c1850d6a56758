#include "gpu/recipe/linear.h"

#include "cuda/operand_args.h"
#include "cuda/rows/launch.h"
#include "gpu/recipe/exchange.h"

static void write(ek_gpu_writer *w, ek_cuda_stage_args a, int n, ek_cuda_operands to)
{
    const ek_config *c = &w->x->g->m->config;
    const unsigned warps = (unsigned)(c->hidden_size + 255) / 256;
    const ek_cuda_grid grid = {.x = (unsigned)n, .threads = warps * 32, .overlap = true};
    const bool many = !ek_gpu_is_plain(w->x) && n >= EK_GPU_PROMPT_ROWS && c->hidden_size <= EK_CUDA_STAGE_ROWS_WIDTH &&
                      (!a.to.q || a.to.a_group == 64);
    EK_ASSERT(many || (!to.one && !to.two));
    a.h = w->x->buf.h, a.ld = c->hidden_size, a.n = c->hidden_size, a.eps = c->rms_norm_eps;
    if (many) {
        const ek_cuda_stage_rows_args rows = {.s = a, .to = to};
        EK_GPU_WRITE(w, a.pair_out ? "ek_stage_rows_experts" : "ek_stage_rows", grid, rows);
        return;
    }
    const char *experts = c->hidden_size <= EK_CUDA_EXPERTS_WIDTH ? "ek_experts_end" : "ek_experts_end_wide";
    EK_GPU_WRITE(w, a.pair_out ? experts : ek_cuda_stage_name(a.n, ek_cuda_chip_of(w->x->g->c)), grid, a);
}

void ek_gpu_write_rows(ek_gpu_writer *w, ek_cuda_stage_args a, int n)
{
    write(w, a, n, (ek_cuda_operands){0});
}

/* Whether b can read the records that are written for m. */
static bool serves(const ek_gpu_matrix *m, const ek_gpu_matrix *b)
{
    return b->l.n == 0 || (b->l.units && b->l.a_group == m->l.a_group);
}

bool ek_gpu_serves_heads(const ek_gpu_layer *l)
{
    return serves(&l->q, &l->k) && serves(&l->q, &l->v);
}

ek_gpu_input ek_gpu_write_rows_to(ek_gpu_writer *w, ek_cuda_stage_args a, CUdeviceptr norm, const ek_gpu_matrix *m,
                                  bool all, CUdeviceptr to, int n)
{
    const int hidden = w->x->g->m->config.hidden_size;
    ek_gpu_input in = ek_gpu_rows(to, hidden, n, hidden);
    a.x_norm = norm, a.to = ek_gpu_acts_for(w, &in, m);
    if (all && a.to.q) in.f = 0; /* nobody reads the floats, and the next kernel would wait for them */
    a.x = in.f;
    write(w, a, n, (ek_cuda_operands){0});
    return in;
}

/* --- the forms that readers take */

typedef struct readers {
    const ek_gpu_matrix *m[3]; /* NULL: there are fewer readers */
    bool all;                  /* all readers take the records of the first */
} readers;

static readers readers_of(const ek_gpu_run *x, const ek_gpu_reading *r)
{
    const ek_gpu_layer *l = &x->g->w.layer[r->layer];
    if (r->by == EK_GPU_TO_MLP) return (readers){{&l->gate, &l->up}, serves(&l->gate, &l->up)};
    readers out = {{&l->q}, ek_gpu_serves_heads(l)};
    if (x->g->m->config.layer[r->layer].owns_kv) out.m[1] = &l->k, out.m[2] = l->v.l.n ? &l->v : NULL;
    return out;
}

/* Operands of n rows of a prompt for the readers. complete: the readers need no other form. */
static ek_cuda_operands operands_for(const ek_gpu_writer *w, const ek_gpu_reading *r, const readers *all,
                                     bool *complete)
{
    const ek_gpu_run *x = w->x;
    ek_cuda_operands to = {0};
    *complete = false;
    if (ek_gpu_is_plain(x) || r->n < EK_GPU_PROMPT_ROWS || x->g->m->config.hidden_size > EK_CUDA_STAGE_ROWS_WIDTH)
        return to;
    if (all->m[0]->l.units && all->m[0]->l.a_group != 64)
        return to; /* only ek_stage writes the records that this needs */
    ek_gpu_heads_by heads = EK_GPU_HEADS_APART;
    if (r->by == EK_GPU_TO_MLP) {
        if (ek_gpu_choose_mlp(x, r->layer, r->n).by == EK_GPU_GATE_FEW) return to;
    } else if (all->m[1]) {
        if (r->drops) return to; /* q reads other rows than k and v */
        heads = ek_gpu_choose_heads(x, r->layer, false, r->n).by;
        if (heads == EK_GPU_HEADS_TOGETHER) return to;
    }
    *complete = true;
    const bool pair = r->by == EK_GPU_TO_HEADS
                          ? all->m[2] && ek_gpu_reads_in_pairs(x, all->m[1], all->m[2], r->n)
                          : ek_gpu_is_sharded(x) && ek_gpu_reads_in_pairs(x, all->m[0], all->m[1], r->n);
    for (int i = 0; i < 3 && all->m[i]; i++) {
        const ek_gpu_matrix *m = all->m[i];
        if (heads != EK_GPU_HEADS_WIDE && ((i && pair) || !ek_gpu_reads_operand(x, m, r->n))) *complete = false;
        else *(m->l.limbs == 1 ? &to.one : &to.two) = w->operand[m->l.limbs - 1];
    }
    return to;
}

typedef struct left {
    ek_gpu_input in;
    ek_cuda_operands to;
} left;

static left leave(ek_gpu_writer *w, const ek_gpu_reading *r)
{
    const int hidden = w->x->g->m->config.hidden_size;
    const readers all = readers_of(w->x, r);
    bool complete;
    left out = {.in = ek_gpu_rows(w->x->buf.x, hidden, r->n, hidden)};
    out.to = operands_for(w, r, &all, &complete);
    if (!complete) ek_gpu_acts_for(w, &out.in, all.m[0]);
    if (complete || (all.all && out.in.acts.q))
        out.in.f = 0; /* nobody reads the floats, and the next kernel would wait for them */
    if (out.to.one) ek_gpu_hold(w, &out.in, 1, 64);
    if (out.to.two) ek_gpu_hold(w, &out.in, 2, 64);
    return out;
}

ek_gpu_input ek_gpu_left_for(ek_gpu_writer *w, const ek_gpu_reading *r)
{
    return leave(w, r).in;
}

ek_gpu_input ek_gpu_write_rows_for(ek_gpu_writer *w, ek_cuda_stage_args a, const ek_gpu_reading *r)
{
    const left to = leave(w, r);
    const ek_gpu_layer *l = &w->x->g->w.layer[r->layer];
    a.x_norm = r->by == EK_GPU_TO_HEADS ? l->input_norm : l->pre_mlp_norm;
    a.to = to.in.acts, a.x = to.in.f;
    write(w, a, r->n, to.to);
    return to.in;
}
