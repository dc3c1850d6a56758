/* Form Q on AMX: one tile product is one A-group of 64 inputs, 16 rows and 16 outputs.
 *
 * The codes of some panels are unpacked to signed bytes, BLOCK inputs at a time, into the second-level cache (c itself,
 * so no offset has to be taken off; vector t of a group holds inputs 4 t .. 4 t + 3 of 16 outputs, which is the layout
 * TDPBSSD wants). Two tiles of rows stay in the first-level cache while the panels pass by. I is exact, and the float
 * part is the definition's chain, one vector lane per output. It bounds the kernel: 64 vector operations per product of
 * 16 cycles of the tile unit, so the products of the next groups are under way while it works.
 * Few rows and A-groups of 32 are AVX-512's: the bits are the same. */
#include <string.h>

#include "ops/x86/vec_avx512.h"
#include "ops/x86/linear_tile.h"
#include "ops/x86/linear_x86.h"
#include "ops/x86/tree_vec.h"

enum {
    ROWS = 16,
    FEW = 8, /* rows of a tile when there are no more */
    GROUP = 64,
    BLOCK = 512, /* inputs */
    GROUPS = BLOCK / GROUP,
    TILES = 8,   /* of rows, that share unpacked codes */
    PANELS = 12, /* that share the rows in the first-level cache */
    NODES = 512, /* of trees, at most: KiB of stack */
    MIN_ROWS = 8,
    SUMS = 4, /* tile registers 0 to 3: products under way */
    PALETTE = 1
};

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

/* Sums 0 to 3: n x 16 int32. Rows 4, 5: n x 64 bytes. Codes 6, 7. */
static void configure(int n)
{
    tile_config c = {.palette = PALETTE};
    for (int i = 0; i < 8; i++) c.row_bytes[i] = 64, c.rows[i] = i >= 6 ? 16 : (uint8_t)n;
    _tile_loadconfig(&c);
}

/* A BLOCK of 16 rows. */
typedef struct rows_block {
    const int8_t *q; /* row r at q + r * ld; its low limbs at + low */
    ptrdiff_t ld, low;
    _Alignas(64) ek_act_group group[ROWS][GROUPS];
    _Alignas(64) int8_t space[2][ROWS * BLOCK]; /* for rows of a view */
} rows_block;

/* A BLOCK of a panel. Scales and b' once per A-group. */
typedef struct codes_block {
    _Alignas(64) int8_t q[GROUPS][GROUP * EK_PANEL];
    float scale[GROUPS][EK_PANEL], centre[GROUPS][EK_PANEL];
} codes_block;

typedef struct sums {
    __m512 of[ROWS];
} sums;

INLINE __m512 scales(const uint8_t *at, ek_dtype t, int i)
{
    if (t == EK_F32) return _mm512_load_ps((const float *)(const void *)at + i * EK_PANEL);
    __m256i half = _mm256_load_si256((const __m256i *)(const void *)at + i);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* Unpacks inputs [0, n) from the group at `codes`, n a multiple of the weights' group. */
static void unpack(codes_block *to, const uint8_t *codes, const ek_linear *w, int n)
{
    const size_t group_bytes = ek_linear_group_bytes(w), code_bytes = ek_linear_code_bytes(w);
    const __m512i low = _mm512_set1_epi8(15), eight = _mm512_set1_epi8(8), sign = _mm512_set1_epi8(-128);
    const __m512 zero = _mm512_set1_ps((float)w->zero);
    int8_t *out = to->q[0];
    for (int k = 0, g = 0; k < n; k += w->group, codes += group_bytes) {
        _mm_prefetch((const char *)codes + 4 * group_bytes, _MM_HINT_T0);
        for (size_t i = 0; i < code_bytes; i += 64) {
            __m512i both = _mm512_load_si512(codes + i);
            _mm_prefetch((const char *)codes + 4 * group_bytes + i + 64, _MM_HINT_T0);
            if (w->form == EK_W_Q8) {
                _mm512_store_si512(out, _mm512_xor_si512(both, sign));
                out += 64;
                continue;
            }
            _mm512_store_si512(out, _mm512_sub_epi8(_mm512_and_si512(both, low), eight));
            _mm512_store_si512(out + 64, _mm512_sub_epi8(_mm512_and_si512(_mm512_srli_epi16(both, 4), low), eight));
            out += 128;
        }
        __m512 s = scales(codes + code_bytes, w->scale_dtype, 0), centre = zero;
        if (w->biased) centre = _mm512_fmadd_ps(zero, s, scales(codes + code_bytes, w->scale_dtype, 1));
        for (int part = 0; part < w->group; part += GROUP, g++) {
            _mm512_store_ps(to->scale[g], s);
            _mm512_store_ps(to->centre[g], centre);
        }
    }
}

/* Inputs [k, k + n) of rows [row, row + count); past the last row: that row again. */
static void take_rows(rows_block *to, const ek_linear *w, const ek_acts *x, int row, int count, int k, int n)
{
    const int8_t *record[ROWS];
    for (int r = 0; r < ROWS; r++) record[r] = ek_acts_record(x, row + (r < count ? r : count - 1));
    const size_t groups = (size_t)(n / GROUP) * sizeof(ek_act_group);
    const ptrdiff_t at = x->groups[w->limbs - 1] + k / GROUP * (ptrdiff_t)sizeof(ek_act_group);
    for (int r = 0; r < ROWS; r++) memcpy(to->group[r], record[r] + at, groups);
    to->q = record[0] + k, to->ld = x->ldq, to->low = x->low;
    if (!x->index && count == ROWS) return;
    to->q = to->space[0], to->ld = BLOCK, to->low = sizeof to->space[0];
    for (int limb = 0; limb < w->limbs; limb++)
        for (int r = 0; r < ROWS; r++) memcpy(to->space[limb] + r * BLOCK, record[r] + k + limb * x->low, (size_t)n);
}

/* Tile registers are named by constants. */
#define MULTIPLY(sum, rows, codes, x, w, g, at)    \
    do {                                           \
        _tile_loadd(codes, (w)->q[g], 64);         \
        _tile_loadd(rows, (x)->q + (at), (x)->ld); \
        _tile_zero(sum);                           \
        _tile_dpbssd(sum, rows, codes);            \
    } while (0)

/* The sums of `n` groups from g on: of one limb up to four, of two limbs up to two, high and low. */
INLINE void multiply(const rows_block *x, const codes_block *w, int g, int n, const int limbs)
{
    const ptrdiff_t at = (ptrdiff_t)g * GROUP;
    if (n > 0) MULTIPLY(0, 4, 6, x, w, g, at);
    if (limbs == 1) {
        if (n > 1) MULTIPLY(1, 5, 7, x, w, g + 1, at + GROUP);
        if (n > 2) MULTIPLY(2, 4, 6, x, w, g + 2, at + 2 * GROUP);
        if (n > 3) MULTIPLY(3, 5, 7, x, w, g + 3, at + 3 * GROUP);
    } else {
        if (n > 0) MULTIPLY(1, 5, 6, x, w, g, at + x->low);
        if (n > 1) MULTIPLY(2, 4, 7, x, w, g + 1, at + GROUP);
        if (n > 1) MULTIPLY(3, 5, 7, x, w, g + 1, at + GROUP + x->low);
    }
}

INLINE void store_sums(int32_t (*i)[ROWS * EK_PANEL], int n)
{
    if (n > 0) _tile_stored(0, i[0], 64);
    if (n > 1) _tile_stored(1, i[1], 64);
    if (n > 2) _tile_stored(2, i[2], 64);
    if (n > 3) _tile_stored(3, i[3], 64);
}

INLINE void add_group(__m512 *a, const rows_block *x, const codes_block *w, int g,
                      const int32_t (*sum)[ROWS * EK_PANEL], const int rows, const bool biased, const int limbs)
{
    const __m512 s = _mm512_load_ps(w->scale[g]), centre = _mm512_load_ps(w->centre[g]);
    UNROLL for (int r = 0; r < rows; r++)
    {
        const ek_act_group *of = &x->group[r][g];
        __m512i i = _mm512_load_si512(sum[0] + r * EK_PANEL);
        if (limbs == 2) i = _mm512_add_epi32(_mm512_slli_epi32(i, 8), _mm512_load_si512(sum[1] + r * EK_PANEL));
        __m512 v = _mm512_mul_ps(s, _mm512_cvtepi32_ps(i));
        if (biased) v = _mm512_fmadd_ps(centre, _mm512_set1_ps(of->sum), v);
        a[r] = _mm512_fmadd_ps(v, _mm512_set1_ps(of->sx), a[r]);
    }
}

/* Adds the groups of a BLOCK to the sums of one panel and up to 16 rows. */
INLINE void add_block(sums *to, const rows_block *x, const codes_block *w, int groups, const int rows,
                      const bool biased, const int limbs)
{
    _Alignas(64) int32_t i[SUMS][ROWS * EK_PANEL];
    const int per = SUMS / limbs;
    __m512 a[ROWS];
    UNROLL for (int r = 0; r < rows; r++) a[r] = to->of[r];
    int n = ek_min(per, groups);
    multiply(x, w, 0, n, limbs);
    store_sums(i, n * limbs);
    for (int g = 0; g < groups;) {
        const int next = ek_min(per, groups - g - n);
        multiply(x, w, g + n, next, limbs);
        for (int j = 0; j < n; j++)
            add_group(a, x, w, g + j, (const int32_t(*)[ROWS * EK_PANEL]) i + j * limbs, rows, biased, limbs);
        store_sums(i, next * limbs);
        g += n, n = next;
    }
    UNROLL for (int r = 0; r < rows; r++) to->of[r] = a[r];
}

typedef void add_fn(sums *to, const rows_block *x, const codes_block *w, int groups);

#define ADD(rows, biased, limbs)                                                                            \
    static __attribute__((noinline)) void add_##rows##_##biased##_##limbs(sums *to, const rows_block *x,    \
                                                                          const codes_block *w, int groups) \
    {                                                                                                       \
        add_block(to, x, w, groups, rows, biased, limbs);                                                   \
    }
ADD(8, 0, 1)
ADD(8, 0, 2)
ADD(8, 1, 1)
ADD(8, 1, 2)
ADD(16, 0, 1)
ADD(16, 0, 2)
ADD(16, 1, 1)
ADD(16, 1, 2)

static add_fn *const add_of[2][2][2] = {{{add_8_0_1, add_8_0_2}, {add_8_1_1, add_8_1_2}},
                                        {{add_16_0_1, add_16_0_2}, {add_16_1_1, add_16_1_2}}};

/* Rows [r0, r1), in tiles of 16, by panels [p0, p1). */
typedef struct pass {
    const ek_linear *w;
    const ek_acts *x;
    add_fn *add;
    int r0, r1, p0, p1, tiles, panels, levels;
} pass;

/* Adds BLOCK [k, k + n) of all inputs to leaf[tile * PANELS + panel]. */
static void add_all(const pass *s, sums *leaf, int k, int n)
{
    codes_block codes[PANELS];
    rows_block rows[2];
    const size_t from = (size_t)(k / s->w->group) * ek_linear_group_bytes(s->w);
    for (int p = 0; p < s->panels; p++)
        unpack(&codes[p], s->w->data + (size_t)(s->p0 + p) * s->w->panel_bytes + from, s->w, n);
    for (int t = 0; t < s->tiles; t += 2) {
        const int here = ek_min(2, s->tiles - t);
        for (int j = 0; j < here; j++) {
            const int row = s->r0 + (t + j) * ROWS;
            take_rows(&rows[j], s->w, s->x, row, ek_min(ROWS, s->r1 - row), k, n);
        }
        for (int p = 0; p < s->panels; p++)
            for (int j = 0; j < here; j++) s->add(&leaf[(t + j) * PANELS + p], &rows[j], &codes[p], n / GROUP);
    }
}

static void run_pass(const pass *s, float *y, ptrdiff_t ldy)
{
    sums leaf[TILES * PANELS], node[NODES];
    unsigned leaves = 0;
    for (int k0 = 0; k0 < s->w->k; k0 += EK_KBLOCK_Q, leaves++) {
        memset(leaf, 0, sizeof *leaf * (size_t)(s->tiles * PANELS));
        const int end = ek_min(k0 + EK_KBLOCK_Q, s->w->k);
        for (int k = k0; k < end; k += BLOCK) add_all(s, leaf, k, ek_min(BLOCK, end - k));
        for (int t = 0; t < s->tiles; t++)
            for (int p = 0; p < s->panels; p++)
                v_tree_push(node[(t * s->panels + p) * s->levels].of, ROWS, leaves, leaf[t * PANELS + p].of, ROWS);
    }
    for (int p = 0; p < s->panels; p++) {
        const int left = s->w->n - (s->p0 + p) * EK_PANEL;
        const __mmask16 mask = (__mmask16)(left >= EK_PANEL ? 0xffff : (1 << left) - 1);
        for (int r = s->r0; r < s->r1; r++) {
            const int t = (r - s->r0) / ROWS;
            _mm512_mask_storeu_ps(
                y + r * ldy + (s->p0 + p) * EK_PANEL, mask,
                v_tree_sum(node[(t * s->panels + p) * s->levels].of, ROWS, leaves, (r - s->r0) % ROWS));
        }
    }
}

static void run(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    const bool few = r1 - r0 <= FEW;
    pass s = {.w = w, .x = x, .add = add_of[!few][w->biased][w->limbs - 1], .levels = 1};
    for (int blocks = (w->k - 1) / EK_KBLOCK_Q; blocks > 0; blocks /= 2) s.levels++;
    configure(few ? FEW : ROWS);
    for (s.r0 = r0; s.r0 < r1; s.r0 = s.r1) {
        s.r1 = ek_min(s.r0 + TILES * ROWS, r1);
        s.tiles = (s.r1 - s.r0 + ROWS - 1) / ROWS;
        const int most = ek_min(PANELS, NODES / (s.tiles * s.levels));
        for (s.p0 = p0; s.p0 < p1; s.p0 = s.p1) {
            s.p1 = ek_min(s.p0 + most, p1);
            s.panels = s.p1 - s.p0;
            run_pass(&s, y, ldy);
        }
    }
    _tile_release();
}

/* Speed only: AVX-512 gives the same bits. */
static bool worth_it(const ek_linear *w, int rows)
{
    return w->a_group == GROUP && rows >= MIN_ROWS;
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
