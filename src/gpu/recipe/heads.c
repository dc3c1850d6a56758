#include "gpu/recipe/linear.h"

#include <stddef.h>

#include "cuda/attn_work.h"
#include "cuda/operand_args.h"
#include "cuda/product/product.h"
#include "gpu/recipe/exchange.h"
#include "ops/kv/kv_codec.h"

/* --- products */

/* Elements of this device's heads. */
static int64_t query_size(const ek_gpu_run *x, int i)
{
    const ek_layer_config *l = &x->g->m->config.layer[i];
    return (int64_t)ek_gpu_heads_of(x, l).q.n * l->head_dim;
}

static int64_t key_size(const ek_gpu_run *x, int i)
{
    const ek_layer_config *l = &x->g->m->config.layer[i];
    return (int64_t)ek_gpu_heads_of(x, l).kv.n * l->head_dim;
}

static const ek_cuda_linear *values_of(const ek_gpu_layer *l)
{
    return l->v.l.n ? &l->v.l : NULL; /* NULL: values are keys */
}

/* Whether one launch is faster than several, or of a prompt q, or k without q, is wide and whole by itself. */
static bool wide_wins(const ek_gpu_run *x, const ek_gpu_layer *l, bool keys_alone, int n, ek_cuda_heads *p)
{
    const ek_cuda_linear *const q = keys_alone ? NULL : &l->q.l, *const v = values_of(l);
    const ek_cuda_chip *chip = ek_cuda_chip_of(x->g->c);
    if (chip->plain) return false;
    if (!ek_cuda_wide_heads_plan(p, q, &l->k.l, v, n, chip)) return false;
    if (ek_cuda_wide_heads_win(q, &l->k.l, v, n, chip)) return true;
    if (n < EK_GPU_PROMPT_ROWS) return false;
    const ek_cuda_product one = ek_gpu_product_of(x, keys_alone ? &l->k : &l->q, n);
    return one.operand && !one.parts;
}

ek_gpu_heads ek_gpu_choose_heads(const ek_gpu_run *x, int i, bool keys_alone, int n)
{
    const ek_gpu_layer *l = &x->g->w.layer[i];
    ek_gpu_heads out = {.by = EK_GPU_HEADS_APART};
    if (!x->g->m->config.layer[i].owns_kv) return out;
    if (!keys_alone && ek_cuda_heads_plan(&out.p, &l->q.l, &l->k.l, values_of(l), n, ek_cuda_chip_of(x->g->c)))
        out.by = EK_GPU_HEADS_TOGETHER;
    else if (wide_wins(x, l, keys_alone, n, &out.p)) out.by = EK_GPU_HEADS_WIDE;
    return out;
}

static void write_together(ek_gpu_writer *w, int i, const ek_cuda_heads *p, ek_gpu_input *in)
{
    const ek_gpu_run *x = w->x;
    const ek_gpu_layer *l = &x->g->w.layer[i];
    ek_gpu_quantize(w, in, &l->q);
    const ek_cuda_warp_heads_args a = {.q = ek_gpu_linear_args(w, &l->q, in, &p->q, x->buf.q, query_size(x, i)),
                                       .k = ek_gpu_linear_args(w, &l->k, in, &p->k, x->buf.k, key_size(x, i)),
                                       .v_codes = l->v.at,
                                       .v_scales = l->v.at + l->v.l.code_bytes,
                                       .v = x->buf.v,
                                       .q_blocks = p->q_blocks,
                                       .k_blocks = p->k_blocks};
    EK_GPU_WRITE(w, p->q.name, p->q.grid, a);
}

static void write_wide(ek_gpu_writer *w, int i, const ek_cuda_heads *p, bool keys_alone, ek_gpu_input *in)
{
    const ek_gpu_run *x = w->x;
    const ek_gpu_layer *l = &x->g->w.layer[i];
    ek_cuda_wide_heads_args a = {0};
    ek_gpu_arrange(w, &l->k, in, &p->k, (ek_cuda_arrange_args){0});
    if (!keys_alone) {
        ek_gpu_arrange(w, &l->q, in, &p->q, (ek_cuda_arrange_args){0});
        a.q = ek_gpu_linear_args(w, &l->q, in, &p->q, x->buf.q, query_size(x, i));
    }
    a.k = ek_gpu_linear_args(w, &l->k, in, &p->k, x->buf.k, key_size(x, i));
    if (l->v.l.n) a.v = ek_gpu_linear_args(w, &l->v, in, &p->k, x->buf.v, key_size(x, i));
    EK_GPU_WRITE(w, p->q.name, p->q.grid, a);
}

void ek_gpu_write_queries(ek_gpu_writer *w, int i, ek_gpu_input *in)
{
    ek_gpu_project(w, &w->x->g->w.layer[i].q, in, w->x->buf.q, query_size(w->x, i));
}

void ek_gpu_write_heads(ek_gpu_writer *w, int i, bool keys_alone, ek_gpu_input *in)
{
    const ek_gpu_run *x = w->x;
    const ek_gpu_layer *l = &x->g->w.layer[i];
    const ek_gpu_heads c = ek_gpu_choose_heads(x, i, keys_alone, in->n);
    if (c.by == EK_GPU_HEADS_TOGETHER) {
        write_together(w, i, &c.p, in);
        return;
    }
    if (c.by == EK_GPU_HEADS_WIDE) {
        write_wide(w, i, &c.p, keys_alone, in);
        return;
    }
    if (!keys_alone) ek_gpu_write_queries(w, i, in);
    if (!x->g->m->config.layer[i].owns_kv) return;
    /* codes for keys in another form go to other memory, where a device may write them beside the product of queries */
    if (ek_cuda_chip_of(x->g->c)->plain && in->acts.q == w->acts && in->acts.a_group != l->k.l.a_group) {
        const CUdeviceptr read = w->acts;
        w->acts = w->other_acts, w->other_acts = read;
    }
    if (l->v.l.n) ek_gpu_project_two(w, &l->k, &l->v, in, x->buf.k, x->buf.v, key_size(x, i));
    else ek_gpu_project(w, &l->k, in, x->buf.k, key_size(x, i));
}

/* --- queries and keys */

/* The run that has the KV heads from `head` on: x, or for a drafter of a target with divided outputs, a part of the
 * target. */
static const ek_gpu_run *owner_of(const ek_gpu_run *x, const ek_layer_config *l, int head, ek_gpu_head_part *there)
{
    *there = ek_gpu_heads_of(x, l);
    if (!x->target || !x->target->g->share.shard.ranks) return x;
    const ek_gpu_run *owner = NULL;
    for (int r = 0; !owner; r++) {
        const ek_gpu_shard shard = {.rank = r, .ranks = x->target->g->share.shard.ranks};
        EK_ASSERT(r < shard.ranks);
        *there = ek_gpu_heads_here(&shard, &x->g->m->config, l);
        if (head < there->kv.first + there->kv.n) owner = x->target->exchange.peer[r];
    }
    return owner;
}

/* Layer i in pages of its kind, or of the kind of the first positions, from a KV head on. Pages on other devices are
 * read in place, because devices that divide outputs reach each other's memory. */
static ek_cuda_kv kv_from(const ek_gpu_run *x, int i, bool start, int head)
{
    const ek_model *m = x->g->m;
    const ek_layer_config *l = &m->config.layer[i];
    const ek_layer_kind kind = start ? ek_kv_start_kind(l->kind) : l->kind;
    ek_gpu_head_part there;
    const ek_gpu_run *owner = owner_of(x, l, head, &there);
    const size_t at = (start ? m->kv_start_offset[i] : m->kv_offset[i]) - owner->g->share.kv_at[kind];
    ek_cuda_kv kv = {.pages = ek_gpu_open_value(EK_GPU_PAGES + l->kind),
                     .stride = (int64_t)owner->buf.page_bytes[kind],
                     .ld_pages = (int64_t)ek_gpu_open_value(EK_GPU_LD_PAGES),
                     .n_kv_heads = ek_gpu_heads_at_once(x, l).kv.n};
    if (start) ek_cuda_kv_formats(&kv, ek_kv_start_format(m->k_format), ek_kv_start_format(m->v_format), l->head_dim);
    else ek_cuda_kv_formats(&kv, m->k_format, m->v_format, l->head_dim);
    const size_t heads = (size_t)(head - there.kv.first) * (size_t)(kv.k_bytes + kv.v_bytes);
    kv.base = owner->buf.pages[kind] + ek_gpu_kv_here(&there, l, at) + heads;
    return kv;
}

static ek_cuda_kv kv_of(const ek_gpu_run *x, int i, bool start)
{
    return kv_from(x, i, start, ek_gpu_heads_of(x, &x->g->m->config.layer[i]).kv.first);
}

/* How the subject's rows become queries or keys of layer i. */
static ek_cuda_head head_of(const ek_gpu_writer *w, int i, CUdeviceptr norm)
{
    const ek_gpu_run *x = w->x;
    const ek_layer_kind kind = x->g->m->config.layer[i].kind;
    const ek_gpu_set *set = w->of.tail ? &x->now.tail : &x->now.all; /* the offsets of these never change */
    return (ek_cuda_head){.norm = norm,
                          .cos = set->cos[kind],
                          .sin = set->sin[kind],
                          .ld_table = x->g->m->n_rotated[kind],
                          .eps = x->g->m->config.rms_norm_eps,
                          .rotated = x->g->m->n_rotated[kind]};
}

/* Writes heads of that many rows by kernels/product/heads_rows.cu. */
static bool by_rows(const ek_gpu_run *x, int n, int dim)
{
    return !ek_gpu_is_plain(x) && n >= EK_CUDA_STORE_ROWS && (dim == 256 || dim == 512);
}

void ek_gpu_write_finish(ek_gpu_writer *w, int i, int n)
{
    const ek_config *c = &w->x->g->m->config;
    const int dim = c->layer[i].head_dim;
    if (w->of.finishes) return;
    const ek_cuda_heads_args a = {.q = w->x->buf.q,
                                  .ldq = query_size(w->x, i),
                                  .head = head_of(w, i, w->x->g->w.layer[i].q_norm),
                                  .head_dim = dim};
    if (by_rows(w->x, n, dim)) {
        const ek_cuda_grid grid = {.x = (unsigned)n, .threads = EK_CUDA_HEADS_THREADS, .overlap = true};
        EK_GPU_WRITE(w, dim == 256 ? "ek_heads_rows_256" : "ek_heads_rows_512", grid, a);
        return;
    }
    const unsigned heads = (unsigned)ek_gpu_heads_of(w->x, &c->layer[i]).q.n;
    const ek_cuda_grid grid = {.x = heads, .y = (unsigned)n, .threads = 128, .overlap = true};
    EK_GPU_WRITE(w, "ek_heads", grid, a);
}

/* Whether the attention of the rows whose keys layer i makes also stores these keys. */
static bool stores(const ek_gpu_writer *w, int i)
{
    return w->of.section == EK_GPU_LAYER && w->x->g->m->config.layer[i].owns_kv && !w->of.tail && w->of.finishes &&
           w->of.single;
}

/* The kernel that stores a prompt's keys and values; NULL: ek_kv_store. */
static const char *store_of_rows(const ek_model *m, int dim)
{
    const ek_kv_format k = m->k_format, v = m->v_format;
    if (ek_kv_codecs[k].rule == EK_KV_ROTATED && ek_kv_codecs[v].rule == EK_KV_ROTATED)
        return dim == 256 ? "ek_kv_store_codes_256" : "ek_kv_store_codes_512";
    if (k != EK_KV_F16 || v != EK_KV_F16 || m->layout.n_start) return NULL;
    return dim == 256 ? "ek_kv_store_rows_256" : "ek_kv_store_rows_512";
}

void ek_gpu_write_store(ek_gpu_writer *w, int i, int n)
{
    const ek_gpu_run *x = w->x;
    const ek_model *m = x->g->m;
    const ek_layer_config *l = &m->config.layer[i];
    if (stores(w, i)) return;
    const ek_cuda_store_args a = {.kv = kv_of(x, i, false),
                                  .start = kv_of(x, i, true),
                                  .n_start = m->layout.n_start,
                                  .place = ek_gpu_open_value(w->of.tail ? EK_GPU_TAIL_PLACE : EK_GPU_PLACE),
                                  .k = x->buf.k,
                                  .v = l->k_eq_v ? x->buf.k : x->buf.v,
                                  .ldk = key_size(x, i),
                                  .ldv = key_size(x, i),
                                  .head = head_of(w, i, x->g->w.layer[i].k_norm),
                                  .rows = n};
    const unsigned kv_heads = (unsigned)ek_gpu_heads_of(x, l).kv.n;
    const char *const rows = by_rows(x, n, l->head_dim) ? store_of_rows(m, l->head_dim) : NULL;
    if (rows) {
        const ek_cuda_grid grid = {.x = kv_heads,
                                   .y = ek_gpu_over(n, EK_CUDA_STORE_ROWS),
                                   .z = 2,
                                   .threads = EK_CUDA_STORE_THREADS,
                                   .overlap = true};
        EK_GPU_WRITE(w, rows, grid, a);
        return;
    }
    const ek_cuda_grid grid = {.x = kv_heads, .y = (unsigned)n, .z = 2, .threads = 128, .overlap = true};
    EK_GPU_WRITE(w, "ek_kv_store", grid, a);
}

/* The parts of its rows' work that attention does here, and the form of its result for the following product. */
typedef struct made {
    ek_gpu_input all; /* the product reads this form */
    ek_gpu_parts parts;
    ek_gpu_range part; /* this one's */
    bool records;      /* other devices get records, */
    ek_cuda_acts here; /* of which this device writes these */
} made;

static made made_of(const ek_gpu_run *x, int i, int n)
{
    const ek_layer_config *l = &x->g->m->config.layer[i];
    const ek_gpu_matrix *o = &x->g->w.layer[i].o;
    const int width = x->g->m->config.n_heads * l->head_dim;
    made m = {.all = ek_gpu_rows(x->buf.o, width, n, width),
              .parts = ek_gpu_queries_of(x, l),
              .records = ek_gpu_is_sharded(x) && o->l.a_group == 64 && l->head_dim % 64 == 0};
    m.part = ek_gpu_part_here(x, &m.parts);
    if (!m.records) return m;
    m.all = ek_gpu_records_for(o, x->exchange.gathered, n);
    m.here = ek_gpu_part_of_records(&m.all.acts, m.part);
    return m;
}

static void write_exchange(ek_gpu_writer *w, const made *m, const ek_gpu_matrix *o, int n)
{
    const ek_gpu_run *x = w->x;
    ek_gpu_exchange e = {0};
    if (!ek_gpu_is_sharded(x)) return;
    if (m->records) ek_gpu_exchange_records(x, &e, offsetof(ek_gpu_run, exchange.gathered), &m->all, o, &m->parts);
    else ek_gpu_exchange_floats(x, &e, offsetof(ek_gpu_run, buf.o), m->all.ld, &m->parts, n);
    ek_gpu_write_exchange(w, &e);
}

/* Attention of all heads on this device, by a. */
static void write_launches(ek_gpu_writer *w, int i, const ek_cuda_attn_args *a)
{
    const ek_gpu_run *x = w->x;
    const ek_layer_config *l = &x->g->m->config.layer[i];
    const ek_gpu_range kv = ek_gpu_heads_of(x, l).kv;
    const ek_gpu_head_part each = ek_gpu_heads_at_once(x, l);
    for (int head = 0; head < kv.n; head += each.kv.n) {
        const ek_gpu_range part = {head * a->ratio * l->head_dim, each.q.n * l->head_dim};
        ek_cuda_attn_args some = *a;
        some.kv = kv_from(x, i, false, kv.first + head), some.start = kv_from(x, i, true, kv.first + head);
        some.q = ek_gpu_at_part(a->q, part), some.o = ek_gpu_at_part(a->o, part);
        if (a->to.q && each.kv.n < kv.n) some.to = ek_gpu_part_of_records(&a->to, part);
        ek_gpu_write_attention(w, l->kind, &some);
    }
}

ek_gpu_input ek_gpu_write_attend(ek_gpu_writer *w, int i, int n)
{
    const ek_gpu_run *x = w->x;
    const ek_model *m = x->g->m;
    const ek_layer_config *l = &m->config.layer[i];
    const ek_gpu_layer *layer = &x->g->w.layer[i];
    const ek_gpu_head_part here = ek_gpu_heads_of(x, l);
    made out = made_of(x, i, n);
    ek_cuda_attn_args a = {.n_start = m->layout.n_start,
                           .q = x->buf.q,
                           .o = ek_gpu_at_part(x->buf.o, out.part),
                           .ldq = query_size(x, i),
                           .ldo = (int64_t)m->config.n_heads * l->head_dim,
                           .ratio = here.q.n / here.kv.n};
    /* if all rows are few queries */
    const int group = ek_gpu_is_plain(x) && layer->o.l.a_group == 32 ? 32 : 64;
    const bool writes = !w->of.prompt && layer->o.l.a_group == group && l->head_dim % group == 0;
    if (writes) a.to = ek_gpu_is_sharded(x) ? out.here : ek_gpu_acts_for(w, &out.all, &layer->o);
    if (w->of.finishes) a.head = head_of(w, i, layer->q_norm);
    if (stores(w, i)) {
        a.k = x->buf.k, a.v = l->k_eq_v ? x->buf.k : x->buf.v, a.ldk = key_size(x, i);
        a.k_norm = layer->k_norm;
    }
    write_launches(w, i, &a);
    if (out.records && !writes) ek_gpu_quantize_to(w, &out.here, a.o, a.ldo, n);
    write_exchange(w, &out, &layer->o, n);
    return out.all;
}
