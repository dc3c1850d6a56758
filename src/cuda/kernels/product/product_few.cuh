// Products of Form Q for few rows (contract: ops/linear/linear.h), for one matrix or several in a launch.
#pragma once

#include "cuda/kernels/product/product_fragment.cuh"

namespace ek
{

// Few rows. A block takes panels one after the other; warp w of n takes units w, w + n, ... of each. Every lane copies
// its data into its own ring, ahead of the computation and across the panels' edges, so it only waits for itself. Group
// values t go to shared memory. The block then adds them with a thread per leaf of an output, so chains are ascending
// in any division among warps. OCT columns of 8.
constexpr int SLOTS = 4;

// Rows [row0, ...) up to a.rows; record(r) is the address of row r of x.
template <int BITS, int LIMBS, int A, int OCT, class R>
__device__ __forceinline__ void few(const ek_cuda_linear_args &a, int row0, R record)
{
    constexpr int CODE = BITS * 128, SUB = 64 / A, PER = 8 / LIMBS, ROWS = OCT * PER, VALUES = 16 * ROWS;
    EK_DYNAMIC_SHARED(uint8_t, base);
    const int tid = threadIdx.x, lane = tid % 32, w = tid / 32, warps = blockDim.x / 32, g = lane / 4, t = lane % 4;
    const int k = a.x.k, units = (k + 63) / 64, panels = (a.n + 15) / 16, sb = scale_bytes(a);
    const int leaves = (units + 15) / 16, rows = min(ROWS, a.rows - row0), groups = k >> a.group_shift;
    const int slot_bytes = CODE + SUB * 32 * sb + OCT * 512;
    uint8_t *ring = base + w * SLOTS * slot_bytes;
    float *value = (float *)(base + warps * SLOTS * slot_bytes), *leaf = value + min(units, a.pass) * SUB * VALUES;
    const uint8_t *rec[OCT]; // of the lane's column; 0: no such row
    const float2 *act[OCT][LIMBS == 1 ? 2 : 1];
#pragma unroll
    for (int o = 0; o < OCT; o++) {
        int r = row0 + o * PER + g / LIMBS;
        rec[o] = r < a.rows ? record(r) + (g % LIMBS) * a.x.low : 0;
#pragma unroll
        for (int c = 0; c < (LIMBS == 1 ? 2 : 1); c++) {
            r = min(row0 + o * PER + (LIMBS == 1 ? 2 * t + c : t), a.rows - 1);
            act[o][c] = (const float2 *)(record(r) + a.x.groups[LIMBS - 1]);
        }
    }

    int fetch_panel = w < units ? (int)blockIdx.x : panels, fetch_unit = w, filled = 0;
    auto fetch_weights = [&](int slot) {
        uint8_t *to = ring + slot * slot_bytes;
        const uint8_t *from = (const uint8_t *)a.codes + ((int64_t)fetch_panel * units + fetch_unit) * CODE + lane * 16;
        copy_async<16>(to + lane * 16, from);
        if (BITS == 8) copy_async<16>(to + 512 + lane * 16, from + 512);
#pragma unroll
        for (int s = 0; s < SUB; s++) {
            int at = min((fetch_unit * 64 + s * A) >> a.group_shift, groups - 1);
            copy_scales(to + CODE + (s * 32 + lane) * sb,
                        (const uint8_t *)a.scales + (((int64_t)fetch_panel * groups + at) * 8 + g) * sb, sb);
        }
    };
    auto fetch_acts = [&](int slot, int unit) {
        uint8_t *to = ring + slot * slot_bytes + CODE + SUB * 32 * sb + lane * 16;
#pragma unroll
        for (int o = 0; o < OCT; o++) {
            if (!rec[o]) continue;
            if (A == 64) copy_shared16(to + o * 512, rec[o] + unit * 64 + t * 16);
            else if (A == 16) {
#pragma unroll
                for (int s = 0; s < 4; s++) copy_async<4>(to + o * 512 + s * 4, rec[o] + unit * 64 + s * 16 + t * 4);
            } else {
                copy_async<8>(to + o * 512, rec[o] + unit * 64 + t * 8);
                copy_async<8>(to + o * 512 + 8, rec[o] + unit * 64 + 32 + t * 8);
            }
        }
    };
    auto next = [&]() {
        fetch_unit += warps;
        if (fetch_unit >= units) fetch_unit = w, fetch_panel += gridDim.x;
    };
    let_next_start();
    int first_unit[SLOTS - 1];
#pragma unroll
    for (int s = 0; s < SLOTS - 1; s++) {
        first_unit[s] = -1;
        if (fetch_panel >= panels) continue;
        first_unit[s] = fetch_unit;
        fetch_weights(s);
        next();
    }
    wait_for_previous(); // weights do not depend on the previous kernel, activations do
#pragma unroll
    for (int s = 0; s < SLOTS - 1; s++) {
        if (first_unit[s] >= 0) fetch_acts(s, first_unit[s]);
        copy_commit();
    }
    filled = SLOTS - 1;
    int slot = 0;
    for (int p = blockIdx.x; p < panels; p += gridDim.x) {
        for (int u0 = 0; u0 < units; u0 += a.pass) {
            const int u1 = min(units, u0 + a.pass);
            for (int u = u0 + w; u < u1; u += warps) {
                if (fetch_panel < panels) {
                    fetch_weights(filled), fetch_acts(filled, fetch_unit);
                    next();
                }
                copy_commit();
                if (++filled == SLOTS) filled = 0;
                float x[OCT][SUB][LIMBS == 1 ? 2 : 1];
                if (a.biased)
#pragma unroll
                    for (int o = 0; o < OCT; o++)
#pragma unroll
                        for (int s = 0; s < SUB; s++)
#pragma unroll
                            for (int c = 0; c < (LIMBS == 1 ? 2 : 1); c++)
                                x[o][s][c] = (u * SUB + s) * A < k ? act[o][c][u * SUB + s].y : 0;
                copy_wait<SLOTS - 1>();
                const uint8_t *at = ring + slot * slot_bytes;
                u32 code[8];
                read_codes<BITS>(at + lane * 16, code);
                const uint8_t *b = at + CODE + SUB * 32 * sb + lane * 16;
#pragma unroll
                for (int s = 0; s < SUB; s++) {
                    float scale[2], bias[2];
                    read_scales(a, at + CODE + (s * 32 + lane) * sb, scale, bias);
                    float *to = value + ((u - u0) * SUB + s) * VALUES;
#pragma unroll
                    for (int o = 0; o < OCT; o++) {
                        group_product<BITS, LIMBS, A> r;
                        r.run(code, *(const uint4 *)(b + o * 512), s);
#pragma unroll
                        for (int h = 0; h < 2; h++) {
                            float *v = to + (o * 16 + g + h * 8) * PER;
                            if (LIMBS == 1)
                                *(float2 *)(v + 2 * t) = make_float2(
                                    group_value(scale[h], bias[h], r.i[h][0], x[o][s][0], a.biased),
                                    group_value(scale[h], bias[h], r.i[h][LIMBS == 1], x[o][s][LIMBS == 1], a.biased));
                            else v[t] = group_value(scale[h], bias[h], r.i[h][0], x[o][s][0], a.biased);
                        }
                    }
                }
                if (++slot == SLOTS) slot = 0;
            }
            __syncthreads();
            const int some = (u1 - u0 + 15) / 16;
            for (int i = tid; i < some * 16 * rows; i += blockDim.x) {
                int l = i / (16 * rows), r = i / 16 % rows, v = (r / PER * 16 + i % 16) * PER + r % PER;
                r += row0;
                const float2 *sx = (const float2 *)(record(r) + a.x.groups[LIMBS - 1]) + (u0 + l * 16) * SUB;
                int n = min(16 * SUB, k / A - (u0 + l * 16) * SUB);
                const float *in = value + l * 16 * SUB * VALUES + v;
                float sum = 0;
                if (n == 16 * SUB) {
#pragma unroll 8
                    for (int j = 0; j < 16 * SUB; j++) sum = fma_(in[j * VALUES], sx[j].x, sum);
                } else
                    for (int j = 0; j < n; j++) sum = fma_(in[j * VALUES], sx[j].x, sum);
                leaf[(u0 / 16 + l) * VALUES + v] = sum;
            }
            __syncthreads();
        }
        for (int i = tid; i < 16 * rows; i += blockDim.x) {
            int out = p * 16 + i % 16, r = i / 16, v = (r / PER * 16 + i % 16) * PER + r % PER;
            if (out < a.n)
                ((float *)a.y)[(row0 + r) * a.ldy + out] = tree_sum([&](int j) { return leaf[j * VALUES + v]; },
                                                                    leaves);
        }
        // leaves are written again only after the next panel's first barrier
    }
    copy_wait<0>();
}

} // namespace ek
