/* Form PLANES in vectors of 8 outputs, for the instruction sets that have 256 bits. A file of one of them includes this
 * after linear_q_256.h and a
 *
 *   TILE                              rows of a tile of packed codes, at most
 *   PACKED[_BIASED][_2]               so many rows read packed codes, of weights without and with biases, of one limb
 *                                     and of two; not of codebooks and 8 bits
 *   planes_table, planes_table_of()   a codebook as planes_products() wants it
 *   planes_products()                 the exact I of an A-group from packed codes: 16 outputs by n rows; from->codes
 *                                     is its unit, whose quad `first` it begins with
 *
 * Few rows put codes together from their planes as they go. More share codes that are decoded in the first-level cache,
 * UNIT inputs at a time, and then are like those of linear_q_256.h. */
#ifndef EK_OPS_X86_LINEAR_P_256_H
#define EK_OPS_X86_LINEAR_P_256_H

#include "ops/inline.h"
#include "ops/linear/x86/linear_q_256.h"
#include "ops/linear/x86/planes/planes_vec.h"

enum { NEAR = 2048, FAR = 16384 }; /* bytes ahead: into the first-level cache, into the second */

/* ------------------------------------------------------------------ packed codes */

/* Prefetches one line: all lines of a block at once would fill the buffers that loads need. */
INLINE void fetch_line(const uint8_t *at)
{
    fetch(at, FAR);
    _mm_prefetch((const char *)at + NEAR, _MM_HINT_T0);
}

INLINE void planes_tile(const ek_linear *w, const ek_acts *x, int row0, float *y, ptrdiff_t ldy, const uint8_t *block,
                        int last, const int n, const int bits, const bool book, const int a_group, const bool plain,
                        const int limbs)
{
    /* A constant rule where possible: a choice in the loop costs registers and jumps. */
    const ek_wscale rule = plain                    ? EK_SCALE_PLAIN
                           : book && a_group == 16  ? EK_SCALE_E4M3
                           : bits == 3 || bits == 6 ? EK_SCALE_I8
                           : bits == 2              ? EK_SCALE_U4
                                                    : w->scale;
    const bool biased = !plain && !book && bits != 3 && bits != 6 && w->biased;
    const int size = plain ? EK_UNIT : bits == 2 || bits == 3 || bits == 6 ? 256 : w->block;
    const int8_t *row[TILE];
    UNROLL for (int r = 0; r < n; r++) row[r] = ek_acts_record(x, row0 + r);
    source from = {NULL, 0, x->low, x->groups[0], x->groups[limbs - 1], 0};
    const planes_table table = planes_table_of(w->book);
    const size_t scale_bytes = ek_planes_scale_bytes(w), block_bytes = ek_planes_block_bytes(w);
    const int per_unit = EK_UNIT / a_group;
    const __m256 zero = _mm256_set1_ps((float)w->zero);
    const float *factors = (const float *)(const void *)(block + w->panel_bytes - EK_PANEL * sizeof(float));

    __m256 node[2][EK_LINEAR_LEVELS][TILE];
    unsigned leaves = 0;
    for (; from.k < w->k; leaves++) {
        __m256 sum[2][TILE];
        UNROLL for (int r = 0; r < n; r++) sum[0][r] = sum[1][r] = _mm256_setzero_ps();
        const ptrdiff_t end = from.k + EK_KBLOCK_Q < w->k ? from.k + EK_KBLOCK_Q : w->k;
        for (; from.k < end; block += block_bytes) {
            const p_block scales_of[2] = {p_open(rule, biased, block, factors, 0),
                                          p_open(rule, biased, block, factors, HALF)};
            for (size_t i = 0; i < scale_bytes; i += 64) fetch_line(block + i);
            from.codes = block + scale_bytes;
            for (int g = 0; g < size / a_group; from.codes += EK_UNIT * 2 * bits)
                UNROLL for (int part = 0; part < per_unit; part++, g++)
                {
                    const int first = part * a_group / 4;
                    UNROLL for (int line = first * bits / 8; line < (first + a_group / 4) * bits / 8; line++)
                        fetch_line(from.codes + 64 * line);
                    __m256i i[2][TILE];
                    planes_products(i, &from, row, first, &table, n, bits, book, a_group, limbs);
                    UNROLL for (int h = 0; h < 2; h++)
                    {
                        __m256 s, centre;
                        p_scales(rule, biased, &scales_of[h], g, h * HALF, zero, &s, &centre);
                        UNROLL for (int r = 0; r < n; r++)
                        {
                            const ek_act_group *of = group_at(row[r], from.of);
                            __m256 t = _mm256_mul_ps(s, _mm256_cvtepi32_ps(i[h][r]));
                            if (biased) t = _mm256_fmadd_ps(centre, _mm256_set1_ps(of->sum), t);
                            sum[h][r] = _mm256_fmadd_ps(t, _mm256_set1_ps(of->sx), sum[h][r]);
                        }
                    }
                    from.k += a_group;
                    from.one += (ptrdiff_t)sizeof(ek_act_group), from.of += (ptrdiff_t)sizeof(ek_act_group);
                }
        }
        for (int h = 0; h < 2; h++) v_tree_push(*node[h], TILE, leaves, sum[h], n);
    }
    UNROLL for (int r = 0; r < n; r++) ek_store_outputs(
        y + (row0 + r) * ldy, last, v_tree_sum(*node[0], TILE, leaves, r), v_tree_sum(*node[1], TILE, leaves, r));
}

typedef void planes_fn(const ek_linear *w, const ek_acts *x, int row, float *y, ptrdiff_t ldy, const uint8_t *panel,
                       int last);

/* ------------------------------------------------------------------ decoded codes */

DECODED_TILES_OF(CODES_4)
DECODED_TILES_OF(CODES_8)
DECODED_TILES_OF(CODES_5)
DECODED_TILES_OF(CODES_6)

/* The offset of bytes made by decode_planes: they are c plus this. */
INLINE int codes_offset(const int kind)
{
    return kind == CODES_4 ? 8 : kind == CODES_5 ? 16 : kind == CODES_6 ? 32 : 128;
}

INLINE void decode_planes(uint8_t *codes, float *scale, float *centre, const ek_linear *w, const unit *u,
                          const int bits, const bool book, const int group, const int kind)
{
    const size_t scale_bytes = ek_planes_scale_bytes(w), block_bytes = ek_planes_block_bytes(w);
    const int shift = codes_offset(kind) - (book ? 128 : 1 << (bits - 1));
    const __m256i table = p_table(w->book), move = _mm256_set1_epi8((char)shift);
    const __m256 zero = _mm256_set1_ps((float)w->zero);
    const float *factors = (const float *)(const void *)(u->panel + w->panel_bytes - EK_PANEL * sizeof(float));
    const uint8_t *block = u->packed;
    const ptrdiff_t quad_bytes = code_stride(4, kind, true);
    for (int k = 0; k < u->n; k += w->block, block += block_bytes) {
        const p_block scales_of[2] = {p_open(w->scale, w->biased, block, factors, 0),
                                      p_open(w->scale, w->biased, block, factors, HALF)};
        const uint8_t *at = block + scale_bytes;
        for (int i = 0; i < w->block; i += EK_UNIT, at += EK_UNIT * 2 * bits) {
            UNROLL for (int t = 0; t < EK_UNIT / 4; t++, codes += quad_bytes) UNROLL for (int h = 0; h < 2; h++)
            {
                __m256i c = p_codes(at + 32 * h, t, bits, book, table);
                if (shift) c = _mm256_add_epi8(c, move);
                if (kind == CODES_8) decode_q8(codes + quad_bytes / 2 * h, c);
                else _mm256_store_si256((__m256i *)(void *)(codes + 32 * h), c);
            }
            for (int g = i / group; g < (i + EK_UNIT) / group; g++, scale += EK_PANEL, centre += EK_PANEL)
                UNROLL for (int h = 0; h < 2; h++)
                {
                    __m256 s, b;
                    p_scales(w->scale, w->biased, &scales_of[h], g, h * HALF, zero, &s, &b);
                    _mm256_store_ps(scale + h * HALF, s);
                    _mm256_store_ps(centre + h * HALF, b);
                }
        }
    }
}

/* ------------------------------------------------------------------ kinds of weights */

enum { TILE_2 = 2 }; /* TILE with two limbs */

/* Codes of `bits` bits, or of a codebook, in A-groups of `a`, and the kind of their decoded codes. */
typedef struct planes_kind {
    planes_fn *packed[2][TILE];
    decode_fn *decode;
    tile_fn *const (*decoded)[2][TILE_ROWS];
    int packed_rows[2]; /* by limbs: maximum number of rows that read packed codes */
} planes_kind;

/* clang-format changes these lines at every run. */
/* clang-format off */
#define PLANES_FN(name, b, k, a, plain, l, n)                                                          \
    static __attribute__((noinline)) void planes_##name##_##l##_##n(                                   \
        const ek_linear *w, const ek_acts *x, int row, float *y, ptrdiff_t ldy, const uint8_t *panel,  \
        int last)                                                                                      \
    {                                                                                                  \
        planes_tile(w, x, row, y, ldy, panel, last, n, b, k, a, plain, l);                             \
    }
/* Functions for codes of b bits (k: of a codebook) in A-groups of a; plain: with a scale per group and no bias. kind:
 * the form of decoded codes. r1, r2: packed_rows. */
#define PLANES_KIND(name, kind, b, k, a, plain, r1, r2)                                                \
    PLANES_FN(name, b, k, a, plain, 1, 1) PLANES_FN(name, b, k, a, plain, 1, 2)                        \
    PLANES_FN(name, b, k, a, plain, 1, 3)                                                              \
    PLANES_FN(name, b, k, a, plain, 2, 1) PLANES_FN(name, b, k, a, plain, 2, 2)                        \
    static void decode_##name(uint8_t *codes, float *scale, float *centre, const ek_linear *w,         \
                              const unit *u)                                                           \
    {                                                                                                  \
        decode_planes(codes, scale, centre, w, u, b, k, a, kind);                                      \
    }                                                                                                  \
    static const planes_kind name = {                                                                  \
        {{planes_##name##_1_1, planes_##name##_1_2, planes_##name##_1_3},                              \
         {planes_##name##_2_1, planes_##name##_2_2}},                                                  \
        decode_##name, tiles_##kind, {r1, r2}};

PLANES_KIND(bits2, CODES_4, 2, 0, 16, 0, PACKED_BIASED, PACKED_BIASED_2)
PLANES_KIND(bits3, CODES_4, 3, 0, 16, 0, PACKED, PACKED_2)
PLANES_KIND(bits6, CODES_6, 6, 0, 16, 0, PACKED, PACKED_2)
PLANES_KIND(book_of_16, CODES_5, 4, 1, 16, 0, 1, 1)
PLANES_KIND(bits4, CODES_4, 4, 0, 32, 0, PACKED_BIASED, PACKED_BIASED_2)
PLANES_KIND(plain4, CODES_4, 4, 0, 32, 1, PACKED, PACKED_2)
PLANES_KIND(bits5, CODES_5, 5, 0, 32, 0, PACKED_BIASED, PACKED_BIASED_2)
PLANES_KIND(plain5, CODES_5, 5, 0, 32, 1, PACKED, PACKED_2)
PLANES_KIND(plain8, CODES_8, 8, 0, 32, 1, 3, 1)
PLANES_KIND(large_book, CODES_8, 4, 1, 32, 0, 2, 1)
PLANES_KIND(book_of_32, CODES_5, 4, 1, 32, 0, 1, 1)
/* clang-format on */

/* Whether c + 16 is a code of 5 bits: of E2M1, not of IQ4_NL. */
static bool is_small(const int8_t *book)
{
    bool small = true;
    for (int i = 0; i < 16; i++) small &= book[i] >= -16 && book[i] < 16;
    return small;
}

static const planes_kind *planes_kind_of(const ek_linear *w)
{
    if (w->book) return !is_small(w->book) ? &large_book : w->a_group == 16 ? &book_of_16 : &book_of_32;
    const bool plain = w->scale == EK_SCALE_PLAIN && !w->biased;
    switch (w->bits) {
    case 2: return &bits2;
    case 3: return &bits3;
    case 4: return plain ? &plain4 : &bits4;
    case 5: return plain ? &plain5 : &bits5;
    case 6: return &bits6;
    default: return &plain8;
    }
}

static void run_planes(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    const planes_kind *kind = planes_kind_of(w);
    const size_t block_bytes = ek_planes_block_bytes(w);
    const reader f = {.tiles = kind->decoded[w->limbs - 1],
                      .decode = kind->decode,
                      .decode_tiles = 1,
                      .inputs = w->block,
                      .block_bytes = block_bytes,
                      .lines = block_bytes / (size_t)(w->block / w->group)};
    for (int r = r0, end; r < r1; r = end) {
        if (r1 - r <= kind->packed_rows[w->limbs - 1]) {
            end = r1;
            for (int p = p0; p < p1; p++)
                for (int i = r, n; i < end; i += n) { /* the second tile and later ones read from the caches */
                    n = ek_tile_rows(end - i, w->limbs == 1 ? TILE : TILE_2);
                    kind->packed[w->limbs - 1][n - 1](w, x, i, y + p * EK_PANEL, ldy,
                                                      w->data + (size_t)p * w->panel_bytes,
                                                      ek_min(EK_PANEL, w->n - p * EK_PANEL));
                }
            continue;
        }
        end = r + ek_tile_rows(r1 - r, TILES * TILE_ROWS);
        const tiling t = split_rows(r, end);
        for (int p = p0; p < p1; p++) panel(w, x, &t, y, ldy, p, &f);
    }
}

#endif
