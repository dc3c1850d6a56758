/* The exact product's kernels on AVX2. */
#include "ops/x86/vec_avx2.h"

enum { MADD_ROWS = 3 };
#define MADD_MAX 3

#include "ops/linear/x86/decoded_vec.h"

static void transpose(float *panel, const float *rows)
{
    for (int k = 0; k < EK_DECODED_DEPTH; k += 8)
        for (int half = 0; half < EK_PANEL; half += 8) {
            __m256i r[8];
            UNROLL for (int i = 0; i < 8; i++)
                r[i] = _mm256_loadu_si256((const __m256i *)(rows + (half + i) * EK_DECODED_DEPTH + k));
            vi_transpose(r);
            UNROLL for (int i = 0; i < 8; i++)
                _mm256_storeu_si256((__m256i *)(panel + (k + i) * EK_DECODED_COLS + half), r[i]);
        }
}

/* Half a panel of Form Q: lane o of a vector has the codes of output o. */
INLINE void unpack_half(float *to, const ek_linear *w, const uint8_t *panel, int half, int k0, int depth, const bool q8)
{
    const size_t group_bytes = ek_linear_group_bytes(w);
    const __m256i zero = vi_set1(ek_linear_stored_zero(w) - w->zero), mask = vi_set1(q8 ? 255 : 15);
    for (int k = 0; k < depth;) {
        const uint8_t *g = panel + (size_t)((k0 + k) / w->group) * group_bytes;
        int in = (k0 + k) % w->group, end = w->group - in < depth - k ? k + w->group - in : depth;
        vf s, b;
        load_scales(w, g, half, &s, &b);
        for (const uint8_t *c = g + (size_t)in * (q8 ? 16 : 8) + half * 4; k < end; k += q8 ? 4 : 8, c += 64) {
            __m256i u = _mm256_loadu_si256((const __m256i *)c);
            for (int j = 0; j < (q8 ? 4 : 8); j++) {
                __m256i code = vi_and(_mm256_srli_epi32(u, 8 * (j % 4) + 4 * (j / 4)), mask);
                v_store(to + (k + j) * EK_DECODED_COLS, v_fma(s, _mm256_cvtepi32_ps(vi_sub(code, zero)), b));
            }
        }
    }
}

static void unpack(float *panel, const ek_linear *w, int p0, int k0, int depth)
{
    for (int p = 0; p < EK_DECODED_COLS / EK_PANEL && p0 + p < w->n_panels; p++)
        for (int half = 0; half < EK_PANEL; half += 8) {
            const uint8_t *from = w->data + (size_t)(p0 + p) * w->panel_bytes;
            float *to = panel + p * EK_PANEL + half;
            if (w->form == EK_W_Q8) unpack_half(to, w, from, half, k0, depth, true);
            else unpack_half(to, w, from, half, k0, depth, false);
        }
}

void ek_decoded_table_avx2(ek_decoded_ops *ops)
{
    *ops = (ek_decoded_ops){.decode = decode_any, .transpose = transpose, .unpack = unpack, .madd = madd};
}
