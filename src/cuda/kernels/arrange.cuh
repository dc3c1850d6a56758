// Writes records of quantised rows in the order of products by wgmma (wide_product.cuh).
#pragma once

#include "cuda/kernels/device.cuh"
#include "cuda/model_args.h"

namespace ek
{

// Activations in the order of a tile of wide_product: per COLUMNS columns and two units, codes in wgmma's rows of 128
// bytes (mma.cuh), then {sx, X} of ROWS rows for the first unit and for the second. A thread writes 16 bytes of a
// column's unit; grid.y: tiles of rows, or jobs.
//
// Groups of 32: a piece's words are 2 apart in a half of the unit. Only sx follows: for a unit's first group, then for
// its second.
template <int LIMBS, int COLUMNS, int A = 64> __device__ __forceinline__ void arrange(const ek_cuda_arrange_args &p)
{
    constexpr int ROWS = COLUMNS / LIMBS, ACTS = COLUMNS * 128, SX = ROWS * 8,
                  PAIR = (ACTS + 2 * SX + 1023) / 1024 * 1024;
    const int units = p.x.k / 64, pairs = (units + 1) / 2, i = blockIdx.x * 256 + threadIdx.x, q = i & 3,
              n = i / 4 / units, u = i / 4 - n * units;
    let_next_start();
    wait_for_previous();
    int first = blockIdx.y * ROWS, end = p.rows;
    if (p.jobs) {
        if (blockIdx.y >= *(const u32 *)p.n_jobs) return;
        const ek_cuda_job job = ((const ek_cuda_job *)p.jobs)[blockIdx.y];
        first = job.first, end = job.first + job.n;
    }
    if (n >= COLUMNS) return;
    int r = min(first + n / LIMBS, end - 1);
    if (p.index) r = ((const int32_t *)p.index)[r];
    const uint8_t *record = (const uint8_t *)p.x.q + r * p.x.ldq;
    uint8_t *to = (uint8_t *)p.operand + ((int64_t)blockIdx.y * pairs + u / 2) * PAIR;
    const uint8_t *groups = record + p.x.groups[LIMBS - 1];
    const u32 *from = (const u32 *)(record + n % LIMBS * p.x.low + u * 64) +
                      (A == 64 ? q : q / 2 * 8 + q % 2); // a word of each lane t of a fragment
    constexpr int STEP = A == 64 ? 4 : 2;
    *(uint4 *)(to + n * 128 + (((u & 1) * 4 + q) ^ n % 8) * 16) = make_uint4(from[0], from[STEP], from[2 * STEP],
                                                                             from[3 * STEP]);
    if (q || n % LIMBS) return;
    to += ACTS + (u & 1) * SX;
    if (A == 64) {
        *(uint2 *)(to + n / LIMBS * 8) = *(const uint2 *)(groups + u * 8);
    } else {
        *(float *)(to + n / LIMBS * 4) = *(const float *)(groups + u * 16);
        *(float *)(to + SX / 2 + n / LIMBS * 4) = *(const float *)(groups + u * 16 + 8);
    }
}

} // namespace ek
