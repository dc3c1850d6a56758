// Products of Form Q for some dozens of rows, with bf16 scales and biases and groups of 64 (contract: ops/linear.h), of one
// matrix or of two that read the same rows (blocks z = 1).
//
// A block computes 4 panels for up to 64 columns (rows of activations, or with two limbs half as many rows), a warp one
// panel for 32 columns; blocks of 4 warps where rows are few. Two units of 64 inputs at a time go through shared memory.
// Chains stay in registers; nodes of T lie in shared memory, in a place of their thread's own. A part is a node of T:
// 2^n leaves of 1024 inputs.
#include "cuda/kernels/product.cuh"
#include "cuda/model_args.h"

using namespace ek;

constexpr int PANELS = 4, OCTS = 4, PAIR = 2, SCALES = 64, LEAF_UNITS = 16;

template <int BITS, int LIMBS> struct wide_product {
    static constexpr int CODE = BITS * 128, PER = LIMBS == 1 ? 2 : 1, SUMS = 2 * OCTS * PER; // of a lane
    static constexpr int CODES = PANELS * PAIR * CODE, WEIGHTS = CODES + PANELS * PAIR * SCALES;

    const ek_cuda_linear_args &a;
    u64 codes, scales;
    int units, panels, p0, row0, rows, columns; // columns: of the block, 32 or 64
    uint8_t *ring;
    int stage; // bytes

    __device__ __forceinline__ const uint8_t *record(int r) const
    {
        return (const uint8_t *)a.x.q + (row0 + r) * a.x.ldq;
    }

    __device__ __forceinline__ void fetch_weights(int u, uint8_t *to) const
    {
        const int some = min(PAIR, units - u);
        for (int i = threadIdx.x; i < CODES / 16; i += blockDim.x) {
            const int p = i / (PAIR * CODE / 16), at = i % (PAIR * CODE / 16) * 16;
            if (at < some * CODE) copy_async<16>(to + i * 16, (const uint8_t *)codes + ((int64_t)min(p0 + p, panels - 1) * units + u) * CODE + at);
        }
        if (threadIdx.x < PANELS * PAIR * SCALES / 16) {
            const int p = threadIdx.x / (PAIR * SCALES / 16), at = threadIdx.x % (PAIR * SCALES / 16) * 16;
            if (at < some * SCALES)
                copy_async<16>(to + CODES + threadIdx.x * 16, (const uint8_t *)scales + ((int64_t)min(p0 + p, panels - 1) * units + u) * SCALES + at);
        }
    }

    // Columns as [unit][column][64], then {sx, X} of both units as [row][2].
    __device__ __forceinline__ void fetch_rows(int u, uint8_t *to) const
    {
        for (int i = threadIdx.x; i < columns * 8; i += blockDim.x) {
            const int c = i / 8, half = i / 4 % 2, q = i % 4 * 16;
            if (u + half < units && row0 + c / LIMBS < rows) // columns of no row hold anything
                copy_async<16>(to + WEIGHTS + (half * columns + c) * 64 + q, record(c / LIMBS) + c % LIMBS * a.x.low + (u + half) * 64 + q);
        }
        if ((int)threadIdx.x < columns / LIMBS && row0 + (int)threadIdx.x < rows)
            copy_async<16>(to + WEIGHTS + columns * 128 + threadIdx.x * 16, record(threadIdx.x) + a.x.groups[LIMBS - 1] + u * 8);
    }

    __device__ __forceinline__ void add(const uint8_t *at, int w, int u, float (&sum)[2][OCTS][PER]) const
    {
        const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, p = w % PANELS, o0 = w / PANELS * OCTS;
        const uint8_t *x = at + WEIGHTS + columns * 128 + (o0 * 8 / LIMBS + t * PER) * 16;
#pragma unroll
        for (int half = 0; half < PAIR; half++) {
            if (u + half >= units) break;
            u32 code[8];
            float s[2], b[2];
            read_codes<BITS>(at + (p * PAIR + half) * CODE + lane * 16, code);
            const uint2 v = *(const uint2 *)(at + CODES + (p * PAIR + half) * SCALES + g * 8);
            const float zero = (float)a.zero;
            s[0] = bits(v.x << 16), b[0] = fma_(zero, s[0], bits(v.x & 0xffff0000u));
            s[1] = bits(v.y << 16), b[1] = fma_(zero, s[1], bits(v.y & 0xffff0000u));
#pragma unroll
            for (int o = 0; o < OCTS; o++) {
                group_product<BITS, LIMBS, 64> r;
                r.run(code, *(const uint4 *)(at + WEIGHTS + (half * columns + (o0 + o) * 8) * 64 + lane * 16), 0);
#pragma unroll
                for (int c = 0; c < PER; c++) {
                    const float2 sx = *(const float2 *)(x + (o * 8 / LIMBS + c) * 16 + half * 8);
#pragma unroll
                    for (int h = 0; h < 2; h++) sum[h][o][c] = fma_(fma_(b[h], sx.y, __fmul_rn(s[h], r.i[h][c])), sx.x, sum[h][o][c]);
                }
            }
        }
    }
};

template <int BITS, int LIMBS> __device__ __forceinline__ void wide(const ek_cuda_products_args &p)
{
    typedef wide_product<BITS, LIMBS> product;
    EK_DYNAMIC_SHARED(uint8_t, base);
    const ek_cuda_linear_args &a = p.a;
    const int tid = threadIdx.x, w = tid / 32, columns = blockDim.x / 4, stages = a.stages;
    const int units = a.x.k / 64, row_tiles = (a.rows * LIMBS + columns - 1) / columns, parts = a.split ? (units + a.split - 1) / a.split : 1;
    const int job = blockIdx.x / row_tiles, part = job % parts;
    product m = {a, blockIdx.z ? p.codes2 : a.codes, blockIdx.z ? p.scales2 : a.scales, units, (a.n + 15) / 16};
    m.p0 = job / parts * PANELS, m.columns = columns, m.row0 = blockIdx.x % row_tiles * (columns / LIMBS), m.rows = a.rows;
    m.ring = base, m.stage = product::WEIGHTS + columns * 128 + columns / LIMBS * 16;
    float *const nodes = (float *)(base + stages * m.stage) + tid; // [level][SUMS][threads]
    const int first = part * a.split, end = a.split ? min(units, first + a.split) : units;
    let_next_start();
    for (int i = 0; i < stages - 1 && first + i * PAIR < end; i++) m.fetch_weights(first + i * PAIR, base + i * m.stage);
    wait_for_previous(); // weights do not depend on it, rows do
    for (int i = 0; i < stages - 1; i++) {
        if (first + i * PAIR < end) m.fetch_rows(first + i * PAIR, base + i * m.stage);
        copy_commit();
    }
    float sum[2][OCTS][product::PER] = {};
    float *const s = &sum[0][0][0];
    auto join = [&](int level) {
#pragma unroll
        for (int i = 0; i < product::SUMS; i++) s[i] = nodes[(level * product::SUMS + i) * blockDim.x] + s[i];
    };
    int slot = 0, filled = stages - 1;
#pragma unroll 1
    for (int u = first; u < end; u += PAIR) {
        if (stages == 4) copy_wait<2>();
        else copy_wait<1>();
        __syncthreads();
        const int next = u + (stages - 1) * PAIR;
        if (next < end) m.fetch_weights(next, base + filled * m.stage), m.fetch_rows(next, base + filled * m.stage);
        copy_commit();
        if (++filled == stages) filled = 0;
        m.add(base + slot * m.stage, w, u, sum);
        if (++slot == stages) slot = 0;
        if ((u + PAIR) % LEAF_UNITS || u + PAIR >= end) continue; // a leaf, and more to come
        const int count = (u - first) / LEAF_UNITS;
        int level = 0;
        for (; count >> level & 1; level++) join(level);
#pragma unroll
        for (int i = 0; i < product::SUMS; i++) nodes[(level * product::SUMS + i) * blockDim.x] = s[i], s[i] = 0;
    }
    copy_wait<0>();
    const int before = (end - first - 1) / LEAF_UNITS; // leaves among the nodes
    for (int level = 0; before >> level; level++)
        if (before >> level & 1) join(level);
    const int g = tid % 32 / 4, t = tid % 4, o0 = w / PANELS * OCTS;
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int o = 0; o < OCTS; o++)
#pragma unroll
            for (int c = 0; c < product::PER; c++) {
                const int out = (m.p0 + w % PANELS) * 16 + g + h * 8, r = m.row0 + (o0 + o) * 8 / LIMBS + t * product::PER + c;
                if (out < a.n && r < a.rows) ((float *)(blockIdx.z ? p.y2 : a.y))[((int64_t)part * a.rows + r) * a.ldy + out] = sum[h][o][c];
            }
}

#define WIDE(BITS, LIMBS)                                                                                             \
    extern "C" __global__ void __launch_bounds__(256, 2)                                                              \
        ek_product_wide_q##BITS##_l##LIMBS(const __grid_constant__ ek_cuda_products_args p)                           \
    {                                                                                                                 \
        wide<BITS, LIMBS>(p);                                                                                         \
    }
WIDE(4, 1)
WIDE(4, 2)
WIDE(8, 1)
WIDE(8, 2)
