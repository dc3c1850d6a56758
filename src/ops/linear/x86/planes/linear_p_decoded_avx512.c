/* Types of form PLANES on a Zen 4 whose groups share a block's scales, by many rows of one limb: pairs of panels as in
 * linear_p_pair_avx512.c. Computing s and b' of a group takes up to three multiplications, too many for 6 rows, so they
 * are computed once for all rows of a task and kept in the second-level cache. */
#include "ops/linear/x86/planes/linear_p_pair_512.h"

/* With fewer rows it is slower. The scales of GROUPS groups of two panels are 256 KB. */
enum { MIN_ROWS = 64, GROUPS = 1024, AHEAD = 4 /* blocks */ };

/* Numbers of rows are divided into tiles of 5 and 6. */
#define TYPE(name, ...)                                 \
    static const pair_type type_##name = {__VA_ARGS__}; \
    PAIR_FN(name, 1, 5)                                 \
    PAIR_FN(name, 1, 6)                                 \
    static pair_fn *const pairs_##name[2] = {pair_##name##_1_5, pair_##name##_1_6};

TYPE(q2_k, 2, 16, 256, false, true, PAIR_DECODED)
TYPE(q3_k, 3, 16, 256, false, false, PAIR_DECODED)
TYPE(q4_k, 4, 32, 256, false, true, PAIR_DECODED)
TYPE(q5_k, 5, 32, 256, false, true, PAIR_DECODED)
TYPE(q6_k, 6, 16, 256, false, false, PAIR_DECODED)
TYPE(iq4_xs, 4, 32, 256, true, false, PAIR_DECODED)
TYPE(nvfp4, 4, 16, 64, true, false, PAIR_DECODED)

static pair_fn *const *pairs_of(const ek_linear *w)
{
    if (w->book) return w->scale == EK_SCALE_E4M3 ? pairs_nvfp4 : pairs_iq4_xs;
    switch (w->bits) {
    case 2: return pairs_q2_k;
    case 3: return pairs_q3_k;
    case 4: return pairs_q4_k;
    case 5: return pairs_q5_k;
    default: return pairs_q6_k;
    }
}

/* Decodes panel p and the next one, or the last one twice. */
static void decode(const ek_linear *w, int p, int p1, unpacked_scales *to)
{
    const size_t block_bytes = ek_planes_block_bytes(w), scale_bytes = ek_planes_scale_bytes(w);
    const __m512 zero = _mm512_set1_ps((float)w->zero);
    for (int i = 0; i < PANELS; i++) {
        const uint8_t *block = w->data + (size_t)ek_min(p + i, p1 - 1) * w->panel_bytes;
        const float *factors = (const float *)(const void *)(block + w->panel_bytes - EK_PANEL * sizeof(float));
        for (int g = 0; g < w->k / w->a_group; block += block_bytes) {
            for (size_t line = 0; line < scale_bytes; line += 64) fetch(block + line, AHEAD * (ptrdiff_t)block_bytes);
            const p_block shared = p_open(w->scale, w->biased, block, factors, 0);
            for (int in = 0; in < w->block / w->a_group; in++, g++) {
                __m512 s, centre;
                p_scales(w->scale, w->biased, &shared, in, 0, zero, &s, &centre);
                _mm512_store_ps(to[g][i][0], s);
                _mm512_store_ps(to[g][i][1], centre);
            }
        }
    }
}

void ek_linear_planes_avx512_zen4_decoded(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy,
                                          int p0, int p1)
{
    const int groups = w->k / w->a_group;
    if (w->limbs == 2 || r1 - r0 < MIN_ROWS || w->block == w->group || groups > GROUPS) {
        ek_linear_planes_avx512_zen4_panels(w, x, r0, r1, y, ldy, p0, p1);
        return;
    }
    _Alignas(64) unpacked_scales scales[GROUPS];
    const int step = GROUPS / groups * PANELS;
    pair_fn *const *fns = pairs_of(w);
    for (int p = p0, end; p < p1; p = end) {
        end = ek_min(p + step, p1);
        for (int i = p; i < end; i += PANELS) decode(w, i, end, scales + (i - p) / PANELS * groups);
        for (int r = r0, n; r < r1; r += n) {
            n = ek_tile_rows(r1 - r, PAIR_TILE);
            pair_run(w, x, r, y, ldy, p, end, r == r0 ? PAIR_AHEAD : 0, fns[n - 5], scales);
        }
    }
}
