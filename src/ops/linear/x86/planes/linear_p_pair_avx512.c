/* Form PLANES on a Zen 4 (EK_CPU_ZEN4): two panels by 2 to 6 rows (2 or 3 with two limbs), like linear_q_pair_512.h,
 * with codes put together in registers. For types without biases whose blocks are one group. The form of codes and
 * scales is a constant of each kernel, because a choice in the loop would take registers that the sums need. */
#include "ops/linear/x86/planes/linear_p_pair_512.h"

/* clang-format off */
/* A type, and its kernels of one limb by rows, then of two. */
#define PAIRS(name, ...)                                                                                          \
    static const pair_type type_##name = {__VA_ARGS__};                                                           \
    PAIR_FN(name, 1, 2) PAIR_FN(name, 1, 3) PAIR_FN(name, 1, 4) PAIR_FN(name, 1, 5) PAIR_FN(name, 1, 6)           \
    PAIR_FN(name, 2, 2) PAIR_FN(name, 2, 3)                                                                       \
    static pair_fn *const pairs_##name[2][PAIR_TILE + 1] = {                                                      \
        {0, 0, pair_##name##_1_2, pair_##name##_1_3, pair_##name##_1_4, pair_##name##_1_5, pair_##name##_1_6},    \
        {0, 0, pair_##name##_2_2, pair_##name##_2_3}};
/* clang-format on */

PAIRS(q4_0, 4, 32, 32, false, false, EK_SCALE_PLAIN)
PAIRS(q5_0, 5, 32, 32, false, false, EK_SCALE_PLAIN)
PAIRS(q8_0, 8, 32, 32, false, false, EK_SCALE_PLAIN)
PAIRS(iq4_nl, 4, 32, 32, true, false, EK_SCALE_PLAIN)
PAIRS(mxfp4, 4, 32, 32, true, false, EK_SCALE_E8M0)

/* NULL: a panel at a time is not slower. 2 rows of 4 and 8 bits wait for the memory, which sends one stream better than
 * two, and 7 or 8 rows of 8 bits (4 of two limbs) for most of their time, so that one tile beats two. */
static pair_fn *const (*pairs_of(const ek_linear *w, int rows))[PAIR_TILE + 1]
{
    if (rows == 1 || w->biased || w->scale > EK_SCALE_E8M0) return NULL;
    if (w->book) return w->scale == EK_SCALE_E8M0 ? pairs_mxfp4 : pairs_iq4_nl;
    const int sums = rows * w->limbs;
    if (w->bits == 4) return sums == 2 ? NULL : pairs_q4_0;
    if (w->bits == 5) return pairs_q5_0;
    return rows == 2 || sums == 7 || sums == 8 ? NULL : pairs_q8_0;
}

void ek_linear_planes_avx512_zen4(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0,
                                  int p1)
{
    pair_fn *const(*pairs)[PAIR_TILE + 1] = pairs_of(w, r1 - r0);
    if (!pairs) {
        ek_linear_planes_avx512_zen4_decoded(w, x, r0, r1, y, ldy, p0, p1);
        return;
    }
    for (int r = r0, n; r < r1; r += n) {
        n = ek_tile_rows(r1 - r, PAIR_TILE / w->limbs);
        pair_run(w, x, r, y, ldy, p0, p1, r == r0 ? PAIR_AHEAD : 0, pairs[w->limbs - 1][n], NULL);
    }
}
