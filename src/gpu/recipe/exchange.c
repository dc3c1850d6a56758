#include "gpu/recipe/exchange.h"

#include <stddef.h>
#include <string.h>

/* A step of the slowest kernel on the slowest device, and far more: then the other device is gone. */
static const uint64_t LIMIT = 20ull * 1000 * 1000 * 1000;

enum { BLOCK_BYTES = 4096 }; /* that a block stores, where there are not too many */

ek_gpu_range ek_gpu_outputs_of(const ek_gpu_run *x, int n)
{
    return ek_gpu_outputs_here(&x->g->share.cut, n);
}

/* What of a matrix its columns are cut by. */
static ek_linear columns_of(const ek_gpu_matrix *m)
{
    return (ek_linear){.k = m->l.k, .a_group = m->l.a_group};
}

ek_gpu_range ek_gpu_inputs_of(const ek_gpu_run *x, const ek_gpu_matrix *m)
{
    const ek_linear columns = columns_of(m);
    return ek_gpu_columns_here(&x->g->share.cut, &columns);
}

bool ek_gpu_goes_as_records(const ek_gpu_run *x, const ek_gpu_matrix *m)
{
    const ek_linear columns = columns_of(m);
    /* groups of 16 are written by ek_quantize alone */
    return m->l.units && m->l.a_group != 16 && ek_gpu_columns_in_groups(&x->g->share.cut, &columns);
}

ek_gpu_input ek_gpu_records_for(const ek_gpu_matrix *m, CUdeviceptr at, int n)
{
    ek_gpu_input in = ek_gpu_rows(0, 0, n, m->l.k);
    ek_cuda_acts_plan(&in.acts, m->l.k, m->l.a_group);
    in.acts.q = at;
    return in;
}

ek_cuda_acts ek_gpu_part_of_records(const ek_cuda_acts *all, ek_gpu_range p)
{
    ek_cuda_acts out = *all;
    out.q += (CUdeviceptr)p.first, out.k = p.n;
    for (int i = 0; i < 2; i++) out.groups[i] += (int64_t)p.first / all->a_group * 8 - p.first;
    return out;
}

static ek_cuda_exchange_piece *add(const ek_gpu_run *x, ek_gpu_exchange *e, size_t place, int64_t ld, int n)
{
    EK_ASSERT(e->n < EK_CUDA_EXCHANGE_PIECES);
    ek_cuda_exchange_piece *p = &e->a.piece[e->n];
    e->a.rows[e->n++] = n;
    p->ld = ld;
    for (int r = 0; r < x->g->share.cut.ranks; r++)
        memcpy(&p->at[r], (const uint8_t *)x->peer[r] + place, sizeof p->at[r]);
    return p;
}

void ek_gpu_exchange_floats(const ek_gpu_run *x, ek_gpu_exchange *e, size_t place, int64_t ld, ek_gpu_range p, int n)
{
    ek_cuda_exchange_piece *piece = add(x, e, place, (int64_t)sizeof(float) * ld, n);
    piece->span[0] = (ek_cuda_exchange_span){p.first * (int)sizeof(float), p.n * (int)sizeof(float)};
}

void ek_gpu_exchange_records(const ek_gpu_run *x, ek_gpu_exchange *e, size_t place, const ek_gpu_input *in,
                             ek_gpu_range p)
{
    const ek_cuda_acts *a = &in->acts;
    ek_cuda_exchange_piece *piece = add(x, e, place, a->ldq, in->n);
    const int groups = (p.n + a->a_group - 1) / a->a_group, codes = groups * a->a_group, first = p.first / a->a_group;
    piece->span[0] = (ek_cuda_exchange_span){p.first, codes};
    piece->span[1] = (ek_cuda_exchange_span){(int32_t)a->low + p.first, codes};
    for (int i = 0; i < 2; i++)
        piece->span[2 + i] = (ek_cuda_exchange_span){(int32_t)a->groups[i] + first * 8, groups * 8};
}

/* As many on every device, whatever its part: of the bytes that all have, a device's share. */
static int blocks_of(const ek_cuda_exchange_args *a)
{
    int64_t bytes = 0;
    for (int p = 0; p < EK_CUDA_EXCHANGE_PIECES; p++) bytes += a->rows[p] * a->piece[p].ld / a->ranks;
    const int64_t blocks = bytes / BLOCK_BYTES + 1;
    return blocks < EK_CUDA_EXCHANGE_BLOCKS ? (int)blocks : EK_CUDA_EXCHANGE_BLOCKS;
}

void ek_gpu_write_exchange(ek_gpu_writer *w, ek_gpu_exchange *e)
{
    const ek_gpu_run *x = w->x;
    if (!ek_gpu_is_cut(x)) return;
    ek_cuda_exchange_args *a = &e->a;
    a->ranks = x->g->share.cut.ranks, a->rank = x->g->share.cut.rank, a->limit = LIMIT;
    a->blocks = blocks_of(a);
    for (int r = 0; r < a->ranks; r++) a->control[r] = x->peer[r]->control;
    const ek_cuda_grid grid = {.x = (unsigned)a->blocks, .y = (unsigned)a->ranks - 1, .threads = 256, .overlap = true};
    EK_GPU_WRITE(w, "ek_exchange", grid, *a);
    w->line[w->n_lines - 1].exchanges = true;
}

void ek_gpu_write_exchange_y(ek_gpu_writer *w, int n)
{
    const int hidden = w->x->g->m->config.hidden_size;
    ek_gpu_exchange e = {0};
    if (!ek_gpu_is_cut(w->x)) return;
    ek_gpu_exchange_floats(w->x, &e, offsetof(ek_gpu_run, y), hidden, ek_gpu_outputs_of(w->x, hidden), n);
    ek_gpu_write_exchange(w, &e);
}

void ek_gpu_write_exchange_logits(ek_gpu_writer *w, int n)
{
    const int vocab = w->x->g->m->config.vocab_size;
    ek_gpu_exchange e = {0};
    if (!ek_gpu_is_cut(w->x)) return;
    ek_gpu_exchange_floats(w->x, &e, offsetof(ek_gpu_run, logits), vocab, ek_gpu_outputs_of(w->x, vocab), n);
    e.a.piece[0].first = ek_gpu_open_value(EK_GPU_LOGITS_AT);
    ek_gpu_write_exchange(w, &e);
}
