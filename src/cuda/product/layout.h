/* The layout of weights on the device, and of rows of activations. A matrix is laid out once, from the CPU's packed
 * panels (ops/linear/linear_layout.h). The formula of products: ops/linear/linear.h.
 *
 * Form F: the CPU's panels as they are. Form Q: two arrays,
 *   codes   for each panel of 16 outputs the units of 64 inputs, one after the other. A unit has 16 (Q4) or
 *           32 (Q8) bytes for each of the 32 lanes of a warp, in the order of the fragments of two mma.sync
 *           m16n8k32: word i of step j of lane l holds output g + 8 (i & 1) and inputs
 *           k + 4 (i >> 1) + {0, 1, 2, 3}, where g = l / 4, t = l % 4 and k = 16 t + 8 j with activations in
 *           groups of 64, 32 j + 8 t in groups of 32; in groups of 16 (four m16n8k16) inputs 32 j + 16 (i >> 1) + 4 t
 *           + {0, 1, 2, 3}. Q8: c in a byte, the first steps of all lanes, then the
 *           second. Q4: c in two's complement, 4 words per lane: words 2 j and 2 j + 1 hold words 0 and 1 of step
 *           j in their low and words 2 and 3 in their high nibbles. Inputs past k are zeros. On Vulkan the 16
 *           bytes of lane l (of a step, Q8) are number 8 t + g instead of l, so that threads read them side by side.
 *   scales  for each panel and group of weights, for g = 0 .. 7: s and b of output g, then of g + 8; bf16, f16 or
 *           f32. Without biases there is no b.
 * Panels come to the device as the CPU packed them; ek_pack_q and ek_pack_planes (cuda/model_args.h) write them there.
 *
 * Weights with their file's own scales (ops/linear/planes.h: GGUF, NVFP4): codes of up to 4 bits with groups of 32 are
 * nibbles, all others bytes. A codebook's codes are its values. Scales:
 *   SCALE_PLAIN  f16 s and b, as in the file
 *   SCALE_E8M0   bf16, which holds every power of two that occurs
 *   others       the f32 that ops/linear/planes.h computes from them */
#ifndef EK_CUDA_PRODUCT_LAYOUT_H
#define EK_CUDA_PRODUCT_LAYOUT_H

#include "cuda/args.h"
#include "cuda/driver.h"
#include "cuda/model_args.h"
#include "ops/linear/linear.h"

typedef struct ek_cuda_linear {
    ek_wform form;
    int n, k, n_panels, units; /* units of 64 inputs; Form F: 0 */
    int group, a_group, bits;  /* bits as stored on the device: 4 or 8 */
    int limbs, zero;
    bool biased, f32_scales, f16_scales; /* scales: neither: bf16 */
    size_t code_bytes, scale_bytes;      /* over all panels, each a multiple of 64 */
    size_t bytes;                        /* the scales follow the codes */
} ek_cuda_linear;

/* The device's layout of w. EUNSUPPORTED: k above 65,280 (Form F) or 261,120 (Form Q), or a scale rule without kernels.
 */
ek_err ek_cuda_linear_plan(ek_cuda_linear *out, const ek_linear *w);

/* Bytes of s (with b, if biased) of one output and group. */
size_t ek_cuda_linear_scale(const ek_cuda_linear *l);

/* Whether two matrices may share a launch. */
bool ek_cuda_linear_alike(const ek_cuda_linear *a, const ek_cuda_linear *b);

/* The fields of args that follow from the matrix: codes, scales, n, group, ..., x.k. */
void ek_cuda_linear_args_of(ek_cuda_linear_args *args, const ek_cuda_linear *l, CUdeviceptr weights);
/* The same for ek_pack_planes. */
void ek_cuda_planes_args(ek_cuda_pack_planes_args *args, const ek_cuda_linear *l, const ek_linear *w);

/* --- formats for which kernels of products are compiled, and their names --- */

/* MLX's: bf16 scales and biases, groups of 64 of weights and activations. */
bool ek_cuda_affine_64(const ek_cuda_linear *l);
/* f16 scales without biases, groups of 32, whole units: the formats of own_scales for which wgmma kernels exist,
 * too. */
bool ek_cuda_half_32(const ek_cuda_linear *l);
/* The formats with groups of 32 or 16, also of activations, with their file's own scales. The leaves of two panels have
 * to fit into a block's shared memory. Excludes ek_cuda_affine_64. */
bool ek_cuda_own_scales(const ek_cuda_linear *l);

/* Bits, scales and groups in a kernel's name: q4 or q8 for MLX's; otherwise bits, the scales' type (h f16, b bf16, f
 * f32), m with biases, and the group: q4h_32, q8fm_32, q8f_16. */
typedef struct ek_cuda_kind {
    char name[16];
} ek_cuda_kind;
ek_cuda_kind ek_cuda_kind_of(const ek_cuda_linear *l);

/* --- rows of activations --- */

/* The layout of a quantised row: fills everything but q. Returns the bytes per row, a multiple of 64. */
size_t ek_cuda_acts_plan(ek_cuda_acts *a, int k, int a_group);

#endif
