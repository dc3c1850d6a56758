/* The kernels of attention for x86-64; each equals the scalar definition bit for bit. */
#ifndef EK_OPS_X86_ATTN_X86_H
#define EK_OPS_X86_ATTN_X86_H

#include "ops/attn/attn_kernels.h"
#include "ops/attn/attn_near.h"
#include "ops/attn/attn_rows.h"

/* Each overwrites the slots for which it has kernels. */
void ek_attn_table_avx2(ek_attn_ops *ops);
void ek_attn_table_avxvnni(ek_attn_ops *ops);
void ek_attn_table_avx512(ek_attn_ops *ops);
void ek_attn_table_zen4_avx512(ek_attn_ops *ops);
void ek_attn_table_amx(ek_attn_ops *ops);

void ek_attn_rows_table_avx2(ek_attn_rows_ops *ops);
void ek_attn_rows_table_avx512(ek_attn_rows_ops *ops);
void ek_attn_rows_table_bf16(ek_attn_rows_ops *ops); /* EK_CPU_BF16: by VDPBF16PS */

ek_near_fn ek_near_avx2, ek_near_avx512;

#endif
