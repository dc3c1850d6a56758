/* Forms Q and PLANES on AMX: one tile product is one A-group, 16 rows and 16 outputs, with I exact. Codes are unpacked
 * to signed bytes in TDPBSSD's order: vector t of a group has inputs 4 t .. 4 t + 3 of 16 outputs. For A-groups of 32
 * and 16 the tiles are half and a quarter as deep.
 *
 * On one core of a Xeon a product with its loads and its store takes 14 ns, and its float part (4 vector operations per
 * row) 11; they hardly overlap: 25 in all, where AVX-512 takes 75. To come near that, everything must be in the
 * first-level cache, so work is divided into slots: a tile of 16 rows by two panels by SLOT groups. A step of a slot
 * issues one product, and adds one group of 8 rows by both panels of the previous slot, whose X and sx are broadcast
 * once for both panels. Codes and scales of a slot are prefetched, and unpacked once for up to TILES tiles of rows.
 *
 * AVX-512 computes few rows: the bits are the same. */
#include <string.h>

#include "ops/x86/vec_avx512.h"
#include "ops/inline.h"
#include "ops/linear/x86/linear_tile.h"
#include "ops/linear/x86/linear_q_unpack_512.h"
#include "ops/linear/x86/planes/linear_p_unpack_512.h"
#include "ops/x86/tree_vec.h"

enum {
    ROWS = 16,
    HALF = 8,       /* rows whose sums for two panels fit the registers */
    MAX_GROUP = 64, /* inputs */
    SLOT = 2,       /* groups */
    STEPS = PANELS * SLOT,
    LAG = 2,   /* steps from a product to its store */
    TILES = 8, /* tiles of rows that share unpacked codes */
    MIN_ROWS = ROWS,
    AHEAD = 4096, /* bytes of packed weights */
    PALETTE = 1
};

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

/* Tile registers: sums 0 to 3, rows 4 and 5, codes 6 and 7; 16 rows of 64 bytes each for A-groups of 64. */
static void configure(int group)
{
    tile_config c = {.palette = PALETTE};
    for (int i = 0; i < 8; i++) {
        c.row_bytes[i] = (uint16_t)(i == 4 || i == 5 ? group : 64);
        c.rows[i] = (uint8_t)(i >= 6 ? group / 4 : ROWS);
    }
    _tile_loadconfig(&c);
}

/* The weights of a slot: signed codes, group after group, and in each group panel after panel; s and b'. */
typedef struct weights {
    _Alignas(64) uint8_t codes[SLOT * PANELS * MAX_GROUP * EK_PANEL];
    _Alignas(64) unpacked_scales scale[SLOT];
} weights;

/* 16 rows. Rows in two tiles get the same result twice. */
typedef struct row_tile {
    const int8_t *record[ROWS];
    ptrdiff_t ldq; /* the distance between records; 0: rows of a view, which are gathered */
    int row;       /* of y */
} row_tile;

/* A tile of rows and a slot of the weights. */
typedef struct slot {
    const weights *w;
    const int8_t *rows;
    ptrdiff_t ldq;
    int groups;
    _Alignas(64) ek_act_group act[ROWS][SLOT];
    _Alignas(64) int8_t gathered[2 * ROWS * SLOT * MAX_GROUP];    /* [limb][row][input] */
    _Alignas(64) int32_t sum[2 * SLOT * PANELS][ROWS * EK_PANEL]; /* with two limbs two each */
} slot;

static void find_rows(row_tile *t, const ek_acts *x, int row)
{
    for (int r = 0; r < ROWS; r++) t->record[r] = ek_acts_record(x, row + r);
    t->ldq = x->index ? 0 : x->ldq;
    t->row = row;
}

/* Prepares the rows of tile t over `groups` groups from input k on. */
static void open_slot(slot *s, const weights *w, const ek_acts *x, const row_tile *t, int k, int groups, int limbs,
                      int group)
{
    const ptrdiff_t at = x->groups[limbs - 1] + (ptrdiff_t)sizeof(ek_act_group) * (k / group);
    s->w = w, s->groups = groups, s->ldq = t->ldq, s->rows = t->record[0] + k;
    for (int r = 0; r < ROWS; r++) /* a record has room behind its groups */
        memcpy(s->act[r], t->record[r] + at, sizeof s->act[r]);
    if (t->ldq) return;
    for (int l = 0; l < limbs; l++)
        for (int r = 0; r < ROWS; r++)
            memcpy(s->gathered + (l * ROWS + r) * SLOT * group, t->record[r] + k + l * x->low,
                   (size_t)(groups * group));
    s->rows = s->gathered;
}

/* Tile registers are named by constants. Step i of a slot: group i / 2, panel i % 2. */
INLINE void load(const slot *s, int i, ptrdiff_t low, const int group, const int limbs)
{
    const uint8_t *codes = s->w->codes + i * group * EK_PANEL;
    const int8_t *rows = s->rows + i / PANELS * group;
    const ptrdiff_t ld = s->ldq ? s->ldq : SLOT * group;
    if (!s->ldq) low = ROWS * SLOT * group;
    if (i % PANELS == 0) {
        if (limbs == 2) {
            _tile_loadd(4, rows, ld);
            _tile_loadd(5, rows + low, ld);
        } else if (i / PANELS % 2) {
            _tile_loadd(5, rows, ld);
        } else {
            _tile_loadd(4, rows, ld);
        }
        _tile_loadd(6, codes, 64);
    } else {
        _tile_loadd(7, codes, 64);
    }
}

#define MULTIPLY(c, rows, codes)      \
    do {                              \
        _tile_zero(c);                \
        _tile_dpbssd(c, rows, codes); \
    } while (0)

INLINE void multiply(int i, const int limbs)
{
    if (limbs == 2) {
        if (i % 2 == 0) {
            MULTIPLY(0, 4, 6);
            MULTIPLY(1, 5, 6);
        } else {
            MULTIPLY(2, 4, 7);
            MULTIPLY(3, 5, 7);
        }
        return;
    }
    switch (i % 4) {
    case 0: MULTIPLY(0, 4, 6); break;
    case 1: MULTIPLY(1, 4, 7); break;
    case 2: MULTIPLY(2, 5, 6); break;
    default: MULTIPLY(3, 5, 7);
    }
}

INLINE void store(slot *s, int i, const int limbs)
{
    int32_t(*to)[ROWS * EK_PANEL] = s->sum + i * limbs;
    if (limbs == 2) {
        if (i % 2 == 0) {
            _tile_stored(0, to[0], 64);
            _tile_stored(1, to[1], 64);
        } else {
            _tile_stored(2, to[0], 64);
            _tile_stored(3, to[1], 64);
        }
        return;
    }
    switch (i % 4) {
    case 0: _tile_stored(0, to[0], 64); break;
    case 1: _tile_stored(1, to[0], 64); break;
    case 2: _tile_stored(2, to[0], 64); break;
    default: _tile_stored(3, to[0], 64);
    }
}

/* Step i of the products. With one limb the loaded tiles are multiplied a step later, and stored two steps after that.
 * With two limbs there are no registers for that, and no delay is faster. */
INLINE void product(slot *s, int i, ptrdiff_t low, const int group, const int limbs, const bool full)
{
    const int n = full ? STEPS : s->groups * PANELS;
    if (limbs == 2) {
        if (i >= n) return;
        load(s, i, low, group, limbs);
        multiply(i, limbs);
        store(s, i, limbs);
        return;
    }
    if (i == 0) load(s, 0, low, group, limbs);
    if (i >= LAG && i - LAG < n) store(s, i - LAG, limbs);
    if (i < n) multiply(i, limbs);
    if (i + 1 < STEPS && i + 1 < n) load(s, i + 1, low, group, limbs);
    if (i < STEPS - 1) return;
    for (int j = STEPS - LAG; j < STEPS; j++)
        if (j < n) store(s, j, limbs);
}

/* a += group g of rows [first, first + 8) by two panels. */
INLINE void add_group(__m512 a[PANELS][HALF], const slot *s, int g, int first, const bool biased, const int limbs)
{
    __m512 scale[PANELS], centre[PANELS];
    UNROLL for (int p = 0; p < PANELS; p++)
    {
        scale[p] = _mm512_load_ps(s->w->scale[g][p][0]);
        if (biased) centre[p] = _mm512_load_ps(s->w->scale[g][p][1]);
    }
    UNROLL for (int r = 0; r < HALF; r++)
    {
        const ek_act_group *of = &s->act[first + r][g];
        const __m512 x = _mm512_set1_ps(of->sum), sx = _mm512_set1_ps(of->sx);
        UNROLL for (int p = 0; p < PANELS; p++)
        {
            const int32_t *sum = s->sum[(g * PANELS + p) * limbs] + (first + r) * EK_PANEL;
            __m512i i = _mm512_load_si512(sum);
            if (limbs == 2) i = _mm512_add_epi32(_mm512_slli_epi32(i, 8), _mm512_load_si512(sum + ROWS * EK_PANEL));
            __m512 t = _mm512_mul_ps(scale[p], _mm512_cvtepi32_ps(i));
            if (biased) t = _mm512_fmadd_ps(centre[p], x, t);
            a[p][r] = _mm512_fmadd_ps(t, sx, a[p][r]);
        }
    }
}

/* The products of `next`, and leaf += those of `now`; either may be NULL. */
INLINE void run_slot(__m512 (*leaf)[ROWS], const slot *now, slot *next, ptrdiff_t low, const int group,
                     const bool biased, const int limbs, const bool full)
{
    for (int half = 0; half < 2; half++) {
        __m512 a[PANELS][HALF];
        if (now)
            UNROLL for (int p = 0; p < PANELS; p++) UNROLL for (int r = 0; r < HALF; r++)
                a[p][r] = leaf[p][half * HALF + r];
        UNROLL for (int g = 0; g < SLOT; g++)
        {
            if (next) {
                if (half) product(next, SLOT + g, low, group, limbs, full);
                else product(next, g, low, group, limbs, full);
            }
            if (now && (full || g < now->groups)) add_group(a, now, g, half * HALF, biased, limbs);
        }
        if (now)
            UNROLL for (int p = 0; p < PANELS; p++) UNROLL for (int r = 0; r < HALF; r++)
                leaf[p][half * HALF + r] = a[p][r];
    }
}

typedef void slot_fn(__m512 (*leaf)[ROWS], const slot *now, slot *next, ptrdiff_t low);

/* clang-format never settles on a layout of these. */
/* clang-format off */
#define SLOT_FN(a, biased, limbs)                                                                               \
    static __attribute__((noinline)) void slot_##a##_##biased##_##limbs(__m512 (*leaf)[ROWS], const slot *now, \
                                                                         slot *next, ptrdiff_t low)             \
    {                                                                                                            \
        const bool full = now && next && now->groups == SLOT && next->groups == SLOT;                          \
        if (full) run_slot(leaf, now, next, low, a, biased, limbs, true);                                       \
        else if (now && next) run_slot(leaf, now, next, low, a, biased, limbs, false);                          \
        else if (now) run_slot(leaf, now, NULL, low, a, biased, limbs, false);                                  \
        else run_slot(leaf, NULL, next, low, a, biased, limbs, false);                                          \
    }
#define AMX_FNS(a)                                                                                               \
    SLOT_FN(a, 0, 1) SLOT_FN(a, 0, 2) SLOT_FN(a, 1, 1) SLOT_FN(a, 1, 2)                                      \
    static slot_fn *const slots_##a[2][2] = {{slot_##a##_0_1, slot_##a##_0_2}, {slot_##a##_1_1, slot_##a##_1_2}};
/* clang-format on */

/* Prefetches part i of n of the weights that the slot from input k on needs; all at once would wait for the memory. */
static void fetch_share(const ek_linear *w, const uint8_t *const *panel, int k, int groups, int i, int n)
{
    const size_t from = w->panel_bytes * (size_t)k / (size_t)w->k + AHEAD; /* about */
    const size_t bytes = w->panel_bytes * (size_t)(groups * w->a_group) / (size_t)w->k;
    const size_t other = from >= w->panel_bytes ? (PANELS - 1) * w->panel_bytes : 0; /* of the panels that follow */
    for (size_t at = bytes * (size_t)i / (size_t)n; at < bytes * (size_t)(i + 1) / (size_t)n; at += 64)
        for (int p = 0; p < PANELS; p++) fetch(panel[p] + from + other, (ptrdiff_t)at);
}

/* Two panels (of an odd number the last twice) for up to TILES tiles of rows. */
static void panels(const ek_linear *w, const ek_acts *x, const row_tile *tiles, int n_tiles, float *y, ptrdiff_t ldy,
                   int p, int p1, unpack_fn *unpack, slot_fn *fn)
{
    const int group = w->a_group;
    weights codes[2];
    slot slots[2], *now = NULL;
    __m512 leaf[TILES][PANELS][ROWS], node[TILES][PANELS][EK_LINEAR_LEVELS][ROWS];
    unsigned leaves[TILES] = {0};
    const uint8_t *panel[PANELS];
    for (int i = 0; i < PANELS; i++) panel[i] = w->data + (size_t)ek_min(p + i, p1 - 1) * w->panel_bytes;
    const int n_slots = (w->k / group + SLOT - 1) / SLOT, per_leaf = EK_KBLOCK_Q / group / SLOT;
    for (int n = 0; n <= n_slots * n_tiles; n++) {
        slot *next = NULL;
        if (n < n_slots * n_tiles) {
            const int k = n / n_tiles * SLOT * group, groups = ek_min(SLOT, (w->k - k) / group);
            weights *of = &codes[n / n_tiles % 2];
            next = &slots[n % 2];
            if (n % n_tiles == 0) unpack(of->codes, of->scale, w, panel, k, groups, true);
            fetch_share(w, panel, k, groups, n % n_tiles, n_tiles);
            open_slot(next, of, x, &tiles[n % n_tiles], k, groups, w->limbs, group);
        }
        const int of = (n - 1) % n_tiles, done = (n - 1) / n_tiles;
        if (now && done % per_leaf == 0)
            for (int i = 0; i < PANELS; i++)
                for (int r = 0; r < ROWS; r++) leaf[of][i][r] = _mm512_setzero_ps();
        fn(now ? leaf[of] : NULL, now, next, x->low);
        if (now && (done % per_leaf == per_leaf - 1 || done == n_slots - 1)) {
            for (int i = 0; i < PANELS; i++) v_tree_push(*node[of][i], ROWS, leaves[of], leaf[of][i], ROWS);
            leaves[of]++;
        }
        now = next;
    }
    for (int j = 0; j < PANELS && p + j < p1; j++) {
        const int left = w->n - (p + j) * EK_PANEL;
        const __mmask16 mask = (__mmask16)(left >= EK_PANEL ? 0xffff : (1 << left) - 1);
        for (int i = 0; i < n_tiles; i++)
            for (int r = 0; r < ROWS; r++)
                _mm512_mask_storeu_ps(y + (tiles[i].row + r) * ldy + (p + j) * EK_PANEL, mask,
                                      v_tree_sum(*node[i][j], ROWS, leaves[i], r));
    }
}

/* At least MIN_ROWS rows; fns: the slots for w's A-group. The last tile ends with the last row. */
static void amx_run(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1,
                    unpack_fn *unpack, slot_fn *const (*fns)[2])
{
    row_tile tiles[TILES];
    configure(w->a_group);
    for (int r = r0; r < r1;) {
        int n_tiles = 0;
        for (; r < r1 && n_tiles < TILES; r += ROWS) find_rows(&tiles[n_tiles++], x, ek_min(r, r1 - ROWS));
        for (int p = p0; p < p1; p += PANELS)
            panels(w, x, tiles, n_tiles, y, ldy, p, p1, unpack, fns[w->biased][w->limbs - 1]);
    }
    _tile_release();
}

/* By A-group: Form Q has 64 and 32 inputs, PLANES 32 and 16. */
AMX_FNS(64)
AMX_FNS(32)
AMX_FNS(16)

static void run_q(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    amx_run(w, x, r0, r1, y, ldy, p0, p1, unpack_q, w->a_group == 32 ? slots_32 : slots_64);
}

/* The number of rows decides speed only: AVX-512 gives the same bits. */
void ek_linear_q4_amx(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    if (r1 - r0 < MIN_ROWS) ek_linear_q4_avx512(w, x, r0, r1, y, ldy, p0, p1);
    else run_q(w, x, r0, r1, y, ldy, p0, p1);
}

void ek_linear_q8_amx(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    if (r1 - r0 < MIN_ROWS) ek_linear_q8_avx512(w, x, r0, r1, y, ldy, p0, p1);
    else run_q(w, x, r0, r1, y, ldy, p0, p1);
}

void ek_linear_planes_amx(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    if (r1 - r0 < MIN_ROWS) ek_linear_planes_avx512(w, x, r0, r1, y, ldy, p0, p1);
    else amx_run(w, x, r0, r1, y, ldy, p0, p1, unpack_of(w), w->a_group == 16 ? slots_16 : slots_32);
}
