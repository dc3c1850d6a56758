/* Codes and scales of form PLANES (ops/linear/planes.h) in vector registers, for AVX2 (half a panel at a time) and
 * AVX-512. Included after a vec_*.h. */
#ifndef EK_OPS_X86_PLANES_VEC_H
#define EK_OPS_X86_PLANES_VEC_H

#include "ops/linear/planes.h"

#if defined(__AVX512BW__)
#define P_(op)        _mm512_##op
#define P_LOAD(p)     _mm512_loadu_si512(p)
#define P_AND(a, b)   _mm512_and_si512(a, b)
#define P_OR(a, b, m) _mm512_ternarylogic_epi32(a, b, m, 0xf8) /* a | (b & m) */
#define P_16(p)       _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define P_BYTES(p)    _mm_loadu_si128((const __m128i *)(const void *)(p))
#define P_HALF(op)    _mm256_##op
#define P_HALF_AND    _mm256_and_si256
#define P_TABLE(t)    _mm512_broadcast_i32x4(t)
#ifdef __clang__
#define P_COUNT(n) ((unsigned)(n)) /* as clang declares the 512-bit shifts; gcc says int */
#else
#define P_COUNT(n) (n)
#endif
#else
#define P_(op)        _mm256_##op
#define P_LOAD(p)     _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define P_AND(a, b)   _mm256_and_si256(a, b)
#define P_OR(a, b, m) _mm256_or_si256(a, _mm256_and_si256(b, m))
#define P_16(p)       _mm_loadu_si128((const __m128i *)(const void *)(p))
#define P_BYTES(p)    _mm_loadl_epi64((const __m128i *)(const void *)(p))
#define P_HALF(op)    _mm_##op
#define P_HALF_AND    _mm_and_si128
#define P_TABLE(t)    _mm256_broadcastsi128_si256(t)
#define P_COUNT(n)    (n)
#endif

/* v shifted left by n bits, or right by -n, in lanes of 16 bits; the caller masks. */
INLINE vi p_shift(vi v, const int n)
{
    return n > 0 ? P_(slli_epi16)(v, P_COUNT(n > 0 ? n : 0)) : n < 0 ? P_(srli_epi16)(v, P_COUNT(n < 0 ? -n : 0)) : v;
}

/* The operand of quad q of a unit: codes u, or the bytes of a codebook's table. at: the unit, or its half for the upper
 * outputs. All arguments but at and table are constants once inlined. */
INLINE vi p_codes(const uint8_t *at, const int q, const int bits, const bool book, vi table)
{
    const int low = ek_planes_low(bits), per = 8 / low, high = bits - low;
    vi u = P_LOAD(at + 64 * (q / per));
    if (bits == 8) return u;
    u = P_AND(p_shift(u, -low * (q % per)), P_(set1_epi8)((char)((1 << low) - 1)));
    if (high) {
        const int in = 8 / high;
        vi top = P_LOAD(at + EK_UNIT / 4 * 64 / per + 64 * (q / in));
        u = P_OR(u, p_shift(top, low - high * (q % in)), P_(set1_epi8)((char)(((1 << high) - 1) << low)));
    }
    return book ? P_(shuffle_epi8)(table, u) : u;
}

/* A codebook's values + 128. */
INLINE vi p_table(const int8_t *book)
{
    if (!book) return P_(set1_epi8)(0);
    return P_TABLE(_mm_xor_si128(_mm_loadu_si128((const __m128i *)(const void *)book), _mm_set1_epi8(-128)));
}

/* i of a block's f16 scales and biases, or d and dmin, from output `out`. */
INLINE vf p_half(const uint8_t *block, int i, int out)
{
    return P_(cvtph_ps)(P_16(block + 2 * (i * EK_PANEL + out)));
}

/* Data that a block's groups share. */
typedef struct p_block {
    const uint8_t *at, *subs;
    vf d, dmin;
} p_block;

/* factors: the panel's last 64 bytes. */
INLINE p_block p_open(ek_wscale rule, bool biased, const uint8_t *block, const float *factors, int out)
{
    p_block b = {block, block + 2 * EK_PANEL * (biased ? 2 : 1) + out, P_(setzero_ps)(), P_(setzero_ps)()};
    if (rule <= EK_SCALE_E8M0) return b;
    if (rule == EK_SCALE_E4M3) {
        b.d = P_(loadu_ps)(factors + out);
        return b;
    }
    b.d = p_half(block, 0, out);
    if (biased) b.dmin = p_half(block, 1, out);
    return b;
}

INLINE vf p_u8(const uint8_t *p)
{
    return P_(cvtepi32_ps)(P_(cvtepu8_epi32)(P_BYTES(p)));
}

/* s and, if biased, b' = fma(zero, s, b) of group g. The rule is the matrix's: the branch always goes one way. */
INLINE void p_scales(ek_wscale rule, bool biased, const p_block *b, int g, int out, vf zero, vf *s, vf *centre)
{
    const uint8_t *at;
    *centre = zero;
    switch (rule) {
    case EK_SCALE_PLAIN:
        *s = p_half(b->at, 0, out);
        if (biased) *centre = P_(fmadd_ps)(zero, *s, p_half(b->at, 1, out));
        return;
    case EK_SCALE_E8M0: {
        vi e = P_(cvtepu8_epi32)(P_BYTES(b->at + out));
        vi normal = P_(slli_epi32)(P_(sub_epi32)(e, P_(set1_epi32)(1)), 23);
        vi tiny = P_(sllv_epi32)(P_(set1_epi32)(0x00200000), e); /* for e below 2, where `normal` is negative or 0 */
        *s = v_as_float(P_(max_epi32)(normal, P_AND(tiny, P_(set1_epi32)(0x00600000))));
        return;
    }
    case EK_SCALE_I8:
        *s = P_(mul_ps)(b->d, P_(cvtepi32_ps)(P_(cvtepi8_epi32)(P_BYTES(b->subs + EK_PANEL * g))));
        return;
    case EK_SCALE_U8:
        at = b->subs + 2 * EK_PANEL * g;
        *s = P_(mul_ps)(b->d, p_u8(at));
        *centre = P_(fmsub_ps)(zero, *s, P_(mul_ps)(b->dmin, p_u8(at + EK_PANEL)));
        return;
    case EK_SCALE_E4M3: { /* sign and seven bits in the positions of a binary16 */
        __auto_type h = P_HALF(slli_epi16)(P_HALF(cvtepi8_epi16)(P_BYTES(b->at + EK_PANEL * g + out)), 7);
        *s = P_(mul_ps)(b->d, P_(cvtph_ps)(P_HALF_AND(h, P_HALF(set1_epi16)((short)0xbfff))));
        return;
    }
    default: {
        vi both = P_(cvtepu8_epi32)(P_BYTES(b->subs + EK_PANEL * g));
        *s = P_(mul_ps)(b->d, P_(cvtepi32_ps)(P_AND(both, P_(set1_epi32)(15))));
        vf m = P_(cvtepi32_ps)(P_(srli_epi32)(both, 4));
        *centre = P_(fmsub_ps)(zero, *s, P_(mul_ps)(b->dmin, m));
    }
    }
}

/* The initial value of the sum I: -8 X times the offset of the codes in eights. */
INLINE int p_start(int start, const int bits, const bool book)
{
    const int shift = (book ? 8 : bits) - 4;
    return shift >= 0 ? (int)((unsigned)start << (shift >= 0 ? shift : 0)) : start >> (shift < 0 ? -shift : 0);
}

#endif
