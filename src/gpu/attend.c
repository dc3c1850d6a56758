/* Attention of a layer: its keys and values into pages, its queries, the kernels over the lists of a step
 * (gpu/lists.c). */
#include "gpu/run.h"

static unsigned up(int n, int by)
{
    return (unsigned)((n + by - 1) / by);
}

/* Layer i in pages of its kind, or of the kind of the first positions. */
static ek_cuda_kv kv_of(const ek_gpu_run *x, int i, bool start)
{
    const ek_model *m = x->g->m;
    const ek_layer_config *l = &m->config.layer[i];
    const ek_layer_kind kind = start ? ek_kv_start_kind(l->kind) : l->kind;
    ek_cuda_kv kv = {.pages = x->table[l->kind],
                     .base = x->pages[kind] + (start ? m->kv_start_offset[i] : m->kv_offset[i]),
                     .stride = (int64_t)x->page_bytes[kind],
                     .ld_pages = x->ld_table,
                     .n_kv_heads = l->n_kv_heads};
    if (start) ek_cuda_kv_formats(&kv, ek_kv_start_format(m->k_format), ek_kv_start_format(m->v_format), l->head_dim);
    else ek_cuda_kv_formats(&kv, m->k_format, m->v_format, l->head_dim);
    return kv;
}

/* How rows of `set` become queries or keys of layer i. */
static ek_cuda_head head_of(const ek_gpu_run *x, int i, const ek_gpu_set *set, CUdeviceptr norm)
{
    const ek_config *c = &x->g->m->config;
    const ek_layer_kind kind = c->layer[i].kind;
    return (ek_cuda_head){.norm = norm,
                          .cos = set->cos[kind],
                          .sin = set->sin[kind],
                          .ld_table = x->g->m->n_rotated[kind],
                          .eps = c->rms_norm_eps,
                          .rotated = x->g->m->n_rotated[kind]};
}

bool ek_gpu_drops(const ek_gpu_run *x, int i)
{
    return i == ek_prompt_layers(&x->g->m->config) && x->n_want < x->all.n;
}

/* By ek_attn_half, which finishes its queries itself. */
static bool finishes(const ek_gpu_list *list)
{
    return list->joined && !list->n_prompt;
}

/* Heads of that many rows by kernels/heads_rows.cu. */
static bool by_rows(int n, int dim)
{
    return n >= EK_CUDA_STORE_ROWS && (dim == 256 || dim == 512);
}

void ek_gpu_finish_queries(ek_gpu_run *x, int i, const ek_gpu_set *set)
{
    const ek_config *c = &x->g->m->config;
    const ek_layer_config *l = &c->layer[i];
    if (finishes(&set->list[l->kind])) return;
    ek_cuda_heads_args a = {.q = x->q,
                            .ldq = (int64_t)c->n_heads * l->head_dim,
                            .head = head_of(x, i, set, x->g->w.layer[i].q_norm),
                            .head_dim = l->head_dim};
    if (by_rows(set->n, l->head_dim)) {
        ek_gpu_launch(x->g, l->head_dim == 256 ? "ek_heads_rows_256" : "ek_heads_rows_512",
                      (ek_cuda_grid){.x = (unsigned)set->n, .threads = EK_CUDA_HEADS_THREADS, .overlap = true}, &a);
        return;
    }
    ek_gpu_launch(x->g, "ek_heads",
                  (ek_cuda_grid){.x = (unsigned)c->n_heads, .y = (unsigned)set->n, .threads = 128, .overlap = true},
                  &a);
}

/* Whether the attention of the rows that layer i makes keys of stores these, too. */
static bool stores(const ek_gpu_run *x, int i, const ek_gpu_set *set)
{
    const ek_config *c = &x->g->m->config;
    const ek_gpu_list *list = &set->list[c->layer[i].kind];
    return c->layer[i].owns_kv && set == &x->all && !ek_gpu_drops(x, i) && finishes(list) && list->single;
}

void ek_gpu_store(ek_gpu_run *x, int i, const ek_gpu_set *set)
{
    if (stores(x, i, set)) return;
    const ek_layer_config *l = &x->g->m->config.layer[i];
    const int64_t ldk = (int64_t)l->n_kv_heads * l->head_dim;
    ek_cuda_store_args a = {.kv = kv_of(x, i, false),
                            .start = kv_of(x, i, true),
                            .n_start = x->g->m->layout.n_start,
                            .place = set->place,
                            .k = x->k,
                            .v = l->k_eq_v ? x->k : x->v,
                            .ldk = ldk,
                            .ldv = ldk,
                            .head = head_of(x, i, set, x->g->w.layer[i].k_norm),
                            .rows = set->n};
    const ek_model *m = x->g->m;
    if (by_rows(set->n, l->head_dim) && m->k_format == EK_KV_F16 && m->v_format == EK_KV_F16 && !a.n_start) {
        ek_gpu_launch(x->g, l->head_dim == 256 ? "ek_kv_store_rows_256" : "ek_kv_store_rows_512",
                      (ek_cuda_grid){.x = (unsigned)l->n_kv_heads,
                                     .y = up(set->n, EK_CUDA_STORE_ROWS),
                                     .z = 2,
                                     .threads = EK_CUDA_STORE_THREADS,
                                     .overlap = true},
                      &a);
        return;
    }
    ek_gpu_launch(
        x->g, "ek_kv_store",
        (ek_cuda_grid){.x = (unsigned)l->n_kv_heads, .y = (unsigned)set->n, .z = 2, .threads = 128, .overlap = true},
        &a);
}

static void attend_few(ek_gpu_run *x, ek_cuda_attn_args a, const ek_gpu_list *list, const ek_gpu_wave *wave)
{
    const ek_model *m = x->g->m;
    const ek_cuda_attn_leaf p = list->deep
                                    ? ek_cuda_attn_deep_plan(a.kv.head_dim)
                                    : ek_cuda_attn_leaf_plan(list->tile, a.kv.head_dim, m->v_format, list->joined,
                                                             wave->n_items, ek_cuda_multiprocessors(x->g->c));
    a.tiles = wave->tiles, a.items = wave->items, a.n_tiles = wave->n_tiles, a.tile = list->tile;
    a.slots = p.slots;
    size_t max_leaves = x->leaf_bytes / sizeof(float) / (size_t)(a.kv.head_dim + 2); /* times the tile's queries */
    a.leaf_o = x->leaves;
    a.leaf_l = a.leaf_o + sizeof(float) * max_leaves * (size_t)a.kv.head_dim;
    a.leaf_m = a.leaf_l + sizeof(float) * max_leaves;
    a.ended = list->joined ? x->ended : 0;
    ek_gpu_launch(
        x->g, p.name,
        (ek_cuda_grid){.x = (unsigned)wave->n_items, .threads = p.threads, .shared = p.shared, .overlap = true}, &a);
    if (list->joined) return;
    ek_gpu_launch(x->g, "ek_attn_join",
                  (ek_cuda_grid){.x = (unsigned)wave->n_tiles,
                                 .y = (unsigned)list->tile,
                                 .z = up(a.kv.head_dim, 128),
                                 .threads = 128,
                                 .overlap = true},
                  &a);
}

void ek_gpu_attend(ek_gpu_run *x, int i, const ek_gpu_set *set, ek_gpu_input *out)
{
    const ek_model *m = x->g->m;
    const ek_layer_config *l = &m->config.layer[i];
    const ek_gpu_list *list = &set->list[l->kind];
    const int64_t ldq = (int64_t)m->config.n_heads * l->head_dim;
    ek_cuda_attn_args a = {.kv = kv_of(x, i, false),
                           .start = kv_of(x, i, true),
                           .n_start = m->layout.n_start,
                           .rows = list->rows,
                           .q = x->q,
                           .o = x->o,
                           .ldq = ldq,
                           .ldo = ldq,
                           .ratio = m->config.n_heads / l->n_kv_heads};
    const ek_gpu_matrix *o = &x->g->w.layer[i].o;
    if (!list->n_prompt && o->l.a_group == 64 && l->head_dim % 64 == 0) a.to = ek_gpu_acts_for(x, out, o);
    if (finishes(list)) a.head = head_of(x, i, set, x->g->w.layer[i].q_norm);
    a.single = list->single && (finishes(list) || list->deep);
    if (stores(x, i, set)) {
        a.k = x->k, a.v = l->k_eq_v ? x->k : x->v, a.ldk = (int64_t)l->n_kv_heads * l->head_dim;
        a.k_norm = x->g->w.layer[i].k_norm;
    }
    for (int w = 0; w < list->n_waves; w++) attend_few(x, a, list, &list->wave[w]);
    if (!list->n_prompt) return;
    int blocks = ek_cuda_multiprocessors(x->g->c);
    a.tiles = list->prompt, a.n_tiles = list->n_prompt, a.tile = EK_CUDA_PROMPT_TILE, a.levels = list->levels;
    a.leaf_o = x->leaves, a.ended = x->ended;
    ek_gpu_launch(x->g, ek_cuda_attn_prompt_name(m->k_format),
                  (ek_cuda_grid){.x = (unsigned)(list->n_prompt < blocks ? list->n_prompt : blocks),
                                 .threads = 256,
                                 .shared = EK_CUDA_PROMPT_SHARED,
                                 .overlap = true},
                  &a);
}
