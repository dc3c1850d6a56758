/* Form Q in vectors of 8 outputs, for instruction sets with 256 bits. A file of one of them includes this after the
 * header of that set, which defines
 *   TILE_ROWS    rows of a tile, 4 or 6
 *   scratch      data that prepare() makes from a tile's rows
 *   products()   the exact I of an A-group: 16 outputs by n rows
 *   WIDE_Q8      1 if a decoded code of Q8 takes two bytes, else 0
 *   decode_q8()  the 32 codes c + 128 of half a vector in the order of products()
 *
 * A tile is one panel by some rows: a broadcast of four activation bytes serves both halves of the panel. Few rows read
 * the packed codes. More rows than a tile share codes that are decoded in the first-level cache, UNIT inputs at a time,
 * with scales and b' as floats. */
#ifndef EK_OPS_X86_LINEAR_Q_256_H
#define EK_OPS_X86_LINEAR_Q_256_H

#include "ops/linear/x86/linear_q_256_unit.h"

INLINE void scales(const uint8_t *at, ek_dtype t, int i, __m256 out[2])
{
    UNROLL for (int h = 0; h < 2; h++)
        out[h] = t == EK_F32 ? v_load((const float *)(const void *)at + i * EK_PANEL + h * HALF)
                             : v_load_bf16((const uint16_t *)(const void *)at + i * EK_PANEL + h * HALF);
}

typedef void decode_fn(uint8_t *codes, float *scale, float *centre, const ek_linear *w, const unit *u);

APART void decode(uint8_t *codes, float *scale, float *centre, const ek_linear *w, const unit *u)
{
    const size_t code_bytes = ek_linear_code_bytes(w), group_bytes = ek_linear_group_bytes(w);
    const __m256 zero = _mm256_set1_ps((float)w->zero);
    const uint8_t *packed = u->packed;
    for (int k = 0; k < u->n; k += w->group, packed += group_bytes, scale += EK_PANEL, centre += EK_PANEL) {
        for (size_t i = 0; i < code_bytes; i += 32, codes += w->form == EK_W_Q8 && !WIDE_Q8 ? 32 : 64) {
            if (w->form == EK_W_Q8) {
                decode_q8(codes, _mm256_load_si256((const __m256i *)(const void *)(packed + i)));
                continue;
            }
            uint8_t *to = i % 64 ? codes - 32 : codes; /* quad 0 of 16 outputs, then quad 1 */
            _mm256_store_si256((__m256i *)(void *)to, nibbles(packed + i, 0));
            _mm256_store_si256((__m256i *)(void *)(to + 64), nibbles(packed + i, 1));
        }
        __m256 s[2], b[2] = {zero, zero};
        scales(packed + code_bytes, w->scale_dtype, 0, s);
        if (w->biased) scales(packed + code_bytes, w->scale_dtype, 1, b);
        UNROLL for (int h = 0; h < 2; h++)
        {
            _mm256_store_ps(scale + h * HALF, s[h]);
            if (w->biased) _mm256_store_ps(centre + h * HALF, _mm256_fmadd_ps(zero, s[h], b[h]));
        }
    }
}

/* sum = fma(t, sx, sum) for a group of every row. */
INLINE void add_group(__m256 sum[2][TILE_ROWS], __m256i i[2][TILE_ROWS], const int8_t *const *row, ptrdiff_t at,
                      const __m256 s[2], const __m256 centre[2], const int n, const bool biased)
{
    UNROLL for (int r = 0; r < n; r++)
    {
        const ek_act_group *of = group_at(row[r], at);
        __m256 x = _mm256_set1_ps(of->sum), sx = _mm256_set1_ps(of->sx);
        UNROLL for (int h = 0; h < 2; h++)
        {
            __m256 t = _mm256_mul_ps(s[h], _mm256_cvtepi32_ps(i[h][r]));
            if (biased) t = _mm256_fmadd_ps(centre[h], x, t);
            sum[h][r] = _mm256_fmadd_ps(t, sx, sum[h][r]);
        }
    }
}

/* Adds the unit's groups to the sums of rows [row0, row0 + n). */
INLINE void tile(__m256 (*sums)[TILE_ROWS], const ek_linear *w, const ek_acts *x, int row0, const unit *u, const int n,
                 const int kind, const int limbs, const bool decoded)
{
    const int8_t *row[TILE_ROWS];
    UNROLL for (int r = 0; r < n; r++) row[r] = ek_acts_record(x, row0 + r);
    scratch made;
    prepare(&made, row, x, u, n, kind, limbs);
    const int a_group = w->a_group, group = w->group;
    const bool biased = w->biased;
    const ek_dtype scale_dtype = w->scale_dtype;
    const size_t code_bytes = ek_linear_code_bytes(w), group_bytes = ek_linear_group_bytes(w);
    const ptrdiff_t from_line = u->from, to_line = u->to;
    const __m256 zero = _mm256_set1_ps((float)w->zero);

    __m256 sum[2][TILE_ROWS];
    UNROLL for (int h = 0; h < 2; h++) UNROLL for (int r = 0; r < n; r++) sum[h][r] = sums[h][r];
    source from = {decoded ? u->codes : u->packed, u->k, x->low, x->groups[0], x->groups[limbs - 1], 0};
    from.one += u->k / a_group * (ptrdiff_t)sizeof(ek_act_group),
        from.of += u->k / a_group * (ptrdiff_t)sizeof(ek_act_group);
    const uint8_t *packed = u->packed, *fetch = u->fetch;
    for (int g = 0; g < u->n / group; g++, packed += group_bytes, fetch += u->lines) {
        __m256 s[2], centre[2] = {zero, zero};
        for (ptrdiff_t i = from_line; i < to_line; i += 64)
            if (n == 1) _mm_prefetch((const char *)fetch + i, _MM_HINT_T0);
            else _mm_prefetch((const char *)fetch + i, _MM_HINT_T1);
        if (decoded) {
            UNROLL for (int h = 0; h < 2; h++)
            {
                s[h] = _mm256_load_ps(u->scale + g * EK_PANEL + h * HALF);
                if (biased) centre[h] = _mm256_load_ps(u->centre + g * EK_PANEL + h * HALF);
            }
        } else {
            from.codes = packed;
            scales(packed + code_bytes, scale_dtype, 0, s);
            if (biased) {
                __m256 bias[2];
                scales(packed + code_bytes, scale_dtype, 1, bias);
                UNROLL for (int h = 0; h < 2; h++) centre[h] = _mm256_fmadd_ps(zero, s[h], bias[h]);
            }
        }
        for (int part = 0; part < group; part += a_group) {
            __m256i i[2][TILE_ROWS];
            products(i, &made, row, &from, a_group, n, kind, limbs, decoded);
            if (biased) add_group(sum, i, row, from.of, s, centre, n, true);
            else add_group(sum, i, row, from.of, s, centre, n, false);
            from.codes += code_stride(a_group, kind, decoded);
            from.k += a_group, from.in_unit += a_group;
            from.one += (ptrdiff_t)sizeof(ek_act_group), from.of += (ptrdiff_t)sizeof(ek_act_group);
        }
    }
    UNROLL for (int h = 0; h < 2; h++) UNROLL for (int r = 0; r < n; r++) sums[h][r] = sum[h][r];
}

typedef void tile_fn(__m256 (*sums)[TILE_ROWS], const ek_linear *w, const ek_acts *x, int row0, const unit *u);

/* clang-format changes these lines at every run. */
/* clang-format off */
#define TILE_FN(kind, l, d, n)                                                                                 \
    static __attribute__((noinline)) void tile_##kind##_##l##_##d##_##n(                                       \
        __m256 (*sums)[TILE_ROWS], const ek_linear *w, const ek_acts *x, int row0, const unit *u)              \
    {                                                                                                          \
        tile(sums, w, x, row0, u, n, kind, l, d);                                                              \
    }
#if TILE_ROWS == 6
#define EACH_N(X, kind, l, d)                                                                                  \
    X(kind, l, d, 1) X(kind, l, d, 2) X(kind, l, d, 3) X(kind, l, d, 4) X(kind, l, d, 5) X(kind, l, d, 6)
#else
#define EACH_N(X, kind, l, d) X(kind, l, d, 1) X(kind, l, d, 2) X(kind, l, d, 3) X(kind, l, d, 4)
#endif
#define NAME(kind, l, d, n) tile_##kind##_##l##_##d##_##n,
/* Tiles of packed codes and of decoded ones; of decoded ones alone. */
#define TILES_OF(kind)                                                                                         \
    EACH_N(TILE_FN, kind, 1, 0) EACH_N(TILE_FN, kind, 1, 1) EACH_N(TILE_FN, kind, 2, 0)                        \
    EACH_N(TILE_FN, kind, 2, 1)                                                                                \
    static tile_fn *const tiles_##kind[2][2][TILE_ROWS] = {                                                    \
        {{EACH_N(NAME, kind, 1, 0)}, {EACH_N(NAME, kind, 1, 1)}},                                              \
        {{EACH_N(NAME, kind, 2, 0)}, {EACH_N(NAME, kind, 2, 1)}}};
#define DECODED_TILES_OF(kind)                                                                                 \
    EACH_N(TILE_FN, kind, 1, 1) EACH_N(TILE_FN, kind, 2, 1)                                                    \
    static tile_fn *const tiles_##kind[2][2][TILE_ROWS] = {                                                    \
        {{NULL}, {EACH_N(NAME, kind, 1, 1)}}, {{NULL}, {EACH_N(NAME, kind, 2, 1)}}};
/* clang-format on */

/* The first rows of tiles; tile i has at[i + 1] - at[i] rows. */
typedef struct tiling {
    int n, at[TILES + 1];
} tiling;

static tiling split_rows(int r0, int r1)
{
    tiling t = {.at = {r0}};
    for (int r = r0; r < r1; t.at[++t.n] = r) r += ek_tile_rows(r1 - r, TILE_ROWS);
    return t;
}

/* The reader of a form's panels. */
typedef struct reader {
    tile_fn *const (*tiles)[TILE_ROWS]; /* the tiles that read packed codes; those that read decoded ones */
    decode_fn *decode;
    int decode_tiles, inputs;  /* number of tiles from which on codes are decoded; inputs of a block */
    size_t block_bytes, lines; /* of the packed weights: bytes of a block, and of a group */
} reader;

static void panel(const ek_linear *w, const ek_acts *x, const tiling *t, float *y, ptrdiff_t ldy, int p,
                  const reader *f)
{
    _Alignas(64) uint8_t codes[UNIT_CODES];
    _Alignas(64) float scale[UNIT_GROUPS * EK_PANEL], centre[UNIT_GROUPS * EK_PANEL];
    __m256 node[TILES][2][EK_LINEAR_LEVELS][TILE_ROWS], leaf[TILES][2][TILE_ROWS];
    const bool decoded = t->n >= f->decode_tiles;
    const int step = decoded ? UNIT : EK_KBLOCK_Q;
    unit u = {.packed = w->data + (size_t)p * w->panel_bytes, .codes = codes, .scale = scale, .centre = centre};
    u.panel = u.packed, u.lines = (ptrdiff_t)f->lines;
    const ptrdiff_t share = (u.lines / 64 + t->n) / t->n * 64; /* more at once would hold up a tile's loads */
    unsigned leaves = 0;
    for (int k0 = 0; k0 < w->k; k0 += EK_KBLOCK_Q, leaves++) {
        memset(leaf, 0, sizeof *leaf * (size_t)t->n);
        const int end = ek_min(k0 + EK_KBLOCK_Q, w->k);
        for (u.k = k0; u.k < end; u.k += step) {
            u.n = ek_min(step, end - u.k);
            const uint8_t *next = u.packed + (size_t)(u.n / f->inputs) * f->block_bytes;
            if (decoded) f->decode(codes, scale, centre, w, &u);
            u.fetch = decoded ? next : u.packed + (t->at[1] - t->at[0] == 1 ? AHEAD_1 : AHEAD);
            for (int i = 0; i < t->n; i++) {
                u.from = i * share, u.to = u.from + share < u.lines ? u.from + share : u.lines;
                f->tiles[decoded][t->at[i + 1] - t->at[i] - 1](leaf[i], w, x, t->at[i], &u);
            }
            u.packed = next;
        }
        for (int i = 0; i < t->n; i++)
            for (int h = 0; h < 2; h++) v_tree_push(*node[i][h], TILE_ROWS, leaves, leaf[i][h], TILE_ROWS);
    }
    for (int i = 0; i < t->n; i++)
        for (int r = t->at[i]; r < t->at[i + 1]; r++)
            ek_store_outputs(y + r * ldy + p * EK_PANEL, ek_min(EK_PANEL, w->n - p * EK_PANEL),
                             v_tree_sum(*node[i][0], TILE_ROWS, leaves, r - t->at[i]),
                             v_tree_sum(*node[i][1], TILE_ROWS, leaves, r - t->at[i]));
}

/* Q4 and Q8. */
APART void run(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1,
               tile_fn *const (*tiles)[2][TILE_ROWS])
{
    const reader f = {.tiles = tiles[w->limbs - 1],
                      .decode = decode,
                      .decode_tiles = DECODE_TILES,
                      .inputs = w->group,
                      .block_bytes = ek_linear_group_bytes(w),
                      .lines = ek_linear_group_bytes(w)};
    for (int r = r0; r < r1;) {
        const int end = r + ek_tile_rows(r1 - r, TILES * TILE_ROWS);
        const tiling t = split_rows(r, end);
        for (int p = p0; p < p1; p++) panel(w, x, &t, y, ldy, p, &f);
        r = end;
    }
}

#endif
