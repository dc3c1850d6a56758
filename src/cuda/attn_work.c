#include "cuda/attn_work.h"

#include "ops/kv/kv_codec.h"

int ek_cuda_attn_max_tiles(int n_rows, int n_heads, int n_kv_heads, int tile)
{
    int ratio = n_heads / n_kv_heads;
    return n_rows * ((ratio + tile - 1) / tile) * n_kv_heads;
}

static ek_err add_tile(ek_cuda_attn_work *w, ek_cuda_attn_tile t)
{
    if (w->n_tiles == w->max_tiles) return ek_fail(EK_ETOOLARGE, "attention needs more than %d tiles", w->max_tiles);
    if (t.n_seg > w->max_segments) w->max_segments = t.n_seg;
    t.leaf0 = w->n_items;
    if (w->items) {
        if (t.n_seg > w->max_items - w->n_items)
            return ek_fail(EK_ETOOLARGE, "attention needs more than %d work items", w->max_items);
        for (int s = 0; s < t.n_seg; s++)
            w->items[w->n_items++] = (ek_cuda_attn_item){.tile = w->n_tiles, .seg = t.seg0 + s};
    }
    w->tiles[w->n_tiles++] = t;
    return EK_OK;
}

/* Divides the run of rows [first, end) into tiles. */
static ek_err cut_run(ek_cuda_attn_work *w, const ek_attn_row *rows, int first, int end, int ratio, int n_kv_heads,
                      int tile)
{
    int queries = (end - first) * ratio, seg0 = rows[first].lo / EK_SEGMENT;
    for (int at = 0; at < queries; at += tile) {
        ek_cuda_attn_tile t = {.row = first + at / ratio, .head = at % ratio, .view = rows[first].view, .seg0 = seg0};
        t.n_q = queries - at < tile ? queries - at : tile;
        int last_row = first + (at + t.n_q - 1) / ratio, seg1 = 0;
        for (int r = t.row; r <= last_row; r++) {
            int seg = (rows[r].end - 1) / EK_SEGMENT + 1;
            if (seg > seg1) seg1 = seg;
        }
        t.n_seg = seg1 - seg0;
        for (t.kv_head = 0; t.kv_head < n_kv_heads; t.kv_head++) EK_TRY(add_tile(w, t));
    }
    return EK_OK;
}

ek_err ek_cuda_attn_add(ek_cuda_attn_work *w, const ek_attn_row *rows, int first, int last, int n_heads, int n_kv_heads,
                        int tile)
{
    int ratio = n_heads / n_kv_heads;
    ek_cuda_attn_work before = *w;
    for (int row = first, end; row < last; row = end) {
        EK_ASSERT(rows[row].lo >= 0 && rows[row].lo < rows[row].end);
        int seg = rows[row].lo / EK_SEGMENT;
        for (end = row + 1; end < last && rows[end].view == rows[row].view && rows[end].lo / EK_SEGMENT == seg;) end++;
        ek_err err = cut_run(w, rows, row, end, ratio, n_kv_heads, tile);
        if (err != EK_OK) {
            *w = before;
            return err;
        }
    }
    return EK_OK;
}

void ek_cuda_attn_starts(ek_cuda_attn_start *out, const ek_cuda_attn_work *w, const ek_attn_row *rows,
                         const int32_t *pages, int64_t ld_pages)
{
    for (int i = 0; i < w->n_items; i++) {
        const ek_cuda_attn_tile *t = &w->tiles[w->items[i].tile];
        ek_cuda_attn_start *s = &out[i];
        *s = (ek_cuda_attn_start){.t = *t, .tile = w->items[i].tile, .seg = w->items[i].seg};
        s->lo = rows[t->row].lo, s->end = rows[t->row].end;
        for (int p = 0; p < EK_SEGMENT / EK_PAGE_TOKENS; p++) {
            const int64_t at = (int64_t)s->seg * (EK_SEGMENT / EK_PAGE_TOKENS) + p;
            s->page[p] = at < ld_pages ? pages[t->view * ld_pages + at] : EK_NO_PAGE;
        }
    }
}

/* Of ek_attn_segment_N. */
static size_t segment_shared(int tile, int head_dim, ek_kv_format v_format)
{
    size_t n = (size_t)tile, floats = (size_t)head_dim * n + 2 * EK_SEGMENT * n + 8 * n;
    size_t scales = sizeof(ek_f16) * EK_SEGMENT * ek_kv_groups(v_format, head_dim);
    if (ek_kv_codecs[v_format].rule == EK_KV_AFFINE) scales *= 2; /* biases */
    return floats * sizeof(float) + EK_SEGMENT + scales;
}

static bool dims_fit(int head_dim)
{
    return head_dim == 64 || head_dim == 128 || head_dim == 256 || head_dim == 512;
}

bool ek_cuda_attn_half_fits(int head_dim, ek_kv_format k, ek_kv_format v)
{
    return dims_fit(head_dim) && k == EK_KV_F16 && v == EK_KV_F16;
}

bool ek_cuda_attn_int_fits(int head_dim, ek_kv_format k, ek_kv_format v)
{
    return dims_fit(head_dim) && ek_kv_rotated(k) && ek_kv_rotated(v);
}

int ek_cuda_attn_many_tile(int head_dim, ek_kv_format k, ek_kv_format v, const ek_cuda_chip *chip)
{
    if (!chip->plain || head_dim % 64 || !ek_kv_rotated(k) || !ek_kv_rotated(v)) return 0;
    return chip->matrices ? EK_CUDA_ATTN_COOP_TILE : EK_CUDA_ATTN_MANY_TILE;
}

size_t ek_cuda_attn_code_bytes(int tile, int head_dim)
{
    return (size_t)tile * (size_t)(2 * head_dim + 4);
}

bool ek_cuda_attn_is_many(int tile, ek_kv_format v, const ek_cuda_chip *chip)
{
    return chip->plain && ek_kv_rotated(v) && tile > EK_CUDA_ATTN_INT_TILE;
}

bool ek_cuda_attn_few_joins(int tile, ek_kv_format v, const ek_cuda_chip *chip)
{
    return chip->plain && ek_kv_rotated(v) && tile < EK_CUDA_ATTN_INT_TILE;
}

/* Whether each block has a multiprocessor to itself. */
bool ek_cuda_attn_int_owns(ek_kv_format k, ek_kv_format v, int n_items, const ek_cuda_chip *chip)
{
    return k == EK_KV_I12 && v == EK_KV_I12 && n_items <= chip->multiprocessors;
}

/* More blocks than ek_attn_int_DIM has at once: two on a multiprocessor. */
bool ek_cuda_attn_int_is_many(ek_kv_format k, ek_kv_format v, int n_items, const ek_cuda_chip *chip)
{
    return k == EK_KV_I12 && v == EK_KV_I12 && n_items > 2 * chip->multiprocessors;
}

static int log2_of(int n)
{
    int log = 0;
    while (1 << log < n) log++;
    return log;
}

/* The number of slots that fit 228 KB, at least one per page. */
static int slots_of(const ek_cuda_chip *chip, int slots)
{
    enum { LARGE = 228 << 10, MIN_SLOTS = EK_SEGMENT / EK_PAGE_TOKENS };
    if (chip->shared >= LARGE) return slots;
    const int some = (int)((size_t)slots * chip->shared / LARGE) - 2;
    return some < MIN_SLOTS ? MIN_SLOTS : some;
}

ek_cuda_attn_segment ek_cuda_attn_segment_plan(int tile, int head_dim, ek_kv_format k, ek_kv_format v, bool whole,
                                               int n_items, const ek_cuda_chip *chip)
{
#define DIMS(name)                                        \
    {                                                     \
        name "_64", name "_128", name "_256", name "_512" \
    }
    static const char *const leaf[] = {"ek_attn_segment_2", "ek_attn_segment_4", "ek_attn_segment_8"},
                             *const halves[][4] = {DIMS("ek_attn_half_1"), DIMS("ek_attn_half_2"),
                                                   DIMS("ek_attn_half_4"), DIMS("ek_attn_half_8")},
                             *const ints[] = DIMS("ek_attn_int"), *const owns[] = DIMS("ek_attn_int_own"),
                             *const twos[] = DIMS("ek_attn_int_two");
#undef DIMS
    if (chip->plain && ek_kv_rotated(v) && tile <= EK_CUDA_ATTN_INT_TILE) {
        static const char *const plain[] = {"ek_attn_int_1", "ek_attn_int_2", "ek_attn_int_4", "ek_attn_int"};
        return (ek_cuda_attn_segment){.name = plain[log2_of(tile)], .threads = 256};
    }
    if (ek_kv_rotated(v)) {
        if (ek_cuda_attn_is_many(tile, v, chip))
            return (ek_cuda_attn_segment){.name = chip->matrices ? "ek_attn_int_coop" : "ek_attn_int_many",
                                          .threads = 256};
        const bool own = tile == 2 && ek_cuda_attn_int_owns(k, v, n_items, chip),
                   two = tile == 2 && ek_cuda_attn_int_is_many(k, v, n_items, chip);
        const char *const name = !whole ? "ek_attn_int" : (own ? owns : two ? twos : ints)[log2_of(head_dim) - 6];
        return (ek_cuda_attn_segment){.name = name, .threads = whole && two ? 128 : 256};
    }
    if (!whole)
        return (ek_cuda_attn_segment){leaf[log2_of(tile) - 1], head_dim > 256 ? 256 : 128,
                                      segment_shared(tile, head_dim, v), 0, 0};
    /* with 4 queries three blocks fit a multiprocessor, which pays once two per multiprocessor do not hold all items */
    const bool third = tile == 4 && head_dim <= 256 && n_items > 2 * chip->multiprocessors;
    const int slots = slots_of(chip, n_items <= chip->multiprocessors ? EK_CUDA_ATTN_FEW_SLOTS
                                     : third                          ? EK_CUDA_ATTN_MANY_SLOTS
                                                                      : EK_CUDA_ATTN_SLOTS);
    const int floats = head_dim > EK_SEGMENT ? head_dim : EK_SEGMENT; /* of a query, later of its weights */
    return (ek_cuda_attn_segment){halves[log2_of(tile)][log2_of(head_dim) - 6], tile > 1 && head_dim > 256 ? 288 : 256,
                                  (size_t)slots * EK_CUDA_ATTN_PIECE + (size_t)(tile * floats) * sizeof(float), slots,
                                  0};
}

static bool deep_takes(ek_kv_format f)
{
    const ek_kv_codec *c = &ek_kv_codecs[f];
    return c->rule != EK_KV_ROTATED && (c->rule != EK_KV_AFFINE || c->bits == 4);
}

bool ek_cuda_attn_deep_fits(int ratio, int head_dim, ek_kv_format k, ek_kv_format v, const ek_cuda_chip *chip)
{
    return chip->bulk && ratio % EK_CUDA_ATTN_DEEP_TILE == 0 && (head_dim == 256 || head_dim == 512) && deep_takes(k) &&
           deep_takes(v);
}

ek_cuda_attn_segment ek_cuda_attn_deep_plan(int head_dim)
{
    return (ek_cuda_attn_segment){head_dim == 256 ? "ek_attn_deep_256" : "ek_attn_deep_512",
                                  (unsigned)head_dim / 4 + 32, EK_CUDA_ATTN_DEEP_SHARED, 0, 0};
}

int ek_cuda_attn_levels(int max_segments)
{
    int levels = 1;
    while (max_segments >> levels) levels++;
    return levels;
}

/* The kinds of formats of cuda/kernels/kv.cuh. */
enum { KIND_F32, KIND_F16, KIND_BF16, KIND_I16, KIND_Q8, KIND_Q4, KIND_PLANES, KIND_ROTATED };

static int kind_of(ek_kv_format f)
{
    switch (ek_kv_codecs[f].rule) {
    case EK_KV_FLOAT: return KIND_F32;
    case EK_KV_HALF: return KIND_F16;
    case EK_KV_BFLOAT: return KIND_BF16;
    case EK_KV_TOKEN: return KIND_I16;
    case EK_KV_SYMMETRIC: return KIND_Q8;
    case EK_KV_ROTATED: return KIND_ROTATED;
    default: return ek_kv_codecs[f].bits == 4 ? KIND_Q4 : KIND_PLANES;
    }
}

static int shift_of(ek_kv_format f)
{
    int shift = 5; /* formats without groups ignore it */
    while (1 << shift < ek_kv_codecs[f].group) shift++;
    return shift;
}

void ek_cuda_kv_formats(ek_cuda_kv *kv, ek_kv_format k, ek_kv_format v, int head_dim)
{
    kv->k_bytes = (int64_t)ek_kv_k_bytes(k, head_dim), kv->v_bytes = (int64_t)ek_kv_v_bytes(v, head_dim);
    kv->k_format = kind_of(k), kv->v_format = kind_of(v), kv->head_dim = head_dim;
    kv->k_bits = ek_kv_codecs[k].bits, kv->v_bits = ek_kv_codecs[v].bits;
    kv->k_shift = shift_of(k), kv->v_shift = shift_of(v);
}

ek_cuda_attn_segment ek_cuda_attn_prompt_plan(ek_kv_format k_format, int head_dim, const ek_cuda_chip *chip)
{
    static const char *const name[] = {
        [KIND_F32] = "ek_attn_prompt_f32",      [KIND_F16] = "ek_attn_prompt_f16", [KIND_BF16] = "ek_attn_prompt_bf16",
        [KIND_I16] = "ek_attn_prompt_16",       [KIND_Q8] = "ek_attn_prompt_8",    [KIND_Q4] = "ek_attn_prompt_4",
        [KIND_PLANES] = "ek_attn_prompt_planes"};
    static const char *const small[] = {[KIND_F32] = "ek_attn_prompt_small_f32",
                                        [KIND_F16] = "ek_attn_prompt_small_f16",
                                        [KIND_BF16] = "ek_attn_prompt_small_bf16",
                                        [KIND_I16] = "ek_attn_prompt_small_16",
                                        [KIND_Q8] = "ek_attn_prompt_small_8",
                                        [KIND_PLANES] = "ek_attn_prompt_small_planes",
                                        [KIND_Q4] = NULL};
    ek_cuda_attn_segment p = {name[kind_of(k_format)], 256, EK_CUDA_PROMPT_SHARED, 1, EK_CUDA_PROMPT_TILE};
    if (chip->plain) {
        p.name = NULL;
    } else if (ek_kv_rotated(k_format)) {
        p.name = head_dim == 512   ? "ek_attn_int_prompt_512"
                 : head_dim == 256 ? "ek_attn_int_prompt_256"
                                   : "ek_attn_int_prompt";
        p.threads = EK_CUDA_INT_PROMPT_THREADS, p.shared = EK_CUDA_INT_PROMPT_SHARED;
        if (p.shared > chip->block_shared) p.name = NULL;
    } else if (p.shared > chip->block_shared) {
        p = (ek_cuda_attn_segment){small[kind_of(k_format)], 128, EK_CUDA_PROMPT_SMALL_SHARED, 1,
                                   EK_CUDA_PROMPT_SMALL_TILE};
        p.slots = (int)(chip->shared / (p.shared + 2048));
    }
    return p;
}

size_t ek_cuda_attn_stack_floats(int levels, int head_dim)
{
    return (size_t)levels * EK_CUDA_PROMPT_TILE * (size_t)((head_dim + 63) / 64 * 64 + 2);
}

static int parts_of(const ek_cuda_attn_tile *t, int part)
{
    return ((t->n_seg - 1) >> part) + 1;
}

int ek_cuda_attn_parts(const ek_cuda_attn_tile *tiles, int n_tiles, int part)
{
    int n = 0;
    for (int i = 0; i < n_tiles; i++) n += parts_of(&tiles[i], part);
    return n;
}

size_t ek_cuda_attn_node_floats(int head_dim)
{
    return (size_t)EK_CUDA_PROMPT_TILE * (size_t)(head_dim + 2);
}

void ek_cuda_attn_cut(ek_cuda_attn_tile *parts, ek_cuda_attn_tile *tiles, int n_tiles, int part)
{
    int n = 0, leaves = 0, max = 0;
    for (int i = 0; i < n_tiles; i++) {
        tiles[i].leaf0 = leaves, leaves += parts_of(&tiles[i], part);
        max = parts_of(&tiles[i], part) > max ? parts_of(&tiles[i], part) : max;
    }
    for (int p = 0; p < max; p++)
        for (int i = n_tiles - 1; i >= 0; i--) {
            if (p >= parts_of(&tiles[i], part)) continue;
            const int rest = tiles[i].n_seg - (p << part);
            parts[n] = tiles[i], parts[n].leaf0 += p, parts[n].seg0 += p << part;
            parts[n++].n_seg = rest < 1 << part ? rest : 1 << part;
        }
}

ek_cuda_attn_joiner ek_cuda_attn_join_plan(ek_kv_format v_format, int head_dim)
{
    if (ek_kv_rotated(v_format))
        return (ek_cuda_attn_joiner){"ek_attn_int_join", 1, (unsigned)(head_dim + 31) / 32 * 32};
    return (ek_cuda_attn_joiner){"ek_attn_join", (unsigned)(head_dim + 127) / 128, 128};
}
