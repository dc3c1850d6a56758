/* Code that the kernels of few rows share, which read two panels at once, for forms Q4, Q8 and PLANES on AVX-512 VNNI.
 */
#ifndef EK_OPS_X86_LINEAR_PAIR_512_H
#define EK_OPS_X86_LINEAR_PAIR_512_H

#include "ops/inline.h"
#include "ops/linear/x86/linear_512.h"

/* Prefetch distances in bytes: into the first-level cache, and per panel into the second. */
enum { PAIR_NEAR = 1024, PAIR_AHEAD = 8192, PAIR_AHEAD_ZEN4 = 4096 };

/* Two panels; or the first one twice. */
typedef struct pair_panels {
    const uint8_t *codes;
    ptrdiff_t second; /* the distance from the first panel to the second, in bytes */
    __mmask16 mask[PANELS];
    /* Prefetch distance into the second-level cache; at the end it reaches the next two panels; 0: none. */
    ptrdiff_t ahead;
    const unpacked_scales *scales; /* decoded scales, for kernels that read them */
    /* If several tiles read two panels in turn, each fetches its part of the next two, [next, next_end), some lines per
     * group, and nothing else. NULL: `ahead` applies. */
    const uint8_t *next, *next_end;
    int lines;
} pair_panels;

/* The prefetch distances of a group, for both caches. 0 fetches present data again, which costs less than a branch. */
typedef struct pair_ahead {
    ptrdiff_t near, far;
} pair_ahead;

/* `at`: bytes before this group in its panel. Bytes beyond the panel's end belong to the panel after the next. */
INLINE pair_ahead pair_ahead_of(const pair_panels *two, ptrdiff_t at, ptrdiff_t panel_bytes)
{
    if (!two->ahead) return (pair_ahead){0, 0};
    return (pair_ahead){at + PAIR_NEAR < panel_bytes ? PAIR_NEAR : PAIR_NEAR + panel_bytes,
                        at + two->ahead < panel_bytes ? two->ahead : two->ahead + panel_bytes};
}

/* Prefetches one line: all lines of a group at once would fill the buffers that loads need. */
INLINE void pair_fetch(const uint8_t *at, pair_ahead ahead)
{
    fetch(at, ahead.far);
    _mm_prefetch((const char *)((uintptr_t)at + (uintptr_t)ahead.near), _MM_HINT_T0);
}

/* sum[p][limb * n + r] += code[p] * the four bytes of that limb of row r from input k. */
INLINE void pair_multiply(__m512i sum[PANELS][PAIR_ROWS], const __m512i *code, const int8_t *const *row, ptrdiff_t k,
                          ptrdiff_t low, const int n, const int limbs)
{
    UNROLL for (int i = 0; i < n * limbs; i++)
    {
        const __m512i q = quad(row[i % n] + i / n * low + k);
        UNROLL for (int p = 0; p < PANELS; p++) sum[p][i] = _mm512_dpbusd_epi32(sum[p][i], code[p], q);
    }
}

typedef void pair_fn(const ek_linear *w, const ek_acts *x, int row, float *y, ptrdiff_t ldy, const pair_panels *two);

/* n rows from row0 on by panels [p0, p1). scales: the decoded scales of all A-groups of two panels, one panel after the
 * other; or NULL. */
static void pair_run(const ek_linear *w, const ek_acts *x, int row0, float *y, ptrdiff_t ldy, int p0, int p1,
                     ptrdiff_t ahead, pair_fn *fn, const unpacked_scales *scales)
{
    for (int p = p0; p < p1; p += PANELS) {
        const uint8_t *first = w->data + (size_t)p * w->panel_bytes;
        const bool both = p + 1 < p1;
        const pair_panels two = {first,
                                 both ? (ptrdiff_t)w->panel_bytes : 0,
                                 {outputs_of(w, p), both ? outputs_of(w, p + 1) : (__mmask16)0},
                                 ahead,
                                 scales ? scales + (p - p0) / PANELS * (w->k / w->a_group) : NULL,
                                 NULL,
                                 NULL,
                                 0};
        fn(w, x, row0, y + p * EK_PANEL, ldy, &two);
    }
}

#endif
