/* The byte layout of a packed matrix. For the packer and the kernels.
 *
 * Form F: a panel is [k][16] elements, k up to the last, then zeros to a multiple of 64 bytes.
 * Form Q: a panel is k / G groups one after the other, a single sequential stream. A group is
 *   codes   vectors of 64 bytes; byte 4 o + j of a vector belongs to output o and k = 4 t + j,
 *           so that one multiply-add of 4-byte lanes serves 16 outputs and 4 k. Q8: vector t
 *           holds quad t. Q4: vector t holds quad 2 t in the low and 2 t + 1 in the high
 *           nibbles. Stored is c + 8 (Q4) or c + 128 (Q8) whatever the bits of the checkpoint.
 *   scales  16 of scale_dtype
 *   biases  16 of scale_dtype, only if biased
 *   and zeros to a multiple of 64 bytes. Q4, G 64, BF16, biased: 512 + 32 + 32 bytes.
 *   The functions of a group below are for Q4 and Q8; PLANES has its own layout, ops/linear/planes.h. */
#ifndef EK_OPS_LINEAR_LAYOUT_H
#define EK_OPS_LINEAR_LAYOUT_H

#include "ops/linear/linear.h"

/* Levels of T, one node each, for a row tile's partial sums: k <= EK_LINEAR_MAX gives at most 2^16 blocks. */
enum { EK_LINEAR_LEVELS = 17 };

static inline int ek_linear_node_of(const ek_linear *w, int p)
{
    int node = 0;
    while (p >= w->parts->first[node + 1]) node++;
    return node;
}

static inline uint8_t *ek_linear_panel(const ek_linear *w, int p)
{
    if (!w->parts) return w->data + (size_t)p * w->panel_bytes;
    const int node = ek_linear_node_of(w, p);
    return w->parts->data[node] + (size_t)(p - w->parts->first[node]) * w->panel_bytes;
}

/* Number of consecutive panels in memory from p on. */
static inline int ek_linear_adjacent(const ek_linear *w, int p)
{
    return (w->parts ? w->parts->first[ek_linear_node_of(w, p) + 1] : w->n_panels) - p;
}

static inline bool ek_wform_is_q(ek_wform f)
{
    return f == EK_W_Q4 || f == EK_W_Q8 || f == EK_W_PLANES;
}

static inline size_t ek_linear_code_bytes(const ek_linear *w) /* of one group */
{
    return (size_t)w->group * EK_PANEL / (w->form == EK_W_Q4 ? 2 : 1);
}

static inline size_t ek_linear_group_bytes(const ek_linear *w)
{
    size_t scales = EK_PANEL * ek_dtype_size(w->scale_dtype) * (w->biased ? 2 : 1);
    return (ek_linear_code_bytes(w) + scales + 63) / 64 * 64;
}

static inline int ek_linear_stored_zero(const ek_linear *w)
{
    return w->form == EK_W_Q4 ? 8 : 128;
}

/* The centred code c of output o at position k of a group. */
static inline int ek_linear_code(const ek_linear *w, const uint8_t *group, int o, int k)
{
    int quad = k / 4, at = o * 4 + k % 4;
    if (w->form == EK_W_Q8) return group[quad * 64 + at] - 128;
    return (group[quad / 2 * 64 + at] >> (quad & 1) * 4 & 15) - 8;
}

/* Scale o of a group, o < 16; biases follow at 16. */
static inline float ek_linear_scale(const ek_linear *w, const uint8_t *group, int o)
{
    const uint8_t *at = group + ek_linear_code_bytes(w);
    return w->scale_dtype == EK_BF16 ? ek_bf16_f32(((const ek_bf16 *)at)[o]) : ((const float *)at)[o];
}

#endif
