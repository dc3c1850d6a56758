// Products of Form Q for many rows by wgmma, and the arrangement of their rows (contract: ops/linear/linear.h).
#include "cuda/kernels/product/wide_kernels.cuh"

using namespace ek;

EK_WIDE(q4, 4, 1, 64)
EK_WIDE(q4, 4, 2, 64)
EK_WIDE(q8, 8, 1, 64)
EK_WIDE(q8, 8, 2, 64)

EK_WIDE_GATE(q4_l1_wide_gate, 64, 0)
EK_WIDE_GATE(q4_l1_wide_gate_jobs, 64,
             JOB_SHORT) // for experts; a separate kernel, because the loop costs 2 % if it is not used

EK_WIDE_HEADS(q4, 4, 64)

EK_ARRANGE(, 1, 64)
EK_ARRANGE(, 2, 64)
