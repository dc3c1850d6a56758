/* Four groups of 32 or 64 at a time: their maxima and sums share the steps across lanes and the divisions. The rest of
 * a row, groups of 16 and groups with a NaN or infinity are quantised one by one. */
#include "ops/linear/x86/linear_tile.h"

enum { GROUPS = 4, MAX_VECS = 4 };

/* 16 elements from x + i of a row's group that ends at n; absent ones are 0. */
static inline __m512 load(const float *x, int i, int n)
{
    int left = n - i;
    if (left >= 16) return _mm512_loadu_ps(x + i);
    return left <= 0 ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps((__mmask16)((1 << left) - 1), x + i);
}

static inline __m128i quarters(__m512i v)
{
    __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

static void quantize_group(const float *x, int n, int a_group, int8_t *h, int8_t *l, ek_act_group *one,
                           ek_act_group *two)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i top16 = _mm512_setzero_si512(), sum_h = top16, sum_l = top16;
    for (int i = 0; i < a_group; i += 16)
        top16 = _mm512_max_epu32(top16, _mm512_and_si512(_mm512_castps_si512(load(x, i, n)), magnitude));
    uint32_t top = _mm512_reduce_max_epu32(top16);
    float amax = ek_bits_f32(top), inv = 0, sx = 0;
    if (top >= 0x7f800000u) sx = ek_bits_f32(0x7fc00000u);
    else if (amax >= 0x1p-100f) sx = amax / 32512, inv = 32512 / amax;
    for (int i = 0; i < a_group; i += 16) {
        __m512i code = _mm512_setzero_si512();
        if (inv > 0) code = _mm512_cvtps_epi32(_mm512_mul_ps(load(x, i, n), _mm512_set1_ps(inv)));
        __m512i high = _mm512_srai_epi32(_mm512_add_epi32(code, _mm512_set1_epi32(128)), 8);
        sum_h = _mm512_add_epi32(sum_h, high);
        _mm_storeu_si128((__m128i *)(h + i), _mm512_cvtepi32_epi8(high));
        if (!l) continue;
        code = _mm512_sub_epi32(code, _mm512_slli_epi32(high, 8));
        sum_l = _mm512_add_epi32(sum_l, code);
        _mm_storeu_si128((__m128i *)(l + i), _mm512_cvtepi32_epi8(code));
    }
    put_group(one, two, sx, quarters(sum_h), quarters(sum_l));
}

/* Folds v[g], a vector per group, into one vector; its four lanes g hold group g. */
#define FOLD(op, v)                                                                               \
    ({                                                                                            \
        const __m512i first = op(_mm512_shuffle_i32x4((v)[0], (v)[1], 0x44),                      \
                                 _mm512_shuffle_i32x4((v)[0], (v)[1], 0xee)),                     \
                      second = op(_mm512_shuffle_i32x4((v)[2], (v)[3], 0x44),                     \
                                  _mm512_shuffle_i32x4((v)[2], (v)[3], 0xee));                    \
        op(_mm512_shuffle_i32x4(first, second, 0x88), _mm512_shuffle_i32x4(first, second, 0xdd)); \
    })

/* Lane g: the sum of the four lanes of group g. */
INLINE __m128i sum_lanes(__m512i v)
{
    v = _mm512_add_epi32(v, _mm512_shuffle_epi32(v, 0x4e));
    v = _mm512_add_epi32(v, _mm512_shuffle_epi32(v, 0xb1));
    return _mm512_castsi512_si128(
        _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), v));
}

INLINE __m128i max_lanes(__m512i v)
{
    v = _mm512_max_epu32(v, _mm512_shuffle_epi32(v, 0x4e));
    v = _mm512_max_epu32(v, _mm512_shuffle_epi32(v, 0xb1));
    return _mm512_castsi512_si128(
        _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), v));
}

/* The lanes of four vectors as bytes, in order. */
INLINE __m512i pack_bytes(const __m512i *v)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i words = _mm512_packs_epi32(v[0], v[1]), rest = _mm512_packs_epi32(v[2], v[3]);
    return _mm512_permutexvar_epi32(order, _mm512_packs_epi16(words, rest));
}

/* For four groups with bytes b[]: the sums by group of the bytes with a one in `which`. */
INLINE __m128i sum_bytes(const __m512i *b, int which, const int vecs)
{
    __m512i s[GROUPS];
    const __m512i ones = _mm512_set1_epi32(which);
    UNROLL for (int i = 0; i < vecs; i++) s[i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), ones, b[i]);
    if (vecs == 4) return sum_lanes(FOLD(_mm512_add_epi32, s));
    return sum_lanes(_mm512_add_epi32(_mm512_shuffle_i32x4(s[0], s[1], 0x88), _mm512_shuffle_i32x4(s[0], s[1], 0xdd)));
}

/* lower: EK_ACT_LOWER of the low limb; its sums then give `starts`. */
INLINE void put_groups(ek_act_group *to, __m128 sx, __m128i sum, __m128i all, __m128i first, int lower)
{
    const __m128i less = _mm_set1_epi32(lower), second = _mm_sub_epi32(all, first), zero = _mm_setzero_si128();
    const __m128i a = _mm_sub_epi32(zero, _mm_add_epi32(_mm_slli_epi32(first, 3), less));
    const __m128i b = _mm_sub_epi32(zero, _mm_add_epi32(_mm_slli_epi32(second, 3), less));
    __m128 row[4] = {sx, _mm_cvtepi32_ps(sum), _mm_castsi128_ps(_mm_sub_epi32(zero, _mm_slli_epi32(sum, 3))),
                     _mm_castsi128_ps(_mm_blend_epi16(a, _mm_slli_epi32(b, 16), 0xaa))};
    _MM_TRANSPOSE4_PS(row[0], row[1], row[2], row[3]);
    for (int g = 0; g < GROUPS; g++) _mm_storeu_ps((float *)&to[g], row[g]);
}

/* vecs: vectors per group. False, with nothing written, if a group has no scale. */
INLINE bool quantize_four(const float *x, int8_t *h, int8_t *l, ek_act_group *one, ek_act_group *two, const int vecs,
                          const bool both)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i top[GROUPS];
    UNROLL for (int g = 0; g < GROUPS; g++)
    {
        top[g] = _mm512_and_si512(_mm512_loadu_si512(x + 16 * vecs * g), magnitude);
        UNROLL for (int i = 1; i < vecs; i++)
            top[g] = _mm512_max_epu32(top[g], _mm512_and_si512(_mm512_loadu_si512(x + 16 * (vecs * g + i)), magnitude));
    }
    const __m128i max = max_lanes(FOLD(_mm512_max_epu32, top));
    const __m128i low = _mm_set1_epi32(0x0d800000 /* 2^-100 */), high = _mm_set1_epi32(0x7f7fffff);
    if (_mm_cmplt_epu32_mask(max, low) | _mm_cmpgt_epu32_mask(max, high)) return false;
    const __m128 amax = _mm_castsi128_ps(max), full = _mm_set1_ps(32512), sx = _mm_div_ps(amax, full);
    float inv[GROUPS];
    _mm_storeu_ps(inv, _mm_div_ps(full, amax));

    __m512i bytes_h[GROUPS], bytes_l[GROUPS]; /* 64 each: those of a group, or of two */
    UNROLL for (int b = 0; b < vecs; b++)
    {
        __m512i hi[MAX_VECS], lo[MAX_VECS];
        UNROLL for (int i = 0; i < 4; i++)
        {
            const int at = 4 * b + i;
            const __m512 t = _mm512_mul_ps(_mm512_loadu_ps(x + 16 * at), _mm512_set1_ps(inv[at / vecs]));
            const __m512i code = _mm512_cvtps_epi32(t);
            hi[i] = _mm512_srai_epi32(_mm512_add_epi32(code, _mm512_set1_epi32(128)), 8);
            if (both) lo[i] = _mm512_sub_epi32(code, _mm512_slli_epi32(hi[i], 8));
        }
        bytes_h[b] = pack_bytes(hi);
        _mm512_storeu_si512(h + 64 * b, bytes_h[b]);
        if (!both) continue;
        bytes_l[b] = pack_bytes(lo);
        _mm512_storeu_si512(l + 64 * b, bytes_l[b]);
    }
    const __m128i sum_h = sum_bytes(bytes_h, 0x01010101, vecs), first_h = sum_bytes(bytes_h, 0x0101, vecs);
    put_groups(one, _mm_mul_ps(sx, _mm_set1_ps(256)), sum_h, sum_h, first_h, 0);
    if (!both) return true;
    const __m128i sum_l = sum_bytes(bytes_l, 0x01010101, vecs), first_l = sum_bytes(bytes_l, 0x0101, vecs);
    put_groups(two, sx, _mm_add_epi32(_mm_slli_epi32(sum_h, 8), sum_l), sum_l, first_l, EK_ACT_LOWER);
    return true;
}

void ek_quantize_row_avx512(const float *x, int k, int a_group, int8_t *h, int8_t *l, ek_act_group *one,
                            ek_act_group *two)
{
    for (int g = 0; g * a_group < k;) {
        const int at = g * a_group;
        int8_t *low = l ? l + at : NULL;
        ek_act_group *groups = l ? two + g : NULL;
        bool done = false;
        if (k - at >= GROUPS * a_group && a_group == 64)
            done = l ? quantize_four(x + at, h + at, low, one + g, groups, 4, true)
                     : quantize_four(x + at, h + at, low, one + g, groups, 4, false);
        else if (k - at >= GROUPS * a_group && a_group == 32)
            done = l ? quantize_four(x + at, h + at, low, one + g, groups, 2, true)
                     : quantize_four(x + at, h + at, low, one + g, groups, 2, false);
        if (done) {
            g += GROUPS;
            continue;
        }
        quantize_group(x + at, ek_min(a_group, k - at), a_group, h + at, low, one + g, groups);
        g++;
    }
}
