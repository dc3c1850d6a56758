/* The kernels of attn_near.h for x86-64; each equals the scalar definition bit for bit. */
#ifndef EK_OPS_X86_ATTN_NEAR_X86_H
#define EK_OPS_X86_ATTN_NEAR_X86_H

#include "ops/attn/attn_near.h"

ek_near_fn ek_near_avx2, ek_near_avx512;

#endif
