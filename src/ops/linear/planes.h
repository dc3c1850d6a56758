/* Form PLANES: quantised weights packed as tightly as their files have them. For the packer and the kernels.
 *
 * A panel (16 outputs, ops/linear/linear.h) is k / S blocks one after the other, a single sequential stream, then zeros
 * to a multiple of 64 bytes. S, the block, is what the type says (256 of the K formats, else a group of weights); a
 * multiple of
 * 32. A block is
 *   scales   SCALE_PLAIN  16 f16 scales, 16 biases if biased (S = one group)
 *            SCALE_E8M0   16 bytes e (S = one group)
 *            SCALE_I8     16 f16 d; per group 16 sc
 *            SCALE_U8     16 f16 d, 16 f16 dmin; per group 16 sc, 16 m
 *            SCALE_U4     16 f16 d, 16 f16 dmin; per group 16 bytes, sc in the low half
 *            SCALE_E4M3   per group 16 bytes; the panel's last 64 bytes are 16 f32 d
 *   units    of 32 inputs: planes of bits of the codes u (of a codebook: of the index)
 * Byte 4 o + j of a plane's vector of 64 bytes belongs to output o and inputs j of quads of inputs, so that what is
 * shifted down and masked is the operand of a multiply-add of 4-byte lanes:
 *   8 bits   8 vectors: vector t has quad t
 *   4 bits   4 vectors: the low half of each byte is quad 2 t, the high half quad 2 t + 1
 *   2 bits   2 vectors: bits 2 i, 2 i + 1 are quad 4 t + i
 *   1 bit    1 vector:  bit i is quad i
 * Codes of 3, 5 and 6 bits are a plane of 2, 4 and 4 low bits, then one of 1, 1 and 2 high bits. */
#ifndef EK_OPS_PLANES_H
#define EK_OPS_PLANES_H

#include "ops/linear/linear_layout.h"

enum { EK_UNIT = 32 }; /* inputs */

static inline size_t ek_planes_unit_bytes(const ek_linear *w)
{
    return (size_t)EK_UNIT * EK_PANEL / 8 * (size_t)w->bits;
}

static inline size_t ek_planes_scale_bytes(const ek_linear *w) /* of a block */
{
    const size_t groups = (size_t)(w->block / w->group), one = EK_PANEL * (w->biased ? 2 : 1);
    switch (w->scale) {
    case EK_SCALE_PLAIN: return 2 * one;
    case EK_SCALE_E8M0: return EK_PANEL;
    case EK_SCALE_E4M3: return EK_PANEL * groups;
    case EK_SCALE_U4: return 2 * one + EK_PANEL * groups;
    default: return one * (2 + groups);
    }
}

static inline size_t ek_planes_block_bytes(const ek_linear *w)
{
    return ek_planes_scale_bytes(w) + (size_t)(w->block / EK_UNIT) * ek_planes_unit_bytes(w);
}

/* Bytes after the blocks of a panel: factors of SCALE_E4M3. */
static inline size_t ek_planes_tail_bytes(const ek_linear *w)
{
    return w->scale == EK_SCALE_E4M3 ? EK_PANEL * sizeof(float) : 0;
}

/* Bits of the low plane: 8, 4 or 2. */
static inline int ek_planes_low(int bits)
{
    return bits == 8 ? 8 : bits >= 4 ? 4 : 2;
}

/* The start of I in units of -X: codes are read as u, a codebook's as c + 128. */
static inline int ek_planes_offset(const ek_linear *w)
{
    return w->book ? 128 : w->zero;
}

/* Plans w's block and sizes. EUNSUPPORTED: the type has no kernel. */
ek_err ek_planes_plan(ek_linear *w, const ek_weight_type *type);
ek_err ek_planes_pack(ek_linear *w, int row, const ek_weight_data *src); /* like ek_linear_pack */
void ek_planes_row(const ek_linear *w, int row, float *out);             /* like ek_linear_row */

/* Centred codes c[n] of output o of a panel at inputs [k, k + n), whole blocks, n <= EK_KBLOCK_Q, and the scale of each
 * of their groups, with the bias if biased. */
void ek_planes_read(const ek_linear *w, const uint8_t *panel, int o, int k, int n, int8_t *c, float *s, float *b);

#endif
