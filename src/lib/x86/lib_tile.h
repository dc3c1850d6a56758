/* Bodies that are the same for any vector of ops/x86/vec_*.h. A file of one ISA defines MADD_ROWS
 * (rows of a register tile) before it includes this. */
#ifndef EK_LIB_X86_LIB_TILE_H
#define EK_LIB_X86_LIB_TILE_H

#include "lib/plain.h"
#include "lib/x86/lib_vec.h"

enum { MADD_VECS = 4, VALUE_VECS = 2, VALUE_KEYS = 32 };

/* nr rows by MADD_VECS vectors from column c. */
INLINE void madd_tile(float *acc, const float *const *x, int64_t at, const float *panel, int depth, int c, const int nr)
{
    vf a[MADD_ROWS][MADD_VECS];
    UNROLL for (int r = 0; r < nr; r++) UNROLL for (int v = 0; v < MADD_VECS; v++)
        a[r][v] = v_load(acc + r * LIB_COLS + c + v * W);
    for (int k = 0; k < depth; k++) {
        vf w[MADD_VECS];
        UNROLL for (int v = 0; v < MADD_VECS; v++) w[v] = v_load(panel + k * LIB_COLS + c + v * W);
        UNROLL for (int r = 0; r < nr; r++)
        {
            vf xk = v_set1(x[r][at + k]);
            UNROLL for (int v = 0; v < MADD_VECS; v++) a[r][v] = v_fma(xk, w[v], a[r][v]);
        }
    }
    UNROLL for (int r = 0; r < nr; r++) UNROLL for (int v = 0; v < MADD_VECS; v++)
        v_store(acc + r * LIB_COLS + c + v * W, a[r][v]);
}

static void madd(float *acc, const float *const *x, int64_t at, int rows, const float *panel, int depth)
{
    for (int r = 0; r < rows; r += MADD_ROWS)
        for (int c = 0; c < LIB_COLS; c += MADD_VECS * W) {
            float *a = acc + r * LIB_COLS;
            switch (rows - r) {
            case 1: madd_tile(a, x + r, at, panel, depth, c, 1); break;
            case 2: madd_tile(a, x + r, at, panel, depth, c, 2); break;
#if MADD_MOST > 3
            case 3: madd_tile(a, x + r, at, panel, depth, c, 3); break;
            case 4: madd_tile(a, x + r, at, panel, depth, c, 4); break;
            case 5: madd_tile(a, x + r, at, panel, depth, c, 5); break;
#endif
            default: madd_tile(a, x + r, at, panel, depth, c, MADD_ROWS);
            }
        }
}

INLINE vf load_value(ek_type t, const uint8_t *p, int n)
{
    if (t == EK_TYPE_F32) return n == W ? v_load((const float *)p) : v_load_part((const float *)p, n);
    if (n < W) {
        float part[W] = {0};
        for (int i = 0; i < n; i++) part[i] = plain_one(p + 2 * i, t);
        return v_load(part);
    }
    return t == EK_TYPE_BF16 ? v_load_bf16((const uint16_t *)p) : load_f16(p);
}

/* nq queries by cols vectors, the last of n elements, from dim d; keys [j0, j1). */
INLINE void value_tile(ek_type t, const int nq, const int cols, int n, const lib_value_run *r, int i0, int d, int j0,
                       int j1)
{
    const int size = t == EK_TYPE_F32 ? 4 : 2;
    float *o = r->o + i0 * r->ldo + d;
    const float *e = r->e + i0 * EK_SEGMENT;
    vf acc[EK_TILE][VALUE_VECS];
    UNROLL for (int i = 0; i < nq; i++) UNROLL for (int c = 0; c < cols; c++)
        acc[i][c] = v_load(o + i * r->ldo + c * W); /* ldo is a multiple of 16 */
    for (int j = j0; j < j1; j++) {
        const uint8_t *v = r->v + j * r->stride + d * size;
        vf x[VALUE_VECS];
        UNROLL for (int c = 0; c < cols; c++) x[c] = load_value(t, v + c * W * size, c == cols - 1 ? n : W);
        if (i0 == 0) fetch(v, VALUE_KEYS * r->stride);
        UNROLL for (int i = 0; i < nq; i++)
        {
            vf ej = v_set1(e[i * EK_SEGMENT + j]);
            UNROLL for (int c = 0; c < cols; c++) acc[i][c] = v_fma(ej, x[c], acc[i][c]);
        }
    }
    UNROLL for (int i = 0; i < nq; i++) UNROLL for (int c = 0; c < cols; c++)
        v_store(o + i * r->ldo + c * W, acc[i][c]);
}

INLINE void value_dims(ek_type t, const int nq, const lib_value_run *r, int i0, int j0, int j1)
{
    int d = 0;
    for (; d + VALUE_VECS * W <= r->dim; d += VALUE_VECS * W) value_tile(t, nq, VALUE_VECS, W, r, i0, d, j0, j1);
    for (; d + W <= r->dim; d += W) value_tile(t, nq, 1, W, r, i0, d, j0, j1);
    if (d < r->dim) value_tile(t, nq, 1, r->dim - d, r, i0, d, j0, j1);
}

INLINE void values_of(ek_type t, const lib_value_run *r)
{
    for (int j = 0; j < r->n_keys; j += VALUE_KEYS) {
        int end = j + VALUE_KEYS < r->n_keys ? j + VALUE_KEYS : r->n_keys, i = 0;
        for (; i + VALUE_QUERIES <= r->n_q; i += VALUE_QUERIES) value_dims(t, VALUE_QUERIES, r, i, j, end);
        if (VALUE_QUERIES > 4 && i + 4 <= r->n_q) value_dims(t, 4, r, i, j, end), i += 4;
        if (i + 2 <= r->n_q) value_dims(t, 2, r, i, j, end), i += 2;
        if (i < r->n_q) value_dims(t, 1, r, i, j, end);
    }
}

static void values(const lib_value_run *r)
{
    if (r->type == EK_TYPE_F32) values_of(EK_TYPE_F32, r);
    else if (r->type == EK_TYPE_BF16) values_of(EK_TYPE_BF16, r);
    else values_of(EK_TYPE_F16, r);
}

static void combine(float *b, const float *a, float fb, float fa, int n)
{
    int i = 0;
    for (; i + W <= n; i += W)
        v_store(b + i, v_add(v_mul(v_load(a + i), v_set1(fa)), v_mul(v_load(b + i), v_set1(fb))));
    plain_combine(b + i, a + i, fb, fa, n - i);
}

static void widen(float *to, const uint8_t *from, ek_type t, int64_t n)
{
    int64_t i = 0;
    if (t == EK_TYPE_F32) {
        memcpy(to, from, (size_t)n * 4);
        return;
    }
    for (; i + W <= n; i += W) v_store(to + i, load_value(t, from + 2 * i, W));
    for (; i < n; i++) to[i] = plain_one(from + 2 * i, t);
}

static void narrow(uint8_t *to, ek_type t, const float *from, int64_t n)
{
    int64_t i = 0;
    if (t == EK_TYPE_F16)
        for (; i + 8 <= n; i += 8)
            _mm_storeu_si128((__m128i *)(to + 2 * i),
                             _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    plain_narrow(to + (t == EK_TYPE_F32 ? 4 : 2) * i, t, from + i, n - i);
}

/* fma(s, u, b) of 8 codes: the low and the high four of a word of 8 bits codes. */
INLINE __m256 affine_8(const uint8_t *codes, int bits, __m256i shift, __m256i mask, __m256 s, __m256 b)
{
    uint64_t word = 0;
    memcpy(&word, codes, (size_t)bits);
    __m256i u = _mm256_setr_m128i(_mm_set1_epi32((int)(uint32_t)word),
                                  _mm_set1_epi32((int)(uint32_t)(word >> 4 * bits)));
    u = _mm256_and_si256(_mm256_srlv_epi32(u, shift), mask);
    return _mm256_fmadd_ps(s, _mm256_cvtepi32_ps(u), b);
}

INLINE void affine_of(float *to, const uint8_t *codes, int n, const int bits, float s, float b)
{
    __m256i shift = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 0, 1, 2, 3), _mm256_set1_epi32(bits));
    __m256i mask = _mm256_set1_epi32((1 << bits) - 1);
    for (int i = 0; i < n; i += 8, codes += bits)
        _mm256_storeu_ps(to + i, affine_8(codes, bits, shift, mask, _mm256_set1_ps(s), _mm256_set1_ps(b)));
}

static void affine_any(float *to, const uint8_t *codes, int n, int bits, float s, float b)
{
    switch (bits) {
    case 2: affine_of(to, codes, n, 2, s, b); break;
    case 3: affine_of(to, codes, n, 3, s, b); break;
    case 4: affine_of(to, codes, n, 4, s, b); break;
    case 5: affine_of(to, codes, n, 5, s, b); break;
    case 6: affine_of(to, codes, n, 6, s, b); break;
    default: affine_of(to, codes, n, 8, s, b);
    }
}

#endif
