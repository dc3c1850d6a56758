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

/* Span s of the last piece: of `all` units of so many bytes each, which lie from base on, this device's part. */
static void add_span(ek_gpu_exchange *e, int s, int64_t base, int bytes, ek_gpu_range part, int all)
{
    e->a.piece[e->n - 1].span[s] = (ek_cuda_exchange_span){(int32_t)base + part.first * bytes, part.n * bytes};
    e->whole[e->n - 1][s] = (ek_cuda_exchange_span){(int32_t)base, all * bytes};
}

static void add(const ek_gpu_run *x, ek_gpu_exchange *e, size_t place, int64_t ld, int n)
{
    EK_ASSERT(e->n < EK_CUDA_EXCHANGE_PIECES);
    ek_cuda_exchange_piece *p = &e->a.piece[e->n];
    e->a.rows[e->n++] = n;
    p->ld = ld;
    for (int r = 0; r < x->g->share.cut.ranks; r++)
        memcpy(&p->at[r], (const uint8_t *)x->peer[r] + place, sizeof p->at[r]);
}

void ek_gpu_exchange_floats(const ek_gpu_run *x, ek_gpu_exchange *e, size_t place, int64_t ld, ek_gpu_range p, int n)
{
    add(x, e, place, (int64_t)sizeof(float) * ld, n);
    add_span(e, 0, 0, sizeof(float), p, (int)ld);
}

void ek_gpu_exchange_records(const ek_gpu_run *x, ek_gpu_exchange *e, size_t place, const ek_gpu_input *in,
                             ek_gpu_range p)
{
    const ek_cuda_acts *a = &in->acts;
    const ek_gpu_range groups = {p.first / a->a_group, (p.n + a->a_group - 1) / a->a_group};
    const int all = (in->k + a->a_group - 1) / a->a_group;
    add(x, e, place, a->ldq, in->n);
    add_span(e, 0, 0, a->a_group, groups, all);
    add_span(e, 1, a->low, a->a_group, groups, all);
    for (int i = 0; i < 2; i++) add_span(e, 2 + i, a->groups[i], 8, groups, all);
}

/* As many on every device, whatever its part: of the bytes that all have, a device's share. */
static int blocks_of(const ek_cuda_exchange_args *a)
{
    int64_t bytes = 0;
    for (int p = 0; p < EK_CUDA_EXCHANGE_PIECES; p++) bytes += a->rows[p] * a->piece[p].ld / a->ranks;
    const int64_t blocks = bytes / BLOCK_BYTES + 1;
    return blocks < EK_CUDA_EXCHANGE_BLOCKS ? (int)blocks : EK_CUDA_EXCHANGE_BLOCKS;
}

/* So many bytes of rows, all devices' parts. */
static bool goes_in_words(const ek_gpu_writer *w, int64_t bytes)
{
    return w->of.n <= EK_CUDA_WORDS_ROWS && 2 * bytes <= (int64_t)w->x->landing_bytes;
}

ek_cuda_words ek_gpu_words(ek_gpu_writer *w)
{
    const ek_gpu_run *x = w->x;
    const bool head = w->of.section == EK_GPU_HEAD;
    const int layer = head ? x->g->m->config.n_layers : w->of.layer, n = w->n_exchanges++;
    EK_ASSERT(head ? n == 0 : n < EK_CUDA_LANDINGS - 1);
    ek_cuda_words out = {.control = x->control,
                         .step = x->block.device,
                         .limit = LIMIT,
                         .ranks = x->g->share.cut.ranks,
                         .rank = x->g->share.cut.rank,
                         .index = layer * EK_CUDA_LANDINGS + n + 1};
    EK_ASSERT(out.index < EK_CUDA_EXCHANGES);
    for (int r = 0; r < out.ranks; r++)
        out.at[r] = x->peer[r]->landing + x->landing_bytes * (size_t)(head ? EK_CUDA_LANDINGS - 1 : n);
    return out;
}

/* False: they are too many. */
static bool in_words(ek_gpu_writer *w, const ek_gpu_exchange *e)
{
    enum { EACH = 512 }; /* words of a block */
    ek_cuda_exchange_words_args a = {0};
    int64_t bytes = 0, sent = 0;
    for (int p = 0; p < e->n; p++) {
        const ek_cuda_exchange_piece *from = &e->a.piece[p];
        a.piece[p] = (ek_cuda_words_piece){.rows = from->at[e->a.rank],
                                           .first = from->first,
                                           .ld = from->ld,
                                           .n_rows = e->a.rows[p],
                                           .place = (int32_t)(bytes / 4)};
        memcpy(a.piece[p].span, from->span, sizeof from->span);
        memcpy(a.piece[p].whole, e->whole[p], sizeof e->whole[p]);
        bytes += e->a.rows[p] * from->ld;
        for (int s = 0; s < EK_CUDA_EXCHANGE_SPANS; s++) sent += e->a.rows[p] * (int64_t)from->span[s].bytes;
    }
    if (!goes_in_words(w, bytes)) return false;
    a.w = ek_gpu_words(w);
    const int64_t blocks = sent / 4 / EACH + 1;
    const unsigned most = EK_CUDA_EXCHANGE_BLOCKS;
    const ek_cuda_grid grid = {.x = blocks < most ? (unsigned)blocks : most, .threads = 256, .overlap = true};
    EK_GPU_WRITE_WORDS(w, "ek_exchange_words", grid, a);
    return true;
}

void ek_gpu_write_exchange(ek_gpu_writer *w, ek_gpu_exchange *e)
{
    const ek_gpu_run *x = w->x;
    if (!ek_gpu_is_cut(x)) return;
    e->a.rank = x->g->share.cut.rank;
    if (in_words(w, e)) return;
    EK_ASSERT(!w->skips);
    ek_cuda_exchange_args *a = &e->a;
    a->ranks = x->g->share.cut.ranks, a->rank = x->g->share.cut.rank, a->limit = LIMIT;
    a->blocks = blocks_of(a);
    for (int r = 0; r < a->ranks; r++) a->control[r] = x->peer[r]->control;
    w->n_exchanges++;
    const ek_cuda_grid put = {.x = (unsigned)a->blocks, .y = (unsigned)a->ranks - 1, .threads = 256, .overlap = true};
    EK_GPU_WRITE(w, "ek_exchange_put", put, *a);
    w->line[w->n_lines - 1].puts = true;
    const ek_cuda_grid take = {.x = 1, .threads = 256, .overlap = true};
    EK_GPU_WRITE(w, "ek_exchange_take", take, *a);
}

static int hidden_size(const ek_gpu_run *x)
{
    return x->g->m->config.hidden_size;
}

static void exchange_y(ek_gpu_writer *w, int n)
{
    ek_gpu_exchange e = {0};
    ek_gpu_exchange_floats(w->x, &e, offsetof(ek_gpu_run, y), hidden_size(w->x),
                           ek_gpu_outputs_of(w->x, hidden_size(w->x)), n);
    ek_gpu_write_exchange(w, &e);
}

static int64_t bytes_of_y(const ek_gpu_writer *w, int n)
{
    return (int64_t)n * hidden_size(w->x) * (int64_t)sizeof(float);
}

void ek_gpu_write_exchange_y(ek_gpu_writer *w, int n)
{
    if (!ek_gpu_is_cut(w->x)) return;
    if (goes_in_words(w, bytes_of_y(w, n))) w->left_y = n;
    else exchange_y(w, n);
}

bool ek_gpu_skips_exchange_y(ek_gpu_writer *w, int n)
{
    w->skips |= w->x->g->share.cut.whole_o && goes_in_words(w, bytes_of_y(w, n));
    return w->skips;
}

bool ek_gpu_take_y(ek_gpu_writer *w, ek_cuda_words *words, ek_cuda_words_rows *rows)
{
    if (!w->left_y) return false;
    const ek_gpu_range here = ek_gpu_outputs_of(w->x, hidden_size(w->x));
    *words = ek_gpu_words(w);
    *rows = (ek_cuda_words_rows){.first = here.first, .here = here.n, .n = hidden_size(w->x)};
    w->left_y = 0;
    return true;
}

void ek_gpu_settle_y(ek_gpu_writer *w)
{
    if (w->left_y) exchange_y(w, w->left_y);
    w->left_y = 0;
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
