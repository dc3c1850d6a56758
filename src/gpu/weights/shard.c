#include "gpu/weights/shard.h"

#include "cuda/exchange_args.h"

/* Columns and outputs are divided in units of this many, if there are enough, because kernels read and write groups of
 * them. */
enum { UNIT = 64 };

/* The first of n elements of part i, of `of` parts of nearly equal size. */
static int border(int n, int i, int of)
{
    return (int)((int64_t)n * i / of);
}

static ek_gpu_range part_of(int total, int unit, const ek_gpu_shard *shard)
{
    if (!shard->ranks) return (ek_gpu_range){0, total};
    const int units = (total + unit - 1) / unit;
    const int first = border(units, shard->rank, shard->ranks) * unit,
              end = border(units, shard->rank + 1, shard->ranks) * unit;
    return (ek_gpu_range){first, (end < total ? end : total) - first};
}

/* The smallest r with border(of, r, n) == i, for n of at least `of`: the first device that has KV head i. */
static int first_of(int i, int n, int of)
{
    return (int)(((int64_t)i * n + of - 1) / of);
}

ek_gpu_head_part ek_gpu_heads_here(const ek_gpu_shard *shard, const ek_config *c, const ek_layer_config *l)
{
    const int kv = l->n_kv_heads, ratio = c->n_heads / kv, ranks = shard->ranks;
    if (!ranks) return (ek_gpu_head_part){{0, c->n_heads}, {0, kv}};
    if (kv >= ranks) {
        const ek_gpu_range own = part_of(kv, 1, shard);
        return (ek_gpu_head_part){{own.first * ratio, own.n * ratio}, own};
    }
    const int head = border(kv, shard->rank, ranks), first = first_of(head, ranks, kv),
              sharers = first_of(head + 1, ranks, kv) - first;
    const int begin = border(ratio, shard->rank - first, sharers),
              end = border(ratio, shard->rank - first + 1, sharers);
    return (ek_gpu_head_part){{head * ratio + begin, end - begin}, {head, 1}};
}

/* Columns that stay together: whole groups, if there are enough of them. */
static int unit_for(int total, int ranks, int a_group)
{
    if (total >= UNIT * ranks) return UNIT;
    return a_group > EK_PANEL && total >= a_group * ranks ? a_group : EK_PANEL;
}

ek_gpu_range ek_gpu_columns_here(const ek_gpu_shard *shard, const ek_linear *next)
{
    return part_of(next->k, unit_for(next->k, shard->ranks, next->a_group), shard);
}

bool ek_gpu_columns_in_groups(const ek_gpu_shard *shard, const ek_linear *next)
{
    return next->a_group > 0 && unit_for(next->k, shard->ranks, next->a_group) % next->a_group == 0;
}

ek_gpu_range ek_gpu_outputs_here(const ek_gpu_shard *shard, int n)
{
    return part_of(n, unit_for(n, shard->ranks, 0), shard);
}

static ek_gpu_range times(ek_gpu_range heads, int dim)
{
    return (ek_gpu_range){heads.first * dim, heads.n * dim};
}

static bool is_one_of(const ek_linear *matrix, const ek_linear *experts, int n)
{
    return experts && matrix >= experts && matrix < experts + n;
}

ek_gpu_range ek_gpu_rows_here(const ek_gpu_shard *shard, const ek_model *m, int i, const ek_linear *matrix)
{
    const ek_gpu_range all = {0, matrix->n};
    if (i < 0 || !shard->ranks) return all;
    const ek_layer_weights *w = &m->w.layer[i];
    const ek_layer_config *l = &m->config.layer[i];
    const int n = m->config.n_experts;
    if (matrix == &w->q) return times(ek_gpu_heads_here(shard, &m->config, l).q, l->head_dim);
    if (matrix == &w->k || matrix == &w->v) return times(ek_gpu_heads_here(shard, &m->config, l).kv, l->head_dim);
    if (matrix == &w->gate || matrix == &w->up) return ek_gpu_columns_here(shard, &w->down);
    if (matrix == &w->o && shard->whole_o) return all;
    if (matrix == &w->o || matrix == &w->down || is_one_of(matrix, w->expert_down, n))
        return ek_gpu_outputs_here(shard, matrix->n);
    if (is_one_of(matrix, w->expert_gate, n) || is_one_of(matrix, w->expert_up, n))
        return ek_gpu_columns_here(shard, w->expert_down);
    return all;
}

/* --- conditions */

static ek_err check_part(ek_gpu_range p, int ranks, const char *what, int n)
{
    if (p.n > 0) return EK_OK;
    return ek_fail(EK_EUNSUPPORTED, "%d %s cannot be cut for %d devices (--split layers)", n, what, ranks);
}

/* A device's heads must begin at a whole panel. */
static ek_err check_heads(const ek_model *m, const ek_gpu_shard *shard, int i)
{
    const ek_layer_config *l = &m->config.layer[i];
    const ek_gpu_head_part p = ek_gpu_heads_here(shard, &m->config, l);
    EK_TRY(check_part(p.q, shard->ranks, "heads", m->config.n_heads));
    if (p.q.first * l->head_dim % EK_PANEL == 0 && p.kv.first * l->head_dim % EK_PANEL == 0) return EK_OK;
    return ek_fail(EK_EUNSUPPORTED, "heads of %d cannot be cut for %d devices: %d of them are no multiple of %d",
                   l->head_dim, shard->ranks, p.q.first, EK_PANEL);
}

static ek_err check_rank(const ek_model *m, const ek_gpu_shard *shard)
{
    const ek_config *c = &m->config;
    for (int i = 0; i < c->n_layers; i++) {
        const ek_layer_weights *w = &m->w.layer[i];
        EK_TRY(check_heads(m, shard, i));
        EK_TRY(
            check_part(ek_gpu_columns_here(shard, &w->down), shard->ranks, "columns between two matrices", w->down.k));
        if (c->n_experts)
            EK_TRY(check_part(ek_gpu_columns_here(shard, &w->expert_down[0]), shard->ranks, "columns of an expert",
                              w->expert_down[0].k));
    }
    EK_TRY(check_part(ek_gpu_outputs_here(shard, c->hidden_size), shard->ranks, "outputs", c->hidden_size));
    return check_part(ek_gpu_outputs_here(shard, c->vocab_size), shard->ranks, "tokens", c->vocab_size);
}

static bool is_of_experts(const ek_item *it)
{
    return it->role == EK_ROLE_ROUTER || it->role == EK_ROLE_EXPERT_GATE || it->role == EK_ROLE_EXPERT_UP ||
           it->role == EK_ROLE_EXPERT_DOWN;
}

void ek_gpu_experts_wanted(const void *arg, const ek_item *it, int *first, int *n)
{
    (void)arg;
    *first = 0;
    if (!is_of_experts(it)) *n = 0;
}

void ek_gpu_rows_wanted(const void *arg, const ek_item *it, int *first, int *n)
{
    const ek_gpu_wanted *w = arg;
    if (it->layer < w->host_experts && it->layer >= 0 && is_of_experts(it)) {
        *first = *n = 0;
        return;
    }
    const ek_gpu_range here = ek_gpu_rows_here(&w->shard, w->m, it->layer, it->matrix);
    *first = here.first, *n = here.n;
}

ek_err ek_gpu_shard_check(const ek_model *m, int ranks)
{
    if (ranks > EK_CUDA_EXCHANGE_RANKS)
        return ek_fail(EK_EUNSUPPORTED, "outputs are cut for %d devices at most, not for %d (--split layers)",
                       EK_CUDA_EXCHANGE_RANKS, ranks);
    for (int r = 0; r < ranks; r++) EK_TRY(check_rank(m, &(ek_gpu_shard){.rank = r, .ranks = ranks}));
    return EK_OK;
}

/* A layer has at most one launch per KV head: as many as a recipe has room for. */
ek_err ek_gpu_shard_check_drafter(const ek_model *drafter)
{
    enum { MAX_KV_HEADS = 24 };
    for (int i = 0; i < drafter->config.n_layers; i++)
        if (drafter->config.layer[i].n_kv_heads > MAX_KV_HEADS)
            return ek_fail(EK_EUNSUPPORTED,
                           "a drafter reads %d KV heads, with outputs cut it takes up to %d (--split layers)",
                           drafter->config.layer[i].n_kv_heads, MAX_KV_HEADS);
    return EK_OK;
}

double ek_gpu_shard_bytes(const ek_model *m, const ek_gpu_shard *shard)
{
    const ek_config *c = &m->config;
    double bytes = ek_model_common_bytes(m, true);
    for (int i = 0; i < c->n_layers; i++) {
        const ek_layer_weights *w = &m->w.layer[i];
        const ek_gpu_range columns = ek_gpu_columns_here(shard, &w->down);
        const double o = shard->whole_o ? (double)w->o.bytes : 0;
        bytes += (ek_model_layer_bytes(m, i) - o) * columns.n / w->down.k + o;
    }
    return bytes;
}

static bool is_of_kind(const ek_layer_config *l, int kind)
{
    return (int)(kind >= EK_KIND_COUNT ? ek_kv_start_kind(l->kind) : l->kind) == kind;
}

/* The parts of a page that belong to layers follow each other without gaps. */
void ek_gpu_pages_here(size_t at[EK_PAGE_KINDS], size_t bytes[EK_PAGE_KINDS], const ek_model *m,
                       const ek_model_share *s, const ek_gpu_shard *shard)
{
    for (int k = 0; k < EK_PAGE_KINDS; k++) {
        size_t end = m->layout.page_bytes[k];
        at[k] = end;
        for (int i = m->config.n_layers - 1; i >= s->first; i--) {
            const ek_layer_config *l = &m->config.layer[i];
            if (!l->owns_kv || !is_of_kind(l, k)) continue;
            at[k] = k >= EK_KIND_COUNT ? m->kv_start_offset[i] : m->kv_offset[i];
            if (i >= s->end) end = at[k];
        }
        bytes[k] = end - at[k];
        for (int i = 0; i < m->config.n_layers && shard->ranks; i++) {
            const ek_layer_config *l = &m->config.layer[i];
            if (!is_of_kind(l, k)) continue;
            const ek_gpu_head_part here = ek_gpu_heads_here(shard, &m->config, l);
            bytes[k] = ek_gpu_kv_here(&here, l, end - at[k]);
            break; /* layers of a kind are alike */
        }
    }
}
