/* Float weights that become 8-bit integers while they are packed (--weights 8). They take a third to a half of the
 * memory and of the bytes read per token, and their products are computed in integers. The loss: docs/NUMERICS.md 10.
 *
 * Per group of 64 weights, or of 32 if 64 does not divide k, in this order, in binary32:
 *     a = max |w|;  a < 2^-100: s = 0, every code 0;  otherwise  s = a / 127,  r = 127 / a
 *     code = w * r rounded to nearest even, in [-127, 127];  value = s * code
 * The result is a pure function of the group's weights. If a group has a NaN or an infinity, its scale is not finite,
 * so the logits are not finite either and are refused. */
#ifndef EK_OPS_QUANTISED_TYPE_H
#define EK_OPS_QUANTISED_TYPE_H

#include "ops/weights/weight_type.h"

/* The type for rows of k elements of a float type, whose stored form does not change: "bf16@q8.64". NULL if 32 does not
 * divide k, or if floats is not a float type. */
const ek_weight_type *ek_weight_type_quantised(const ek_weight_type *floats, int k);

/* Weights that are floats of 4 or 8 bits in safetensors, under scales. Blocks of GGUF are in the table of
 * weight_type.c.
 *
 * Planes: 0 codes, row after row; 1 scales. Codes of 4 bits: element i of a row is a nibble, the low one first.
 *   NVFP4  E2M1, an E4M3 scale per 16 inputs, one float32 (ek_weight_data.gain) for all:
 *          s = (gain * 128) * (E4M3 / 256), rounded once;  value = s * (2 * E2M1). Form PLANES, as GGUF's nvfp4.
 *   MXFP4  E2M1, an E8M0 scale per 32: value = 2^(e - 128) * (2 * E2M1), exact. Form PLANES, as GGUF's mxfp4.
 *   MXFP8  E4M3 or E5M2, an E8M0 scale per 32.  fp8  the same elements, a float scale per tensor, row or tile
 *          (ek_weight_data.tile_rows, .tile_k): value = element * scale as float32, rounded to bf16. Form BF16: these
 *          are the bits that transformers' dequantised checkpoints have, twice the bytes of the file. Of MXFP8 nothing
 *          is rounded that is not below 2^-126.
 * What is no number: E4M3 0x7f, but 480 in MLX's files; E8M0 255. A scale that is none refuses the matrix when it is
 * packed, an element gives logits that are no numbers, which are refused.
 * Sources: OCP Microscaling 1.0 and 8-bit Floating Point 1.0; compressed-tensors; MLX, fp_quantized.h. */

typedef enum ek_minifloat {
    EK_MINI_NVFP4,
    EK_MINI_NVFP4_MLX,
    EK_MINI_MXFP4,
    EK_MINI_MXFP8,
    EK_MINI_MXFP8_MLX,
    EK_MINI_MXFP8_E5M2,
    EK_MINIFLOATS
} ek_minifloat;

const ek_weight_type *ek_weight_type_minifloat(ek_minifloat kind);

/* fp8 of elements F8_E4M3 or F8_E5M2 and scales F32, F16 or BF16; NULL for others. */
const ek_weight_type *ek_weight_type_fp8(ek_dtype elements, ek_dtype scales);

/* All types of both kinds; those of bf16 come last, for --weights 8. */
enum { EK_MINIFLOAT_TYPES = EK_MINIFLOATS + 6 };
extern const ek_weight_type ek_minifloat_types[EK_MINIFLOAT_TYPES];

/* Integer weights in the layouts of quantisers for PyTorch. Their values are those of ops/weights/weight_type.h,
 *     value = s * (u - zero), or with zero points fma(s, u, -(s * z)), which is s * (u - z) rounded once
 * (s * z is exact: 8 bits times at most 24). So the arithmetic of each is that of an affine type, and it has that
 * type's name. Only the places of codes, scales and zero points differ:
 *
 *   BITS   compressed-tensors, pack-quantized: a row is one little-endian bit string of codes + 2^(bits-1);
 *          scales [rows][groups]; zero points + 2^(bits-1) packed along the rows: words [ceil(rows bits / 32)][groups]
 *   BYTES  compressed-tensors, int-quantized: a signed byte per code; scales as above, no zero points
 *   GPTQ   words [k bits / 32][rows], codes along k; scales [groups][rows];
 *          zero points less one, [groups][rows bits / 32]
 *   GPTQ2  the same, but zero points without the less one
 *   AWQ    words [k][rows / 8] of 4 bits, row 8 j + c at nibble 0 4 1 5 2 6 3 7 [c]; scales [groups][rows];
 *          zero points [groups][rows / 8] in that order
 *
 * Planes: 0 codes, 1 scales, 2 zero points. ek_weight_data.groups and .across describe their layout.
 * Sources: compressed-tensors, compressors/pack_quantized/helpers.py; AutoGPTQ, qlinear_cuda.py; AutoAWQ,
 * utils/packing_utils.py. */

typedef enum ek_packing { EK_PACK_BITS, EK_PACK_BYTES, EK_PACK_GPTQ, EK_PACK_GPTQ2, EK_PACK_AWQ } ek_packing;

/* group: weights that share a scale: 32, 64 or 128; 64 if a whole row or tensor has one scale (it is repeated).
 * bits: 4 or 8 (BYTES 8, AWQ 4). scales: F32, F16, BF16. zeros: has zero points; GPTQ and AWQ always have. *out is
 * static. EINVAL lists the possible values. */
ek_err ek_weight_type_packed(const ek_weight_type **out, ek_packing packing, int bits, int group, ek_dtype scales,
                             bool zeros);

/* Floats of 4 and 8 bits, as MXFP4, MXFP8 and NVFP4 use them. Sources: OCP Microscaling Formats 1.0; MLX for values
 * out of range. */

float ek_e2m1_f32(unsigned code); /* 4 bits; larger codes must not be passed */
float ek_e4m3_f32(unsigned byte); /* 0x7f is 480: as MLX decodes it */
float ek_e8m0_f32(unsigned byte); /* 2^(byte - 127); 255 is infinity */

unsigned ek_f32_e2m1(float x); /* to nearest, ties to the even code; saturates at 6 */
unsigned ek_f32_e4m3(float x); /* to nearest, ties to even; saturates at 448; NaN gives 0x7e */
unsigned ek_f32_e8m0(float x); /* the power of two nearest to x >= 0 in the logarithm; infinity and NaN give 255 */

/* Readers of GGUF's block formats, one per row of the table in weight_type.c, and the codebooks. */

/* Codebooks of four bits: centred codes by index. */
extern const int8_t ek_iq4_values[16];
extern const int8_t ek_e2m1_doubled[16]; /* E2M1 times 2: 0, .5, 1, 1.5, 2, 3, 4, 6 and the same negated */

/* 2^(e - 128): half of E8M0's value, for doubled E2M1. e = 0 and 1 are subnormal. */
static inline float ek_e8m0_half(uint8_t e)
{
    return ek_bits_f32(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

/* E4M3 / 256, which is a binary16: the scale of EK_SCALE_E4M3. 0x7f is 480 / 256. */
static inline float ek_e4m3_half(uint8_t byte)
{
    return ek_f16_f32((ek_f16)((byte & 0x80) << 8 | (byte & 0x7f) << 7));
}

/* d of EK_SCALE_E4M3: half the gain, for doubled E2M1, times 256. */
static inline float ek_e4m3_factor(const ek_weight_data *w)
{
    return (w->gain != 0 ? w->gain : 1) * 128;
}

ek_unpack_fn ek_unpack_q4_0, ek_unpack_q4_1, ek_unpack_q5_0, ek_unpack_q5_1, ek_unpack_q8_0;
ek_unpack_fn ek_unpack_q2_k, ek_unpack_q3_k, ek_unpack_q4_k, ek_unpack_q5_k, ek_unpack_q6_k;
ek_unpack_fn ek_unpack_iq4_nl, ek_unpack_iq4_xs, ek_unpack_mxfp4, ek_unpack_nvfp4;
ek_subscales_fn ek_subscales_32, ek_subscales_mxfp4, ek_subscales_q2_k, ek_subscales_q3_k, ek_subscales_q45_k,
    ek_subscales_q6_k, ek_subscales_iq4_xs, ek_subscales_nvfp4;

#endif
