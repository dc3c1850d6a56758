// Products of prompts by wgmma for GGUF weights in groups of 32 with f16 scales, and the arrangement of their rows
// (contract: ops/linear/linear.h).
#include "cuda/kernels/product/wide_kernels.cuh"

using namespace ek;

EK_WIDE(q4h_32, 4, 1, 32)
EK_WIDE(q4h_32, 4, 2, 32)
EK_WIDE(q8h_32, 8, 1, 32)
EK_WIDE(q8h_32, 8, 2, 32)

EK_WIDE_SHORT(q4h_32, 1, 32)
EK_WIDE_SHORT(q4h_32, 2, 32)

EK_WIDE_GATE(q4h_32_l1_wide_gate, 32, JOB_SHORT) // also for experts; without the loop there are too few registers

EK_WIDE_HEADS(q4h_32, 4, 32)

EK_ARRANGE(32, 1, 32)
EK_ARRANGE(32, 2, 32)
