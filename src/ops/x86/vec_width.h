/* The vector operations of AVX2 and AVX-512 that differ only in width. vec_avx2.h and vec_avx512.h include this after
 * defining the types, V_(name) for an intrinsic of the width, VI_(name) for one of all its bits, and loads of a half
 * and a quarter of a vector. */
#ifndef EK_OPS_X86_VEC_WIDTH_H
#define EK_OPS_X86_VEC_WIDTH_H

#define V_1(name, to, from, op) \
    INLINE to name(from a)      \
    {                           \
        return op(a);           \
    }
#define V_2(name, type, op)          \
    INLINE type name(type a, type b) \
    {                                \
        return op(a, b);             \
    }
#define V_3(name, op)                \
    INLINE vf name(vf a, vf b, vf c) \
    {                                \
        return op(a, b, c);          \
    }
#define V_SHIFT(name, op)         \
    INLINE vi name(vi a, int n)   \
    {                             \
        return op(a, (v_count)n); \
    }

V_1(v_set1, vf, float, V_(set1_ps))
V_1(v_load, vf, const float *, V_(loadu_ps))
V_1(v_int, vi, vf, V_(cvttps_epi32))
V_1(vi_set1, vi, int, V_(set1_epi32))
V_1(vi_to_float, vf, vi, V_(cvtepi32_ps))
V_2(v_add, vf, V_(add_ps))
V_2(v_sub, vf, V_(sub_ps))
V_2(v_mul, vf, V_(mul_ps))
V_2(v_div, vf, V_(div_ps))
V_2(v_max, vf, V_(max_ps)) /* b if either is NaN */
V_2(v_min, vf, V_(min_ps))
V_3(v_fma, V_(fmadd_ps))
V_3(v_fnma, V_(fnmadd_ps)) /* c - a b */
V_2(vi_add, vi, V_(add_epi32))
V_2(vi_sub, vi, V_(sub_epi32))
V_2(vi_max, vi, V_(max_epi32))
V_2(vi_and, vi, VI_(and))
V_2(vi_or, vi, VI_(or))
V_SHIFT(vi_shl, V_(slli_epi32))
V_SHIFT(vi_shr, V_(srli_epi32))
V_SHIFT(vi_sra, V_(srai_epi32))

INLINE vf v_zero(void)
{
    return V_(setzero_ps)();
}
INLINE void v_store(float *p, vf x)
{
    V_(storeu_ps)(p, x);
}
/* The lower byte, or the upper byte, of each 16 bits, as signed 16 bits. */
INLINE vi vi_low_bytes(vi a)
{
    return V_(srai_epi16)(V_(slli_epi16)(a, 8), 8);
}
INLINE vi vi_high_bytes(vi a)
{
    return V_(srai_epi16)(a, 8);
}

/* W elements of bf16, int8, f16 and int16. */
INLINE vf v_load_bf16(const uint16_t *p)
{
    return v_as_float(vi_shl(V_(cvtepu16_epi32)(v_half(p)), 16));
}
INLINE vf v_from_i8(const int8_t *p)
{
    return vi_to_float(V_(cvtepi8_epi32)(v_quarter(p)));
}
INLINE vf v_from_f16(const uint16_t *p)
{
    return V_(cvtph_ps)(v_half(p));
}
INLINE vf v_from_i16(const int16_t *p)
{
    return vi_to_float(V_(cvtepi16_epi32)(v_half(p)));
}
INLINE vf v_from_i16_part(const int16_t *p, int n)
{
    if (n == W) return v_from_i16(p);
    return vi_to_float(V_(cvtepi16_epi32)(v_half_part(p, n)));
}

/* 2 W elements of bf16 with the fewest instructions: even ones in x[0], odd ones in x[1]. v_in_order puts two such
 * vectors, or results computed from them lane by lane, back in order. */
INLINE void v_load_bf16_pair(const uint16_t *p, vf x[2])
{
    vi both = vi_load((const int *)(const void *)p);
    x[0] = v_as_float(vi_shl(both, 16));
    x[1] = v_as_float(vi_and(both, vi_set1((int)0xffff0000u)));
}

/* The sum of 16 lanes, after v_add_lanes has added those 8 apart: 4, 2, 1 apart. */
INLINE float v_add_eight(__m256 s8)
{
    __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

#undef V_
#undef VI_
#undef V_1
#undef V_2
#undef V_3
#undef V_SHIFT

#endif
