#include "gpu/recipe/exchange.h"

#include <stddef.h>
#include <string.h>

/* Nanoseconds, far more than a step of the slowest kernel on the slowest device takes: after that the other device
 * counts as lost. */
static const uint64_t LIMIT = 20ull * 1000 * 1000 * 1000;

/* Bytes per block, unless there would be too many blocks. */
enum { WORDS_BYTES = 1024, ROWS_BYTES = 4096 };

/* The matrix whose groups decide how the columns of m are divided. */
static ek_linear columns_of(const ek_gpu_matrix *m)
{
    return (ek_linear){.k = m->l.k, .a_group = m->l.a_group};
}

static int n_devices(const ek_gpu_run *x)
{
    return ek_gpu_is_sharded(x) ? x->g->share.shard.ranks : 1;
}

static ek_gpu_shard shard_of(const ek_gpu_run *x, int rank)
{
    ek_gpu_shard shard = x->g->share.shard;
    shard.rank = rank;
    return shard;
}

ek_gpu_parts ek_gpu_outputs_of(const ek_gpu_run *x, int n)
{
    ek_gpu_parts out = {0};
    for (int r = 0; r < n_devices(x); r++) {
        const ek_gpu_shard shard = shard_of(x, r);
        out.of[r] = ek_gpu_outputs_here(&shard, n);
    }
    return out;
}

ek_gpu_parts ek_gpu_inputs_of(const ek_gpu_run *x, const ek_gpu_matrix *m)
{
    const ek_linear columns = columns_of(m);
    ek_gpu_parts out = {0};
    for (int r = 0; r < n_devices(x); r++) {
        const ek_gpu_shard shard = shard_of(x, r);
        out.of[r] = ek_gpu_columns_here(&shard, &columns);
    }
    return out;
}

ek_gpu_parts ek_gpu_queries_of(const ek_gpu_run *x, const ek_layer_config *l)
{
    ek_gpu_parts out = {0};
    for (int r = 0; r < n_devices(x); r++) {
        const ek_gpu_shard shard = shard_of(x, r);
        const ek_gpu_range heads = ek_gpu_heads_here(&shard, &x->g->m->config, l).q;
        out.of[r] = (ek_gpu_range){heads.first * l->head_dim, heads.n * l->head_dim};
    }
    return out;
}

bool ek_gpu_goes_as_records(const ek_gpu_run *x, const ek_gpu_matrix *m)
{
    const ek_linear columns = columns_of(m);
    /* only ek_quantize writes groups of 16 */
    return m->l.units && m->l.a_group != 16 && ek_gpu_columns_in_groups(&x->g->share.shard, &columns);
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

/* Adds a span to the last piece: units of `bytes` bytes each, from base on. */
static void add_span(const ek_gpu_run *x, ek_gpu_exchange *e, int64_t base, int bytes, const ek_gpu_parts *units)
{
    EK_ASSERT(e->n_spans < EK_CUDA_EXCHANGE_SPANS);
    ek_cuda_exchange_span *s = &e->a.span[e->n_spans++];
    s->piece = e->n - 1;
    for (int r = 0; r < n_devices(x); r++)
        s->from[r] = (int32_t)base + units->of[r].first * bytes, s->bytes[r] = units->of[r].n * bytes;
}

static void add(const ek_gpu_run *x, ek_gpu_exchange *e, size_t place, int64_t ld, int n)
{
    EK_ASSERT(e->n < EK_CUDA_EXCHANGE_PIECES);
    ek_cuda_exchange_piece *p = &e->a.piece[e->n];
    if (e->n) p->place = p[-1].place + p[-1].rows * (int32_t)(p[-1].ld / 4);
    e->n++, p->ld = ld, p->rows = n;
    for (int r = 0; r < x->g->share.shard.ranks; r++)
        memcpy(&p->at[r], (const uint8_t *)x->exchange.peer[r] + place, sizeof p->at[r]);
}

void ek_gpu_exchange_floats(const ek_gpu_run *x, ek_gpu_exchange *e, size_t place, int64_t ld, const ek_gpu_parts *p,
                            int n)
{
    add(x, e, place, (int64_t)sizeof(float) * ld, n);
    add_span(x, e, 0, sizeof(float), p);
}

void ek_gpu_exchange_records(const ek_gpu_run *x, ek_gpu_exchange *e, size_t place, const ek_gpu_input *in,
                             const ek_gpu_matrix *m, const ek_gpu_parts *p)
{
    const ek_cuda_acts *a = &in->acts;
    ek_gpu_parts groups = {0};
    for (int r = 0; r < n_devices(x); r++)
        groups.of[r] = (ek_gpu_range){p->of[r].first / a->a_group, (p->of[r].n + a->a_group - 1) / a->a_group};
    add(x, e, place, a->ldq, in->n);
    add_span(x, e, 0, a->a_group, &groups);
    if (m->l.limbs == 2) add_span(x, e, a->low, a->a_group, &groups);
    add_span(x, e, a->groups[m->l.limbs - 1], 8, &groups);
}

/* Every device uses the same number of blocks, that of the largest part. */
static ek_cuda_grid grid_of(const ek_gpu_exchange *e, int bytes_each)
{
    int64_t bytes = 0;
    for (int s = 0; s < e->n_spans; s++)
        for (int r = 0; r < e->a.ranks; r++) {
            const int64_t here = (int64_t)e->a.piece[e->a.span[s].piece].rows * e->a.span[s].bytes[r];
            if (here > bytes) bytes = here;
        }
    const int64_t blocks = bytes / bytes_each + 1;
    return (ek_cuda_grid){.x = (unsigned)(blocks < EK_CUDA_EXCHANGE_BLOCKS ? blocks : EK_CUDA_EXCHANGE_BLOCKS),
                          .y = (unsigned)e->a.ranks - 1,
                          .z = (unsigned)e->n_spans,
                          .threads = EK_CUDA_EXCHANGE_THREADS,
                          .overlap = true};
}

static bool goes_in_words(const ek_gpu_writer *w, const ek_gpu_exchange *e)
{
    int64_t bytes = 0;
    for (int p = 0; p < e->n; p++) bytes += e->a.piece[p].rows * e->a.piece[p].ld;
    return w->of.n <= EK_CUDA_WORDS_ROWS && 2 * bytes <= (int64_t)w->x->exchange.landing_bytes;
}

static void set_who(ek_gpu_writer *w, ek_cuda_exchange_args *a)
{
    const ek_gpu_run *x = w->x;
    const bool head = w->of.section == EK_GPU_HEAD;
    const int layer = head ? x->g->m->config.n_layers : w->of.layer, n = w->n_exchanges++;
    EK_ASSERT(n < (head ? 2 : EK_CUDA_LANDINGS - 1));
    a->step = x->block.device, a->limit = LIMIT;
    a->ranks = x->g->share.shard.ranks, a->rank = x->g->share.shard.rank;
    a->index = layer * EK_CUDA_LANDINGS + n + 1;
    EK_ASSERT(a->index < EK_CUDA_EXCHANGES);
    for (int r = 0; r < a->ranks; r++) {
        a->landing[r] = x->exchange.peer[r]->exchange.landing +
                        x->exchange.landing_bytes * (size_t)(head ? EK_CUDA_LANDINGS - 1 : n);
        a->control[r] = x->exchange.peer[r]->exchange.control;
    }
}

static void write_line(ek_gpu_writer *w, const char *kernel, const ek_gpu_exchange *e, int bytes_each)
{
    EK_GPU_WRITE(w, kernel, grid_of(e, bytes_each), e->a);
    w->line[w->n_lines - 1].puts = true;
}

void ek_gpu_write_exchange(ek_gpu_writer *w, ek_gpu_exchange *e)
{
    if (!ek_gpu_is_sharded(w->x)) return;
    const bool words = goes_in_words(w, e);
    EK_ASSERT(words || !w->skips);
    set_who(w, &e->a);
    if (words) write_line(w, "ek_exchange_words", e, WORDS_BYTES);
    else write_line(w, "ek_exchange_rows", e, ROWS_BYTES);
}

static int hidden_size(const ek_gpu_run *x)
{
    return x->g->m->config.hidden_size;
}

static ek_gpu_exchange exchange_of_y(const ek_gpu_writer *w, int n)
{
    const ek_gpu_parts parts = ek_gpu_outputs_of(w->x, hidden_size(w->x));
    ek_gpu_exchange e = {0};
    ek_gpu_exchange_floats(w->x, &e, offsetof(ek_gpu_run, buf.y), hidden_size(w->x), &parts, n);
    return e;
}

void ek_gpu_write_exchange_y(ek_gpu_writer *w, int n)
{
    ek_gpu_exchange e = exchange_of_y(w, n);
    ek_gpu_write_exchange(w, &e);
}

bool ek_gpu_skips_exchange_y(ek_gpu_writer *w, int n)
{
    const ek_gpu_exchange e = exchange_of_y(w, n);
    w->skips |= w->x->g->share.shard.whole_o && goes_in_words(w, &e);
    return w->skips;
}

/* An exchange without bytes: after it, all devices have read what was exchanged before. */
static void write_settled(ek_gpu_writer *w)
{
    ek_gpu_exchange e = {.n = 1, .n_spans = 1};
    set_who(w, &e.a);
    write_line(w, "ek_exchange_rows", &e, ROWS_BYTES);
}

void ek_gpu_write_exchange_logits(ek_gpu_writer *w, int n)
{
    const int vocab = w->x->g->m->config.vocab_size;
    const ek_gpu_parts parts = ek_gpu_outputs_of(w->x, vocab);
    ek_gpu_exchange e = {0};
    if (!ek_gpu_is_sharded(w->x)) return;
    ek_gpu_exchange_floats(w->x, &e, offsetof(ek_gpu_run, buf.logits), vocab, &parts, n);
    e.a.piece[0].first = ek_gpu_open_value(EK_GPU_LOGITS_AT);
    ek_gpu_write_exchange(w, &e);
    if (!goes_in_words(w, &e)) write_settled(w); /* the logits are capped, masked and scaled in place */
}
