/* The kernels of attention for x86-64; each equals the scalar definition bit for bit. */
#ifndef EK_OPS_X86_ATTN_X86_H
#define EK_OPS_X86_ATTN_X86_H

#include "ops/attn/attn_kernels.h"

/* Each overwrites the slots that it has kernels for. */
void ek_attn_table_avx2(ek_attn_ops *ops);
void ek_attn_table_avxvnni(ek_attn_ops *ops);
void ek_attn_table_avx512(ek_attn_ops *ops);
void ek_attn_table_zen4(ek_attn_ops *ops);
void ek_attn_table_amx(ek_attn_ops *ops);

#endif
