/* The kernels of linear.h, linear_b.h and decoded.h for x86-64; each equals the scalar definition bit for bit. */
#ifndef EK_OPS_X86_LINEAR_X86_H
#define EK_OPS_X86_LINEAR_X86_H

#include "ops/linear/decoded.h"
#include "ops/linear/linear.h"
#include "ops/linear/linear_b.h"

ek_quantize_fn ek_quantize_row_avx2, ek_quantize_row_avx512;
ek_linear_fn ek_linear_f32_avx2, ek_linear_f16_avx2, ek_linear_bf16_avx2, ek_linear_q4_avx2, ek_linear_q8_avx2;
ek_linear_fn ek_linear_f32_avx512, ek_linear_f16_avx512, ek_linear_bf16_avx512, ek_linear_q4_avx512,
    ek_linear_q8_avx512;
/* EK_CPU_ZEN4. The first function of PLANES leaves types without its kernels to the second, and that to the third. */
ek_linear_fn ek_linear_q4_avx512_zen4, ek_linear_q8_avx512_zen4, ek_linear_planes_avx512_zen4,
    ek_linear_planes_avx512_zen4_decoded, ek_linear_planes_avx512_zen4_panels;
ek_linear_fn ek_linear_q4_avxvnni, ek_linear_q8_avxvnni, ek_linear_planes_avxvnni;
ek_linear_fn ek_linear_planes_avx2, ek_linear_planes_avx512;
ek_linear_fn ek_linear_q4_amx, ek_linear_q8_amx, ek_linear_planes_amx;

/* Each overwrites the slots for which it has kernels. */
void ek_linear_b_table_avx2(ek_linear_b_ops *ops);
void ek_linear_b_table_avx512(ek_linear_b_ops *ops);
void ek_linear_b_table_bf16(ek_linear_b_ops *ops); /* EK_CPU_BF16: by VDPBF16PS */
void ek_decoded_table_avx2(ek_decoded_ops *ops);
void ek_decoded_table_avx512(ek_decoded_ops *ops);

#endif
