/* Form PLANES in vectors of 8 outputs, for the instruction sets that have 256 bits. A file of one of them includes this
 * after linear_q_256.h and a
 *
 *   TILE                              rows that read packed codes, at most
 *   planes_table, planes_table_of()   a codebook as planes_dot() wants it
 *   planes_dot()                      adds the exact products of an A-group from packed codes to 16 outputs by n rows
 *
 * Few rows put codes together from their planes as they go. More share codes that are decoded in the first-level cache,
 * UNIT inputs at a time, and then are like those of linear_q_256.h. */
#ifndef EK_OPS_X86_LINEAR_P_256_H
#define EK_OPS_X86_LINEAR_P_256_H

#include "ops/x86/linear_q_256.h"
#include "ops/x86/planes_vec.h"

/* ------------------------------------------------------------------ packed codes */

INLINE void planes_tile(const ek_linear *w, const ek_acts *x, int row0, float *y, ptrdiff_t ldy, const uint8_t *block,
                        int last, const int n, const int bits, const bool book, const int a_group, const int limbs)
{
    const int8_t *row[TILE];
    UNROLL for (int r = 0; r < n; r++) row[r] = ek_acts_record(x, row0 + r);
    const ptrdiff_t low = x->low;
    ptrdiff_t k = 0, at = x->groups[limbs - 1];
    const planes_table table = planes_table_of(w->book);
    const size_t scale_bytes = ek_planes_scale_bytes(w), block_bytes = ek_planes_block_bytes(w);
    const int size = w->block, per_unit = EK_UNIT / a_group;
    const bool biased = w->biased;
    const __m256 zero = _mm256_set1_ps((float)w->zero);
    const float *factors = (const float *)(const void *)(block + w->panel_bytes - EK_PANEL * sizeof(float));

    __m256 node[2][EK_LINEAR_LEVELS][TILE];
    unsigned leaves = 0;
    for (; k < w->k; leaves++) {
        __m256 sum[2][TILE];
        UNROLL for (int r = 0; r < n; r++) sum[0][r] = sum[1][r] = _mm256_setzero_ps();
        for (ptrdiff_t end = k + EK_KBLOCK_Q < w->k ? k + EK_KBLOCK_Q : w->k; k < end; block += block_bytes) {
            const p_block scales_of[2] = {p_open(w->scale, w->biased, block, factors, 0),
                                          p_open(w->scale, w->biased, block, factors, HALF)};
            const uint8_t *at_unit = block + scale_bytes;
            for (int g = 0; g < size / a_group; at_unit += EK_UNIT * 2 * bits)
                UNROLL for (int part = 0; part < per_unit; part++, g++)
                {
                    const int q = part * a_group / 4;
                    __m256i acc[2][TILE];
                    UNROLL for (int r = 0; r < n; r++) acc[0][r] = acc[1][r] = _mm256_setzero_si256();
                    if (limbs == 2) {
                        planes_dot(acc, at_unit, q, row, k, &table, n, bits, book, a_group);
                        UNROLL for (int h = 0; h < 2; h++) UNROLL for (int r = 0; r < n; r++)
                            acc[h][r] = _mm256_slli_epi32(acc[h][r], 8);
                    }
                    planes_dot(acc, at_unit, q, row, k + (limbs == 2 ? low : 0), &table, n, bits, book, a_group);
                    UNROLL for (int h = 0; h < 2; h++)
                    {
                        __m256 s, centre;
                        p_scales(w->scale, w->biased, &scales_of[h], g, h * HALF, zero, &s, &centre);
                        UNROLL for (int r = 0; r < n; r++)
                        {
                            const ek_act_group *of = group_at(row[r], at);
                            __m256i i = _mm256_add_epi32(acc[h][r], _mm256_set1_epi32(p_start(of->start, bits, book)));
                            __m256 t = _mm256_mul_ps(s, _mm256_cvtepi32_ps(i));
                            if (biased) t = _mm256_fmadd_ps(centre, _mm256_set1_ps(of->sum), t);
                            sum[h][r] = _mm256_fmadd_ps(t, _mm256_set1_ps(of->sx), sum[h][r]);
                        }
                    }
                    k += a_group, at += (ptrdiff_t)sizeof(ek_act_group);
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

/* Of bytes that decode_planes makes: c plus this. */
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

/* Codes of `bits` bits, or of a codebook, in A-groups of a, once decoded of a kind. */
typedef struct planes_kind {
    planes_fn *packed[2][TILE];
    decode_fn *decode;
    tile_fn *const (*decoded)[2][TILE_ROWS];
    int packed_rows[2]; /* by limbs: at most that many do not decode codes first */
} planes_kind;

/* Its layout never settles on these. */
/* clang-format off */
#define PLANES_FN(b, k, a, l, n)                                                                       \
    static __attribute__((noinline)) void planes_##b##_##k##_##a##_##l##_##n(                          \
        const ek_linear *w, const ek_acts *x, int row, float *y, ptrdiff_t ldy, const uint8_t *panel,  \
        int last)                                                                                      \
    {                                                                                                  \
        planes_tile(w, x, row, y, ldy, panel, last, n, b, k, a, l);                                    \
    }
#define PLANES_FNS(b, k, a)                                                                            \
    PLANES_FN(b, k, a, 1, 1) PLANES_FN(b, k, a, 1, 2) PLANES_FN(b, k, a, 1, 3)                         \
    PLANES_FN(b, k, a, 2, 1) PLANES_FN(b, k, a, 2, 2)
#define PLANES_KIND(name, kind, b, k, a, r1, r2)                                                        \
    static void decode_##name(uint8_t *codes, float *scale, float *centre, const ek_linear *w,         \
                              const unit *u)                                                           \
    {                                                                                                  \
        decode_planes(codes, scale, centre, w, u, b, k, a, kind);                                      \
    }                                                                                                  \
    static const planes_kind name = {                                                                  \
        {{planes_##b##_##k##_##a##_1_1, planes_##b##_##k##_##a##_1_2, planes_##b##_##k##_##a##_1_3},   \
         {planes_##b##_##k##_##a##_2_1, planes_##b##_##k##_##a##_2_2}},                                \
        decode_##name, tiles_##kind, {r1, r2}};

PLANES_FNS(2, 0, 16)
PLANES_FNS(3, 0, 16)
PLANES_FNS(6, 0, 16)
PLANES_FNS(4, 1, 16)
PLANES_FNS(4, 0, 32)
PLANES_FNS(5, 0, 32)
PLANES_FNS(8, 0, 32)
PLANES_FNS(4, 1, 32)
PLANES_KIND(bits2, CODES_4, 2, 0, 16, 3, 2)
PLANES_KIND(bits3, CODES_4, 3, 0, 16, 3, 2)
PLANES_KIND(bits6, CODES_6, 6, 0, 16, 3, 2)
PLANES_KIND(book_of_16, CODES_5, 4, 1, 16, 1, 1)
PLANES_KIND(bits4, CODES_4, 4, 0, 32, 3, 2)
PLANES_KIND(bits5, CODES_5, 5, 0, 32, 3, 2)
PLANES_KIND(bits8, CODES_8, 8, 0, 32, 3, 1)
PLANES_KIND(large_book, CODES_8, 4, 1, 32, 2, 1)
PLANES_KIND(book_of_32, CODES_5, 4, 1, 32, 1, 1)
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
    switch (w->bits) {
    case 2: return &bits2;
    case 3: return &bits3;
    case 4: return &bits4;
    case 5: return &bits5;
    case 6: return &bits6;
    default: return &bits8;
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
                kind->packed[w->limbs - 1][end - r - 1](w, x, r, y + p * EK_PANEL, ldy,
                                                        w->data + (size_t)p * w->panel_bytes,
                                                        ek_min(EK_PANEL, w->n - p * EK_PANEL));
            continue;
        }
        end = r + ek_tile_rows(r1 - r, TILES * TILE_ROWS);
        const tiling t = split_rows(r, end);
        for (int p = p0; p < p1; p++) panel(w, x, &t, y, ldy, p, &f);
    }
}

#endif
