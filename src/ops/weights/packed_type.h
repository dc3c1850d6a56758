/* Integer weights as quantisers of PyTorch models store them. Their values are those of ops/weights/weight_type.h,
 *     value = s * (u - zero), or with zero points fma(s, u, -(s * z)), which is s * (u - z) rounded once
 * (s * z is exact: 8 bits times at most 24), so each is one of the affine types as far as arithmetic goes, and has its
 * name; only where codes, scales and zero points lie differs.
 *
 *   BITS   compressed-tensors, pack-quantized: a row is one little-endian bit string of codes + 2^(bits-1); scales
 *          [rows][groups]; zero points + 2^(bits-1) packed along the rows, [ceil(rows bits / 32)][groups] words
 *   BYTES  compressed-tensors, int-quantized: a signed byte per code; scales as above, no zero points
 *   GPTQ   words [k bits / 32][rows], codes along k; scales [groups][rows]; zero points less one [groups][rows bits /
 * 32] GPTQ2  the same, zero points as they are AWQ    words [k][rows / 8] of 4 bits, row 8 j + c at nibble 0 4 1 5 2 6
 * 3 7 [c]; scales [groups][rows]; zero points [groups][rows / 8] in that order Planes: 0 codes, 1 scales, 2 zero
 * points. ek_weight_data.groups and .across say how they are laid out. Sources: compressed-tensors,
 * compressors/pack_quantized/helpers.py; AutoGPTQ, qlinear_cuda.py; AutoAWQ, utils/packing_utils.py. */
#ifndef EK_OPS_PACKED_TYPE_H
#define EK_OPS_PACKED_TYPE_H

#include "ops/weights/weight_type.h"

typedef enum ek_packing { EK_PACK_BITS, EK_PACK_BYTES, EK_PACK_GPTQ, EK_PACK_GPTQ2, EK_PACK_AWQ } ek_packing;

/* group: weights that share a scale: 32, 64 or 128; where one scale serves a whole row or tensor, 64 (it is repeated).
 * bits: 4 or 8 (BYTES 8, AWQ 4). scales: F32, F16, BF16. zeros: has zero points; GPTQ and AWQ always have. *out is
 * static. EINVAL lists the possible values. */
ek_err ek_weight_type_packed(const ek_weight_type **out, ek_packing packing, int bits, int group, ek_dtype scales,
                             bool zeros);

#endif
