/* Attention in integers on AMX (contract: ops/attn/attn_int.h). A tile product is 16 rows (the high limbs of 8 queries
 * and their low limbs) by 64 dims or tokens of 16 keys or dims. Codes are bytes: 64 h + l for a query, a key and a
 * value of 12 bits, 128 h + l for a weight. i8 has TDPBSSD's order in pages. Codes of i12 are divided once for the
 * tiles that share a segment (ek_attn_segment.limbs): 9 vector operations per 64 codes, more than the product of one
 * tile.
 *
 * AVX-512 computes tiles of few queries, heads that are not whole blocks of 64 dims, and i12 for a single tile. */
#include "ops/x86/vec_avx512.h"

enum { QUERIES = 8, TILE_VECS = 16 };
#define FUSED 1

#include "ops/attn/attn_sched.h"
#include "ops/attn/x86/attn_decode_avx512.h"
#include "ops/attn/x86/attn_tile.h"

enum { TILE_ROWS = 16, TILE_BYTES = 1024, TILE_DEPTH = 64, SUMS = 4, QUERY_LOW = 6, KEY_LOW = 6, WEIGHT_LOW = 7 };
enum { MAX_BLOCKS = EK_MAX_HEAD_DIM / TILE_DEPTH };

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

static void configure(void)
{
    tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) c.row_bytes[i] = TILE_DEPTH, c.rows[i] = TILE_ROWS;
    _tile_loadconfig(&c);
}

/* The limbs of EK_TILE rows of codes, in blocks of 64: [block][limb][query][64]. For i8, fours stand in the order of
 * its bytes. */
typedef struct limb_tiles {
    _Alignas(64) int8_t at[MAX_BLOCKS][2][EK_TILE][TILE_DEPTH];
} limb_tiles;

static void split(limb_tiles *to, const int16_t *code, ptrdiff_t stride, int n, int low_bits, bool fours)
{
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15));
    const __m512i mask = _mm512_set1_epi16((short)((1 << low_bits) - 1));
    for (int i = 0; i < EK_TILE; i++)
        for (int j = 0; j < n; j += 32) {
            const __m512i c = _mm512_loadu_si512(code + i * stride + j);
            __m256i high = _mm512_cvtepi16_epi8(_mm512_sra_epi16(c, _mm_cvtsi32_si128(low_bits)));
            __m256i low = _mm512_cvtepi16_epi8(_mm512_and_si512(c, mask));
            if (fours) high = _mm256_shuffle_epi8(high, order), low = _mm256_shuffle_epi8(low, order);
            int8_t(*block)[EK_TILE][TILE_DEPTH] = to->at[j / TILE_DEPTH];
            _mm256_storeu_si256((__m256i *)(block[0][i] + j % TILE_DEPTH), high);
            _mm256_storeu_si256((__m256i *)(block[1][i] + j % TILE_DEPTH), low);
        }
}

/* sum[s] = the products of the blocks of `of` with the tiles at at[block] + off[s], whose rows are row bytes apart. A
 * block without an address is left out. Rows 0 to 7 of a sum belong to the high limbs. */
static void multiply(int32_t (*sum)[TILE_BYTES / 4], const limb_tiles *of, const uint8_t *const *at, int blocks,
                     const size_t off[SUMS], ptrdiff_t row)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int b = 0; b < blocks; b++) {
        if (!at[b]) continue;
        _tile_loadd(4, of->at[b], TILE_DEPTH);
        _tile_loadd(5, at[b] + off[0], row);
        _tile_loadd(6, at[b] + off[1], row);
        _tile_dpbssd(0, 4, 5);
        _tile_loadd(7, at[b] + off[2], row);
        _tile_dpbssd(1, 4, 6);
        _tile_loadd(5, at[b] + off[3], row);
        _tile_dpbssd(2, 4, 7);
        _tile_dpbssd(3, 4, 5);
    }
    _tile_stored(0, sum[0], 64);
    _tile_stored(1, sum[1], 64);
    _tile_stored(2, sum[2], 64);
    _tile_stored(3, sum[3], 64);
}

/* --- i12: a page's codes in limbs, each in i8's layout with fours in order */

/* A worker's copy of the last segment: its pages, then the limbs of the keys and values of each. */
typedef struct kept {
    const uint8_t *k[EK_SEGMENT_PAGES], *v[EK_SEGMENT_PAGES];
    _Alignas(64) uint8_t codes[];
} kept;
_Static_assert(offsetof(kept, codes) == EK_ATTN_SHARED_HEAD, "the pages, which are cleared, are the head");

/* Divides two rows of pairs into a row of fours per limb. */
static void take_apart(uint8_t *high, uint8_t *low, const uint8_t *codes, int fours, int lanes)
{
    const __m512i first = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, 2, -1, -1, 4, 6, -1, -1, 8, 10, -1, -1, 12, 14, -1, -1));
    const __m512i second = _mm512_broadcast_i32x4(
        _mm_setr_epi8(-1, -1, 0, 2, -1, -1, 4, 6, -1, -1, 8, 10, -1, -1, 12, 14));
    const __m512i mask = _mm512_set1_epi8((1 << KEY_LOW) - 1);
    const int32_t *pair = (const int32_t *)(const void *)codes;
    for (int f = 0; f < fours; f++, pair += 2 * lanes)
        for (int l = 0; l < lanes; l += 16, high += 64, low += 64) {
            const __m512i a = _mm512_loadu_si512(pair + l), b = _mm512_loadu_si512(pair + lanes + l);
            const __m512i bytes = _mm512_or_si512(_mm512_shuffle_epi8(a, first), _mm512_shuffle_epi8(b, second));
            _mm512_store_si512(low, _mm512_and_si512(bytes, mask));
            _mm512_store_si512(high, _mm512_or_si512(_mm512_shuffle_epi8(_mm512_srai_epi16(a, KEY_LOW), first),
                                                     _mm512_shuffle_epi8(_mm512_srai_epi16(b, KEY_LOW), second)));
        }
}

/* The limbs of page p: the high ones, then the low ones. */
static const uint8_t *limbs_of(const ek_attn_segment *segment, int p, bool values)
{
    kept *k = segment->limbs;
    const uint8_t *codes = values ? segment->v[p] : segment->k[p], **is = values ? &k->v[p] : &k->k[p];
    const size_t bytes = (size_t)segment->head_dim * EK_PAGE_TOKENS;
    uint8_t *to = k->codes + (size_t)(2 * p + (values ? 2 * EK_SEGMENT_PAGES : 0)) * bytes;
    if (!codes) return NULL;
    if (*is != codes) {
        if (values) take_apart(to, to + bytes, codes, EK_PAGE_TOKENS / 4, segment->head_dim);
        else take_apart(to, to + bytes, codes, segment->head_dim / 4, EK_PAGE_TOKENS);
    }
    *is = codes;
    return to;
}

static size_t amx_limb_bytes(int dim)
{
    return sizeof(kept) + (size_t)4 * EK_SEGMENT * (size_t)dim;
}

/* --- segments */

static bool by_tiles(const ek_kv_format f, const ek_attn_segment *segment)
{
    return segment->n_q > QUERIES / 2 && segment->head_dim % TILE_DEPTH == 0 && (f == EK_KV_I8 || segment->limbs);
}

INLINE vi sum_at(const int32_t *sum, int row)
{
    return vi_load(sum + 16 * row);
}

static void amx_scores(const ek_kv_format f, ek_attn_segment *segment)
{
    if (!by_tiles(f, segment)) {
        int_scores(f, segment);
        return;
    }
    const bool bytes = f == EK_KV_I8;
    const int dim = segment->head_dim, blocks = dim / TILE_DEPTH, together = bytes ? SUMS : SUMS / 2;
    const size_t limb = (size_t)dim * EK_PAGE_TOKENS, row = 4 * EK_PAGE_TOKENS;
    _Alignas(64) int32_t sum[SUMS][TILE_BYTES / 4];
    limb_tiles q;
    split(&q, segment->q_code, EK_CODE_STRIDE, dim, QUERY_LOW, bytes);
    configure();
    for (int p = 0; p < EK_SEGMENT_PAGES; p++) {
        const uint8_t *codes = bytes ? segment->k[p] : limbs_of(segment, p, false), *at[MAX_BLOCKS];
        for (int b = 0; b < blocks && codes; b++) at[b] = codes + (size_t)b * TILE_ROWS * row;
        for (int slot = 0; slot < EK_PAGE_TOKENS && codes; slot += 16 * together) {
            const size_t from = (size_t)(4 * slot), i12[SUMS] = {from, limb + from, from + 64, limb + from + 64};
            const size_t i8[SUMS] = {from, from + 64, from + 128, from + 192};
            multiply(sum, &q, at, blocks, bytes ? i8 : i12, (ptrdiff_t)row);
            for (int c = 0; c < together; c++) {
                const int key = slot + 16 * c;
                const vf scale = v_load(ek_kv_token_scale(f, segment->k[p], dim, key));
                for (int i = 0; i < QUERIES; i++) {
                    vi s;
                    if (bytes) {
                        s = vi_add(vi_shl(sum_at(sum[c], i), QUERY_LOW), sum_at(sum[c], 8 + i));
                    } else { /* hh, lh; hl, ll */
                        const vi mid = vi_add(sum_at(sum[2 * c], 8 + i), sum_at(sum[2 * c + 1], i));
                        s = vi_add(vi_shl(vi_add(vi_shl(sum_at(sum[2 * c], i), QUERY_LOW), mid), KEY_LOW),
                                   sum_at(sum[2 * c + 1], 8 + i));
                    }
                    v_store(segment->e + i * EK_SEGMENT + p * EK_PAGE_TOKENS + key,
                            v_mul(v_mul(vi_to_float(s), scale), v_set1(segment->q_scale[i])));
                }
            }
        }
    }
    _tile_release();
}

static void amx_values(const ek_kv_format f, ek_attn_segment *segment)
{
    if (!by_tiles(f, segment)) {
        int_values(f, segment);
        return;
    }
    const bool bytes = f == EK_KV_I8;
    const int dim = segment->head_dim, together = bytes ? SUMS : SUMS / 2;
    const size_t limb = (size_t)dim * EK_PAGE_TOKENS, row = 4 * (size_t)dim;
    const uint8_t *at[EK_SEGMENT_PAGES];
    _Alignas(64) int32_t sum[SUMS][TILE_BYTES / 4];
    weight_codes w;
    limb_tiles of;
    code_weights(segment, ek_kv_v_codes(f, dim), &w);
    split(&of, w.code[0], EK_SEGMENT, EK_SEGMENT, WEIGHT_LOW, bytes);
    for (int p = 0; p < EK_SEGMENT_PAGES; p++) at[p] = bytes ? segment->v[p] : limbs_of(segment, p, true);
    configure();
    for (int d = 0; d < dim; d += 16 * together) {
        const size_t from = (size_t)(4 * d), i12[SUMS] = {from, limb + from, from + 64, limb + from + 64};
        const size_t i8[SUMS] = {from, from + 64, from + 128, from + 192};
        multiply(sum, &of, at, EK_SEGMENT_PAGES, bytes ? i8 : i12, (ptrdiff_t)row);
        for (int c = 0; c < together; c++)
            for (int i = 0; i < segment->n_q; i++) {
                vf s;
                if (bytes) { /* below 2^31 */
                    s = vi_to_float(vi_add(vi_shl(sum_at(sum[c], i), WEIGHT_LOW), sum_at(sum[c], 8 + i)));
                } else { /* hh 2^13 + hl 2^7 + lh 2^6 + ll = 65536 H + L */
                    const vi high = sum_at(sum[2 * c], i);
                    const vi mid = vi_add(vi_shl(sum_at(sum[2 * c + 1], i), 1), sum_at(sum[2 * c], 8 + i));
                    const vi rest = vi_add(vi_add(vi_shl(mid, KEY_LOW), sum_at(sum[2 * c + 1], 8 + i)),
                                           vi_shl(vi_and(high, vi_set1(7)), KEY_LOW + WEIGHT_LOW));
                    s = v_fma(vi_to_float(vi_add(vi_sra(high, 3), vi_sra(rest, 16))), v_set1(65536),
                              vi_to_float(vi_and(rest, vi_set1(0xffff))));
                }
                v_store(segment->o + i * segment->ldo + d + 16 * c, v_mul(s, v_set1(w.unit[i])));
            }
    }
    _tile_release();
}

#define AMX_KERNELS(id)                                   \
    static void amx_scores_##id(ek_attn_segment *segment) \
    {                                                     \
        amx_scores(EK_KV_##id, segment);                  \
    }                                                     \
    static void amx_values_##id(ek_attn_segment *segment) \
    {                                                     \
        amx_values(EK_KV_##id, segment);                  \
    }
AMX_KERNELS(I8)
AMX_KERNELS(I12)

void ek_attn_table_amx(ek_attn_ops *ops)
{
    ops->scores[EK_KV_I8] = amx_scores_I8, ops->values[EK_KV_I8] = amx_values_I8;
    ops->scores[EK_KV_I12] = amx_scores_I12, ops->values[EK_KV_I12] = amx_values_I12;
    ops->encode = int_encode;
    ops->limb_bytes = amx_limb_bytes;
}
