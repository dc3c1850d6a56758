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
#ifndef EK_OPS_MINIFLOAT_TYPE_H
#define EK_OPS_MINIFLOAT_TYPE_H

#include "ops/weights/weight_type.h"

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

/* All of both; those of bf16 come last, for --weights 8. */
enum { EK_MINIFLOAT_TYPES = EK_MINIFLOATS + 6, EK_MINIFLOAT_BF16 = EK_MINI_MXFP8 };
extern const ek_weight_type ek_minifloat_types[EK_MINIFLOAT_TYPES];

#endif
