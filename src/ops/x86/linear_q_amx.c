/* Form Q on AMX: one tile product is one A-group of 64 inputs, 16 rows and 16 outputs.
 *
 * A panel's codes of a K-block are unpacked once to signed bytes (c itself, so no offset has to be taken off) and
 * serve up to 8 tiles of rows; vector t of a group holds inputs 4 t .. 4 t + 3 of 16 outputs, which is the layout
 * TDPBSSD wants. I is exact, and the float part is the definition's chain, one vector lane per output. It bounds
 * the kernel (4 vector operations per row against 16 cycles of the tile unit), so the next product runs while it works.
 * Few rows and A-groups of 32 are AVX-512's: the bits are the same. */
#include <string.h>

#include "ops/x86/vec_avx512.h"
#include "ops/x86/linear_tile.h"
#include "ops/x86/linear_x86.h"
#include "ops/x86/tree_vec.h"

enum {
    ROWS = 16,
    GROUP = 64,
    TILES = 8,       /* of rows, that share unpacked codes */
    MIN_ROWS = 32,   /* fewer leave most of a tile empty, or unpack for too few */
    MIN_ROWS_2 = 16, /* of two limbs */
    BLOCK_BYTES = EK_KBLOCK_Q * EK_PANEL,
    SETS = 4, /* of sums in tile registers: as many products of one limb run ahead, half as many of two */
    PALETTE = 1
};

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

/* Sums 0 to 3: n x 16 int32. Rows 4, low limbs 5: n x 64 bytes. Codes 6. */
static void configure(int n)
{
    tile_config c = {.palette = PALETTE};
    for (int i = 0; i < 7; i++) c.row_bytes[i] = 64, c.rows[i] = i == 6 ? 16 : (uint8_t)n;
    _tile_loadconfig(&c);
}

/* Up to 16 rows whose addresses are one distance apart, or rows of a view, which are gathered group by group. */
typedef struct row_tile {
    const int8_t *record[ROWS]; /* past the last row: that row again */
    ptrdiff_t ldq;              /* 0: gather */
    int row;                    /* of y */
} row_tile;

static void find_rows(row_tile *t, const ek_acts *x, int row, int n)
{
    for (int r = 0; r < ROWS; r++) t->record[r] = ek_acts_record(x, row + (r < n ? r : n - 1));
    t->ldq = x->index ? 0 : x->ldq;
    t->row = row;
}

/* The signed codes of weights [0, n) of a panel's K-block, a group after the other; returns the codes behind. */
static const uint8_t *unpack(int8_t *out, const uint8_t *codes, const ek_linear *w, int n)
{
    const size_t rest = ek_linear_group_bytes(w) - ek_linear_code_bytes(w);
    const __m512i low = _mm512_set1_epi8(15), eight = _mm512_set1_epi8(8), sign = _mm512_set1_epi8(-128);
    for (int k = 0; k < n; k += w->group, codes += rest) {
        if (w->form == EK_W_Q8) {
            for (int v = 0; v < w->group / 4; v++, codes += 64, out += 64)
                _mm512_store_si512(out, _mm512_xor_si512(_mm512_load_si512(codes), sign));
            continue;
        }
        for (int v = 0; v < w->group / 8; v++, codes += 64, out += 128) {
            __m512i both = _mm512_load_si512(codes);
            _mm512_store_si512(out, _mm512_sub_epi8(_mm512_and_si512(both, low), eight));
            _mm512_store_si512(out + 64, _mm512_sub_epi8(_mm512_and_si512(_mm512_srli_epi16(both, 4), low), eight));
        }
    }
    return codes;
}

INLINE void load_rows(const row_tile *t, ptrdiff_t at, int8_t *space, const bool low)
{
    const int8_t *from = t->record[0] + at;
    ptrdiff_t ld = t->ldq;
    if (!ld) {
        for (int r = 0; r < ROWS; r++) _mm512_store_si512(space + r * GROUP, _mm512_loadu_si512(t->record[r] + at));
        from = space, ld = GROUP;
    }
    if (low) _tile_loadd(5, from, ld);
    else _tile_loadd(4, from, ld);
}

/* Tile registers are named by constants. */
#define MULTIPLY(c, rows, to)     \
    do {                          \
        _tile_zero(c);            \
        _tile_dpbssd(c, rows, 6); \
        _tile_stored(c, to, 64);  \
    } while (0)

/* sum = rows x codes over one A-group at `at` of the records; of two limbs sum[1] is the low one's. set: which tiles
 * take the sums, so that products run ahead while the sums before them are still stored. */
INLINE void multiply(int32_t (*sum)[ROWS * EK_PANEL], const row_tile *t, ptrdiff_t at, ptrdiff_t low,
                     const int8_t *codes, int8_t *space, const int limbs, int set)
{
    _tile_loadd(6, codes, 64);
    load_rows(t, at, space, false);
    if (limbs == 1) {
        switch (set) {
        case 0: MULTIPLY(0, 4, sum[0]); break;
        case 1: MULTIPLY(1, 4, sum[0]); break;
        case 2: MULTIPLY(2, 4, sum[0]); break;
        default: MULTIPLY(3, 4, sum[0]); break;
        }
        return;
    }
    load_rows(t, at + low, space + ROWS * GROUP, true);
    if (set) {
        MULTIPLY(0, 4, sum[0]);
        MULTIPLY(1, 5, sum[1]);
    } else {
        MULTIPLY(2, 4, sum[0]);
        MULTIPLY(3, 5, sum[1]);
    }
}

INLINE __m512 scales(const uint8_t *at, ek_dtype t, int i)
{
    if (t == EK_F32) return _mm512_load_ps((const float *)(const void *)at + i * EK_PANEL);
    __m256i half = _mm256_load_si256((const __m256i *)(const void *)at + i);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

INLINE void add_group(__m512 *a, const row_tile *t, ptrdiff_t at, const int32_t (*sum)[ROWS * EK_PANEL], __m512 s,
                      __m512 centre, const bool biased, const int limbs)
{
    UNROLL for (int r = 0; r < ROWS; r++)
    {
        const ek_act_group *of = (const ek_act_group *)(const void *)(t->record[r] + at);
        __m512i i = _mm512_load_si512(sum[0] + r * EK_PANEL);
        if (limbs == 2) i = _mm512_add_epi32(_mm512_slli_epi32(i, 8), _mm512_load_si512(sum[1] + r * EK_PANEL));
        __m512 v = _mm512_mul_ps(s, _mm512_cvtepi32_ps(i));
        if (biased) v = _mm512_fmadd_ps(centre, _mm512_set1_ps(of->sum), v);
        a[r] = _mm512_fmadd_ps(v, _mm512_set1_ps(of->sx), a[r]);
    }
}

/* Where a K-block of a panel begins. */
typedef struct block {
    const int8_t *codes;   /* unpacked */
    const uint8_t *packed; /* for scales and biases */
    int first, n;          /* inputs */
} block;

/* The leaf of one K-block: 16 rows x 16 outputs. */
INLINE void leaf(__m512 *a, const ek_linear *w, const ek_acts *x, const row_tile *t, const block *b, const bool biased,
                 const int limbs)
{
    const int ahead = limbs == 1 ? SETS - 1 : SETS / 2 - 1, sets = ahead + 1;
    _Alignas(64) int32_t sum[SETS][2][ROWS * EK_PANEL];
    _Alignas(64) int8_t space[SETS][2 * ROWS * GROUP];
    const size_t group_bytes = ek_linear_group_bytes(w), code_bytes = ek_linear_code_bytes(w);
    const int groups = b->n / GROUP, per_scale = w->group / GROUP;
    const ek_dtype scale_dtype = w->scale_dtype;
    const __m512 zero = _mm512_set1_ps((float)w->zero);
    ptrdiff_t q = b->first, at = x->groups[limbs - 1] + (ptrdiff_t)sizeof(ek_act_group) * (b->first / GROUP);
    __m512 s = zero, centre = zero;
    UNROLL for (int r = 0; r < ROWS; r++) a[r] = _mm512_setzero_ps();
    int done = 0;
    for (int g = 0; g < groups; g++, at += (ptrdiff_t)sizeof(ek_act_group)) {
        for (; done < groups && done <= g + ahead; done++, q += GROUP)
            multiply(sum[done % sets], t, q, x->low, b->codes + (size_t)done * GROUP * EK_PANEL, space[done % sets],
                     limbs, done % sets);
        if (g % per_scale == 0) {
            const uint8_t *from = b->packed + (size_t)(g / per_scale) * group_bytes + code_bytes;
            s = scales(from, scale_dtype, 0);
            if (biased) centre = _mm512_fmadd_ps(zero, s, scales(from, scale_dtype, 1));
        }
        add_group(a, t, at, (const int32_t(*)[ROWS * EK_PANEL]) sum[g % sets], s, centre, biased, limbs);
    }
}

typedef void leaf_fn(__m512 *a, const ek_linear *w, const ek_acts *x, const row_tile *t, const block *b);

#define LEAF(biased, limbs)                                                                                        \
    static __attribute__((noinline)) void leaf_##biased##_##limbs(__m512 *a, const ek_linear *w, const ek_acts *x, \
                                                                  const row_tile *t, const block *b)               \
    {                                                                                                              \
        leaf(a, w, x, t, b, biased, limbs);                                                                        \
    }
LEAF(0, 1)
LEAF(0, 2)
LEAF(1, 1)
LEAF(1, 2)

/* One panel for up to TILES tiles of n rows each. */
static void panel(const ek_linear *w, const ek_acts *x, const row_tile *tiles, int n_tiles, int n, float *y,
                  ptrdiff_t ldy, int p)
{
    static leaf_fn *const leaf_of[2][2] = {{leaf_0_1, leaf_0_2}, {leaf_1_1, leaf_1_2}};
    leaf_fn *fn = leaf_of[w->biased][w->limbs - 1];
    _Alignas(64) int8_t codes[BLOCK_BYTES];
    __m512 node[TILES][EK_LINEAR_LEVELS][ROWS], a[ROWS];
    unsigned leaves = 0;
    const uint8_t *packed = w->data + (size_t)p * w->panel_bytes;
    for (int k = 0; k < w->k; k += EK_KBLOCK_Q, leaves++) {
        block b = {codes, packed, k, ek_min(EK_KBLOCK_Q, w->k - k)};
        packed = unpack(codes, packed, w, b.n);
        for (int i = 0; i < n_tiles; i++) {
            fn(a, w, x, &tiles[i], &b);
            v_tree_push(*node[i], ROWS, leaves, a, ROWS);
        }
    }
    const int left = w->n - p * EK_PANEL;
    const __mmask16 mask = (__mmask16)(left >= EK_PANEL ? 0xffff : (1 << left) - 1);
    for (int i = 0; i < n_tiles; i++)
        for (int r = 0; r < n; r++)
            _mm512_mask_storeu_ps(y + (tiles[i].row + r) * ldy + p * EK_PANEL, mask,
                                  v_tree_sum(*node[i], ROWS, leaves, r));
}

/* The last tile ends with the last row: rows that two tiles share come out the same twice. */
static void run(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    const int n = ek_min(r1 - r0, ROWS);
    row_tile tiles[TILES];
    configure(n);
    for (int r = r0; r < r1;) {
        int n_tiles = 0;
        for (; r < r1 && n_tiles < TILES; r += n) find_rows(&tiles[n_tiles++], x, ek_min(r, r1 - n), n);
        for (int p = p0; p < p1; p++) panel(w, x, tiles, n_tiles, n, y, ldy, p);
    }
    _tile_release();
}

/* Speed only: AVX-512 gives the same bits. */
static bool worth_it(const ek_linear *w, int rows)
{
    return w->a_group == GROUP && rows >= (w->limbs == 1 ? MIN_ROWS : MIN_ROWS_2);
}

void ek_linear_q4_amx(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    if (!worth_it(w, r1 - r0)) ek_linear_q4_avx512(w, x, r0, r1, y, ldy, p0, p1);
    else run(w, x, r0, r1, y, ldy, p0, p1);
}

void ek_linear_q8_amx(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    if (!worth_it(w, r1 - r0)) ek_linear_q8_avx512(w, x, r0, r1, y, ldy, p0, p1);
    else run(w, x, r0, r1, y, ldy, p0, p1);
}
