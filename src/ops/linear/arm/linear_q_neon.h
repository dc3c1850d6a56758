/* Form Q on 64-bit Arm. A file of one instruction set includes this after defining
 *   put_quads()   the place of the signed codes of two quads of 4 outputs in the decoded order
 *   products()    the exact sum of c * limb over an A-group: 16 outputs by n rows
 *
 * Codes are decoded to signed bytes (c itself, so no offset is subtracted), scales and b' to floats, UNIT inputs of a
 * panel at a time, in the first-level cache, where tiles of up to 4 rows read them. */
#ifndef EK_OPS_ARM_LINEAR_Q_NEON_H
#define EK_OPS_ARM_LINEAR_Q_NEON_H

#include <arm_neon.h>
#include <string.h>

#include "ops/linear/linear_layout.h"
#include "ops/tree.h"

enum { UNIT_GROUPS = UNIT / 32, ROWS = 32 /* rows that share decoded codes */ };

typedef struct unit {
    int8_t codes[UNIT * EK_PANEL];
    float scale[UNIT_GROUPS * EK_PANEL], centre[UNIT_GROUPS * EK_PANEL];
} unit;

static inline float32x4_t scales(const uint8_t *at, ek_dtype t, int i)
{
    if (t == EK_F32) return vld1q_f32((const float *)(const void *)at + i);
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16((const uint16_t *)(const void *)at + i), 16));
}

static void decode(unit *to, const uint8_t *packed, const ek_linear *w, int n)
{
    const size_t code_bytes = ek_linear_code_bytes(w), group_bytes = ek_linear_group_bytes(w);
    const uint8x16_t low = vdupq_n_u8(15);
    const int8x16_t eight = vdupq_n_s8(8);
    int pair = 0; /* of quads */
    for (int k = 0, g = 0; k < n; k += w->group, g += EK_PANEL, packed += group_bytes) {
        const size_t step = w->form == EK_W_Q4 ? 64 : 128;
        for (size_t at = 0; at < code_bytes; at += step, pair++)
            for (int i = 0; i < 4; i++) {
                const uint8x16_t first = vld1q_u8(packed + at + 16 * i);
                if (w->form == EK_W_Q4) {
                    put_quads(to->codes, pair, i, vsubq_s8(vreinterpretq_s8_u8(vandq_u8(first, low)), eight),
                              vsubq_s8(vreinterpretq_s8_u8(vshrq_n_u8(first, 4)), eight));
                    continue;
                }
                const uint8x16_t sign = vdupq_n_u8(128), second = vld1q_u8(packed + at + 64 + 16 * i);
                put_quads(to->codes, pair, i, vreinterpretq_s8_u8(veorq_u8(first, sign)),
                          vreinterpretq_s8_u8(veorq_u8(second, sign)));
            }
        for (int i = 0; i < EK_PANEL; i += 4) {
            const float32x4_t s = scales(packed + code_bytes, w->scale_dtype, i);
            vst1q_f32(to->scale + g + i, s);
            if (w->biased)
                vst1q_f32(to->centre + g + i,
                          vfmaq_n_f32(scales(packed + code_bytes, w->scale_dtype, EK_PANEL + i), s, (float)w->zero));
        }
    }
}

/* Adds inputs [k, k + n) to the sums of rows [row0, row0 + rows), 16 each. */
INLINE void tile(float *sums, const ek_linear *w, const ek_acts *x, int row0, const unit *u, int k, int n,
                 const int rows, const int limbs)
{
    const int8_t *row[TILE];
    float32x4_t a[4][TILE];
    for (int r = 0; r < TILE; r++) row[r] = ek_acts_record(x, row0 + (r < rows ? r : rows - 1));
    UNROLL for (int i = 0; i < 4; i++) UNROLL for (int r = 0; r < rows; r++)
        a[i][r] = vld1q_f32(sums + r * EK_PANEL + 4 * i);
    const int8_t *codes = u->codes;
    ptrdiff_t at = x->groups[limbs - 1] + k / w->a_group * (ptrdiff_t)sizeof(ek_act_group);
    for (int j = 0; j < n; j += w->a_group, at += (ptrdiff_t)sizeof(ek_act_group)) {
        const float *s = u->scale + j / w->group * EK_PANEL, *centre = u->centre + j / w->group * EK_PANEL;
        int32x4_t sum[4][TILE];
        products(sum, row, k + j, codes, w->a_group, rows);
        if (limbs == 2) {
            int32x4_t l[4][TILE];
            products(l, row, k + j + x->low, codes, w->a_group, rows);
            UNROLL for (int i = 0; i < 4; i++) UNROLL for (int r = 0; r < rows; r++)
                sum[i][r] = vaddq_s32(vshlq_n_s32(sum[i][r], 8), l[i][r]);
        }
        UNROLL for (int r = 0; r < rows; r++)
        {
            const ek_act_group *of = (const ek_act_group *)(const void *)(row[r] + at);
            UNROLL for (int i = 0; i < 4; i++)
            {
                float32x4_t t = vmulq_f32(vld1q_f32(s + 4 * i), vcvtq_f32_s32(sum[i][r]));
                if (w->biased) t = vfmaq_n_f32(t, vld1q_f32(centre + 4 * i), of->sum);
                a[i][r] = vfmaq_n_f32(a[i][r], t, of->sx);
            }
        }
        codes += w->a_group * EK_PANEL;
    }
    UNROLL for (int i = 0; i < 4; i++) UNROLL for (int r = 0; r < rows; r++)
        vst1q_f32(sums + r * EK_PANEL + 4 * i, a[i][r]);
}

typedef void tile_fn(float *sums, const ek_linear *w, const ek_acts *x, int row0, const unit *u, int k, int n);

#define TILE_FN(limbs, rows)                                                                                       \
    static __attribute__((noinline)) void tile_##limbs##_##rows(float *sums, const ek_linear *w, const ek_acts *x, \
                                                                int row0, const unit *u, int k, int n)             \
    {                                                                                                              \
        tile(sums, w, x, row0, u, k, n, rows, limbs);                                                              \
    }
TILE_FN(1, 1)
TILE_FN(1, 2)
TILE_FN(1, 3)
TILE_FN(1, 4)
TILE_FN(2, 1)
TILE_FN(2, 2)
TILE_FN(2, 3)
TILE_FN(2, 4)
static tile_fn *const tiles[2][TILE] = {{tile_1_1, tile_1_2, tile_1_3, tile_1_4},
                                        {tile_2_1, tile_2_2, tile_2_3, tile_2_4}};

static int at_most(int n, int max)
{
    return n < max ? n : max;
}

/* Rows [r0, r0 + rows) of a panel. */
static void panel(const ek_linear *w, const ek_acts *x, int r0, int rows, float *y, ptrdiff_t ldy, int p)
{
    unit u;
    float leaf[ROWS * EK_PANEL], node[EK_LINEAR_LEVELS * ROWS * EK_PANEL];
    const size_t floats = (size_t)rows * EK_PANEL;
    const uint8_t *packed = w->data + (size_t)p * w->panel_bytes;
    uint64_t leaves = 0;
    for (int k0 = 0; k0 < w->k; k0 += EK_KBLOCK_Q, leaves++) {
        memset(leaf, 0, sizeof *leaf * floats);
        const int end = at_most(k0 + EK_KBLOCK_Q, w->k);
        for (int k = k0, n; k < end; k += n) {
            n = at_most(UNIT, end - k);
            decode(&u, packed, w, n);
            packed += (size_t)(n / w->group) * ek_linear_group_bytes(w);
            for (int r = 0, some; r < rows; r += some) {
                some = at_most(TILE, rows - r);
                tiles[w->limbs - 1][some - 1](leaf + r * EK_PANEL, w, x, r0 + r, &u, k, n);
            }
        }
        ek_tree_push_row(node, leaves, leaf, floats);
    }
    const float *sum = ek_tree_sum_row(node, leaves, floats);
    for (int r = 0; r < rows; r++)
        memcpy(y + (r0 + r) * ldy + p * EK_PANEL, sum + r * EK_PANEL,
               sizeof *y * (size_t)at_most(EK_PANEL, w->n - p * EK_PANEL));
}

static void run(const ek_linear *w, const ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0, int p1)
{
    for (int r = r0, rows; r < r1; r += rows) {
        rows = at_most(ROWS, r1 - r);
        for (int p = p0; p < p1; p++) panel(w, x, r, rows, y, ldy, p);
    }
}

#endif
