/* Form B of linear layers (ops/linear/linear_b.h) by fused multiply-adds on AVX2 and AVX-512, for machines without an
 * instruction for it. */
#include "ops/x86/isa.h"

#include "ops/convert.h"
#include "ops/inline.h"
#include "ops/x86/vec_bf16.h"
#include "ops/linear/x86/bf16/linear_b_tile.h"

enum { ROWS = 4, MAX_GROUPS = EK_KBLOCK / 32, FETCH = 4608 };

/* ------------------------------------------------------------------ rows: x' in f32, in the order of k */

static __attribute__((noinline)) void row_steps(float *lanes, const uint16_t *h, int group)
{
    UNROLL for (int c = 0; c < LANE_VECS; c++)
    {
        vf lane = v_zero(), x[2];
        for (int i = 0; i < group; i += 32) {
            v_load_bf16_pair(h + i + 2 * W * c, x);
            lane = v_fma(x[0], v_set1(1), v_fma(x[1], v_set1(1), lane));
        }
        v_store(lanes + W * c, lane);
    }
}

static void row_b(void *to, float *sum, const float *from, int k, int group)
{
    float *x = to, lanes[16];
    uint16_t h[128];
    unsigned was = _mm_getcsr();
    for (int g = 0; g < k / group; g++, x += group, from += group) {
        vf lane[LANE_VECS];
        ek_narrow_bf16(h, from, group);
        for (int i = 0; i < group; i++) x[i] = ek_bf16_f32(h[i]);
        _mm_setcsr(was | FLUSH);
        row_steps(lanes, h, group);
        _mm_setcsr(was);
        UNROLL for (int c = 0; c < LANE_VECS; c++) lane[c] = v_load(lanes + W * c);
        sum[g] = v_add_lanes(lane);
    }
}

/* ------------------------------------------------------------------ tiles */

typedef struct block {
    const uint8_t *codes; /* codes of the first group, at the first output */
    size_t group_bytes;
    const float *x; /* of the first group */
    ptrdiff_t ldx;
    int group, groups, rows;
} block;

/* A of several groups from g on, of n rows from r on. */
INLINE void sum_groups(vf (*sums)[TILE], const block *b, int g, int r, const int groups, const int n, const bool q8)
{
    static const int order[4] = {2, 0, 3, 1}; /* the second of a pair comes first */
    const int inputs = q8 ? 4 : 8;            /* of a vector */
    const vi mask = vi_set1(255), zero = vi_set1(128);
    const float *x = b->x + r * b->ldx + g * b->group;
    const uint8_t *codes = b->codes + (size_t)g * b->group_bytes;
    vf a[ROWS][ROWS];
    UNROLL for (int i = 0; i < groups; i++) UNROLL for (int j = 0; j < n; j++) a[i][j] = v_zero();
    for (int k = 0; k < b->group; k += inputs, codes += 64, x += inputs) UNROLL for (int i = 0; i < groups; i++)
        {
            const vi u = vi_load((const int *)(codes + (size_t)i * b->group_bytes));
            UNROLL for (int s = 0; s < inputs; s++)
            {
                const int in = s / 4 * 4 + order[s % 4];
                const vi code = vi_shr(u, 8 * (in % 4) + 4 * (in / 4));
                vf c = q8 ? vi_to_float(vi_sub(vi_and(code, mask), zero)) : v_from_nibble(code);
                UNROLL for (int j = 0; j < n; j++)
                    a[i][j] = v_fma(v_set1(x[j * b->ldx + i * b->group + in]), c, a[i][j]);
            }
        }
    UNROLL for (int i = 0; i < groups; i++) UNROLL for (int j = 0; j < n; j++) sums[g + i][r + j] = a[i][j];
}

/* A single row takes several groups at once, so that their sums wait only for themselves. */
INLINE void sum_block(vf (*sums)[TILE], const block *b, const bool q8)
{
    for (int r = 0; r < b->rows; r += ROWS) {
        const int n = b->rows - r;
        for (int g = 0; g < b->groups; g++) {
            if (n >= 4) sum_groups(sums, b, g, r, 1, 4, q8);
            else if (n == 3) sum_groups(sums, b, g, r, 1, 3, q8);
            else if (n == 2) sum_groups(sums, b, g, r, 1, 2, q8);
            else if (g + 4 <= b->groups) sum_groups(sums, b, g, r, 4, 1, q8), g += 3;
            else sum_groups(sums, b, g, r, 1, 1, q8);
        }
    }
}

static __attribute__((noinline)) void sum_block_q4(vf (*sums)[TILE], const block *b)
{
    sum_block(sums, b, false);
}

static __attribute__((noinline)) void sum_block_q8(vf (*sums)[TILE], const block *b)
{
    sum_block(sums, b, true);
}

/* Outputs [o, o + W) of panel p. */
static void panel_part(float *y, ptrdiff_t ldy, const ek_acts_b *rows, int r0, int n, const ek_linear *w, int p, int o,
                       bool fetch_codes)
{
    const int groups = w->k / w->group, per_block = EK_KBLOCK / w->group;
    const uint8_t *at = w->data + (size_t)p * w->panel_bytes;
    const float *sum = rows->sum + r0 * rows->lds;
    const unsigned was = _mm_getcsr();
    block b = {.group_bytes = ek_linear_group_bytes(w), .ldx = rows->ldx / 4, .group = w->group, .rows = n};
    tree t;
    t.count = 0;
    for (int g = 0; g < groups; g += b.groups) {
        vf a[TILE], sums[MAX_GROUPS][TILE], s, bias;
        b.codes = at + 4 * o, b.x = (const float *)(rows->x + r0 * rows->ldx) + (ptrdiff_t)g * w->group;
        b.groups = groups - g < per_block ? groups - g : per_block;
        for (size_t i = 0; fetch_codes && i < (size_t)b.groups * b.group_bytes; i += 64)
            fetch(at, FETCH + (ptrdiff_t)i);
        _mm_setcsr(was | FLUSH);
        if (w->form == EK_W_Q8) sum_block_q8(sums, &b);
        else sum_block_q4(sums, &b);
        _mm_setcsr(was);
        for (int r = 0; r < n; r++) a[r] = v_zero();
        for (int i = 0; i < b.groups; i++, at += b.group_bytes) {
            load_centred(w, at, o, &s, &bias);
            add_group(a, sums[i], s, bias, sum + g + i, rows->lds, n);
        }
        tree_push(&t, a, n);
    }
    for (int r = 0; r < n; r++) v_store(y + r * ldy + o, tree_sum(&t, r));
}

static void panel_b(float *y, ptrdiff_t ldy, const ek_acts_b *x, int r0, int n, const ek_linear *w, int p,
                    bool fetch_codes)
{
    for (int o = 0; o < EK_PANEL; o += W) panel_part(y, ldy, x, r0, n, w, p, o, fetch_codes && o == 0);
}

void EK_OF_ISA(ek_linear_b_table)(ek_linear_b_ops *ops)
{
    *ops = (ek_linear_b_ops){row_b, panel_b};
}
