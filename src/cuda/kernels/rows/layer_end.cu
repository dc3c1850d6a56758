// The end of a layer with per-layer inputs, from down's output to the input rows of q, k and v, for a row by a cluster
// of blocks (cuda/model_args.h). It contains two small products, each of which needs all earlier results; as launches
// of their own they would take as long as a launch each. Here a block loads its panels of both matrices into shared
// memory before down has ended. All blocks compute the parts that concern the whole row, and send each other the
// outputs of their panels.
//
// Few warps run it, and no step can begin before the previous one has ended, so its time is that of a chain of
// instructions.
#include "cuda/kernels/norm.cuh"
#include "cuda/kernels/product/format.cuh"
#include "cuda/kernels/quantize.cuh"
#include "cuda/model_args.h"

using namespace ek;

namespace
{

// A row of which a thread has elements first() .. first() + 7.
struct eights {
    float v[8];

    static __device__ __forceinline__ int first()
    {
        return threadIdx.x * 8;
    }

    __device__ __forceinline__ void read(const float *x, int n)
    {
        float4 a = make_float4(0, 0, 0, 0), b = a;
        if (first() < n) a = *(const float4 *)(x + first()), b = *(const float4 *)(x + first() + 4);
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    }

    __device__ __forceinline__ void write(float *x, bool there) const
    {
        if (!there) return;
        *(float4 *)(x + first()) = make_float4(v[0], v[1], v[2], v[3]);
        *(float4 *)(x + first() + 4) = make_float4(v[4], v[5], v[6], v[7]);
    }
};

// The sum of squares of x[0..n), n a multiple of 64: the lane's part of a block of 256; a half warp has one block.
__device__ __forceinline__ float block_squares(const float *x, int n)
{
    const int at = threadIdx.x / 16 * 256 + threadIdx.x % 16;
    float v[16], sum = 0;
#pragma unroll
    for (int i = 0; i < 16; i++) v[i] = at + i * 16 < n ? x[at + i * 16] : 0;
#pragma unroll
    for (int i = 0; i < 16; i++) sum = fma_(v[i], v[i], sum); // absent elements are 0 and change nothing
    return sum;
}

// 1 / root mean square of a row from its block_squares. leaf: 32 floats that no other code uses.
__device__ __forceinline__ float row_factor(float sum, int n, float eps, float *leaf)
{
    const int blocks = (n + 255) / 256;
    sum = add_lanes(sum);
    if (threadIdx.x % 16 == 0) leaf[threadIdx.x / 16] = sum; // leaves from `blocks` on are not read
    __syncthreads();
    return norm_factor(tree_of_leaves(leaf, blocks), n, eps);
}

constexpr int LEAF_UNITS = 1024 / 64;

// A product's inputs and weights in shared memory. All column pairs of the tensor cores' product are the one row, so
// the four lanes of an output share its groups and those of the output 8 behind it.
template <class F, int LIMBS> struct small_product {
    static constexpr int CODE = F::CODE, SCALES = F::SUB * F::SCALE; // bytes of a unit
    static constexpr int VALUES = F::SUB * 2,
                         EACH = VALUES < 4 ? 1 : VALUES / 4;       // of a unit, for outputs g and g + 8; of a lane
    static constexpr int TOGETHER = F::KIND == SCALES_F32 ? 1 : 2; // units: two of 8 bits with f32 scales spill
    static constexpr int LEAF_GROUPS = 1024 / F::A, STEP = 16;
    const uint8_t *codes, *x; // of the lane
    const float2 *groups;     // {sx, X}
    int units, all;           // of a panel, of the block
    u32 part;                 // 2^16 / units

    __device__ __forceinline__ small_product(const uint8_t *base, int weights, const ek_cuda_acts &in, int panels)
    {
        const int lane = threadIdx.x % 32;
        codes = base + weights;
        x = base + in.q + lane % 4 * (F::A / 4) + (LIMBS == 2 && lane & 4 ? in.low : 0);
        groups = (const float2 *)(base + in.q + in.groups[LIMBS - 1]);
        units = in.k / 64, all = panels * units, part = 65535 / units + 1;
    }

    // i % units, for i below 1024
    __device__ __forceinline__ int in_panel(int i) const
    {
        return i - units * (int)((u32)i * part >> 16);
    }

    __device__ __forceinline__ void fetch(u64 from, u64 scales, u64 *arrived) const
    {
        const int64_t first = (int64_t)blockIdx.x * all;
        copy_piece_once((void *)codes, (const uint8_t *)from + first * CODE, all * CODE, arrived);
        copy_piece_once((void *)(codes + all * CODE), (const uint8_t *)scales + first * SCALES, all * SCALES, arrived);
    }

    __device__ __forceinline__ uint4 row_of(int k) const
    {
        const uint8_t *from = x + k * 64;
        if (F::A == 64) return *(const uint4 *)from;
        if (F::A == 16)
            return make_uint4(*(const u32 *)from, *(const u32 *)(from + 16), *(const u32 *)(from + 32),
                              *(const u32 *)(from + 48));
        const uint2 v = *(const uint2 *)from, w = *(const uint2 *)(from + 32);
        return make_uint4(v.x, v.y, w.x, w.y);
    }

    // The lane's value n of a unit: its group and which of the two outputs.
    static __device__ __forceinline__ int place_of(int n)
    {
        return (threadIdx.x % 4 + n * 4) % VALUES;
    }

    // t (ops/linear/linear.h) of unit i: the lane's values.
    __device__ __forceinline__ void values_of(float (&t)[EACH], int i, float zero) const
    {
        const int lane = threadIdx.x % 32, k = in_panel(i);
        const uint8_t *scale = codes + all * CODE + i * SCALES + lane / 4 * F::LANE;
        u32 code[8];
        read_codes<F::BITS>(codes + i * CODE + lane * 16, code);
        const uint4 row = row_of(k);
        float whole[F::SUB]; // of the lane's output
#pragma unroll
        for (int sub = 0; sub < F::SUB; sub++) {
            group_product<F::BITS, LIMBS, F::A> r;
            r.run(code, row, sub);
            whole[sub] = lane % 2 ? r.i[1][0] : r.i[0][0];
        }
#pragma unroll
        for (int n = 0; n < EACH; n++) {
            const int at = place_of(n), sub = at / 2;
            float s[2], b[2];
            F::read(scale + sub * F::SCALE, zero, s, b);
            t[n] = group_value(at % 2 ? s[1] : s[0], at % 2 ? b[1] : b[0],
                               lane & 2 ? whole[(n * 2 + 1) % F::SUB] : whole[n * 2], groups[k * F::SUB + sub].y,
                               F::BIASED);
        }
    }

    // The values of all units: 16 values of a group follow each other. A warp takes N units at a time, which then wait
    // together for their reads, because nothing can be read after a write to the same memory.
    template <int N> __device__ __forceinline__ void values(float *value, float zero) const
    {
        const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
        for (int i = threadIdx.x / 32; i < all; i += N * warps) {
            float t[N][EACH];
#pragma unroll
            for (int j = 0; j < N; j++) values_of(t[j], min(i + j * warps, all - 1), zero);
#pragma unroll
            for (int j = 0; j < N; j++)
#pragma unroll
                for (int n = 0; n < EACH; n++)
                    if (lane % 4 < VALUES && i + j * warps < all)
                        value[((i + j * warps) * F::SUB + place_of(n) / 2) * 16 + lane / 4 + place_of(n) % 2 * 8] =
                            t[j][n];
        }
    }

    // The chain over N groups of output o from group g.
    template <int N> __device__ __forceinline__ float chain(const float *value, int o, int g, float sum) const
    {
        const int n = units * F::SUB;
        const float *const mine = value + (o / 16 * n + g) * 16 + o % 16;
#pragma unroll
        for (int i = 0; i < N; i++)
            if (g + i < n) sum = fma_(mine[i * 16], groups[g + i].x, sum);
        return sum;
    }

    // Of leaf number `leaf` of output o.
    __device__ __forceinline__ float leaf_sum(const float *value, int o, int leaf) const
    {
        float sum = 0;
#pragma unroll 1
        for (int g = 0; g < LEAF_GROUPS; g += STEP) sum = chain<STEP>(value, o, leaf * LEAF_GROUPS + g, sum);
        return sum;
    }
};

// q reads groups of A, or of 32 if these matrices have smaller groups.
template <int A>
__device__ __forceinline__ void quantize_next(const ek_cuda_acts &to, int64_t row, const float (&v)[8], bool there)
{
    if (A == 16 && to.a_group == 32) quantize_eights<A == 16 ? 32 : A>(to, row, eights::first(), v, there);
    else quantize_eights<A>(to, row, eights::first(), v, there);
}

template <class F, int LIMBS> __device__ __forceinline__ void layer_end(const ek_cuda_layer_end_args &a)
{
    typedef small_product<F, LIMBS> product;
    EK_DYNAMIC_SHARED(uint8_t, base);
    u64 *const there = (u64 *)base; // weights, g, the second product
    float(*const leaf)[32] = (float(*)[32])(base + 64);
    float *const value = (float *)(base + a.value), *const g = (float *)(base + a.g),
                 *const row = (float *)(base + a.sum);
    const int tid = threadIdx.x, blocks = gridDim.x, r = blockIdx.y, n = a.n;
    const bool mine = eights::first() < n, last = tid / 32 % blocks == (int)blockIdx.x, writes = mine && last;
    const product first(base, a.gate_at, a.row, a.gate_panels), second(base, a.proj_at, a.gated, a.proj_panels);
    let_next_start();
    if (tid == 0) {
        for (int i = 0; i < 3; i++) arrival_open(there + i);
        arrival_fence();
        arrival_expect(there, (u32)((first.all + second.all) * (product::CODE + product::SCALES)));
        first.fetch(a.gate, a.gate_scales, there), second.fetch(a.proj, a.proj_scales, there);
        arrival_expect(there + 1, (u32)a.size * 4), arrival_expect(there + 2, (u32)n * 4);
    }
    cluster_arrive();
    const float scalar = a.scalar ? *(const float *)a.scalar : 1;
    const int o = tid / 4, part = tid % 4, own = blockIdx.x * a.gate_panels * 16 + o; // an output of gate and its leaf
    const bool has = o < a.gate_panels * 16;
    ek_cuda_acts acts = a.row, acts2 = a.gated;
    acts.q += (u64)base, acts2.q += (u64)base;
    eights h, v, y_norm, post_norm, x_norm;
    y_norm.read((const float *)a.y_norm, n), post_norm.read((const float *)a.post_norm, n);
    if (EK_HAS_WGMMA) x_norm.read((const float *)a.x_norm, n); // for 10.0 there are no registers left for it
    wait_for_previous();

    const float *const y = (const float *)a.y + r * a.ld;
    float sum = block_squares(y, n);
    v.read(y, n), h.read((const float *)a.h + r * a.ld, n);
    const float u = has ? ((const float *)a.u + r * a.ldu)[own] : 0;
    float f = row_factor(sum, n, a.eps, leaf[0]);
#pragma unroll
    for (int i = 0; i < 8; i++) h.v[i] = h.v[i] + v.v[i] * f * y_norm.v[i];
    quantize_eights<F::A>(acts, 0, eights::first(), h.v, mine);
    __syncthreads();

    arrival_wait(there, 0);
    first.template values<product::TOGETHER>(value, (float)a.zero);
    __syncthreads();
    sum = has ? first.leaf_sum(value, o, part) : 0;
#pragma unroll
    for (int apart = 1; apart < 4; apart *= 2) {
        const float other = __shfl_down_sync(~0u, sum, apart, 4);
        if (part % (2 * apart) == 0 && (part + apart) * LEAF_UNITS < first.units) sum = sum + other;
    }
    sum = gelu_(__shfl_sync(~0u, sum, 0, 4)) * u;
    cluster_wait();
    if (has)
        for (int b = part; b < blocks; b += 4) send(g + own, sum, there + 1, b);
    sent_wait(there + 1, 0);

    v.read(g, a.size);
    quantize_eights<F::A>(acts2, 0, eights::first(), v.v, eights::first() < a.size);
    __syncthreads();
    second.template values<product::TOGETHER>(value, (float)a.zero);
    __syncthreads();
    const int o2 = tid >> a.proj_shift,
              part2 = tid & ((1 << a.proj_shift) - 1); // an output of proj, computed by several threads
    if (o2 < a.proj_panels * 16) {
        sum = 0;
        for (int i = 0; i < second.units * F::SUB; i += 4) sum = second.template chain<4>(value, o2, i, sum);
        for (int b = part2; b < blocks; b += 1 << a.proj_shift)
            send(row + blockIdx.x * a.proj_panels * 16 + o2, sum, there + 2, b);
    }
    if (!EK_HAS_WGMMA) x_norm.read((const float *)a.x_norm, n);
    sent_wait(there + 2, 0);

    v.read(row, n);
    f = row_factor(block_squares(row, n), n, a.eps, leaf[1]);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        h.v[i] = h.v[i] + v.v[i] * f * post_norm.v[i];
        if (a.scalar) h.v[i] = h.v[i] * scalar;
    }
    h.write(row, mine);
    __syncthreads();
    h.write((float *)a.h + r * a.ld, writes);
    f = row_factor(block_squares(row, n), n, a.eps, leaf[2]);
    if (!last) return;
#pragma unroll
    for (int i = 0; i < 8; i++) h.v[i] = h.v[i] * f * x_norm.v[i];
    if (a.x) h.write((float *)a.x + r * a.ld, writes);
    if (a.to.q) quantize_next<F::A>(a.to, r, h.v, writes);
}

} // namespace

// K: its name, as in warp.cuh.
#define LAYER_END(K, LIMBS, BITS, A, SCALES)                                          \
    extern "C" __global__ void __launch_bounds__(EK_CUDA_LAYER_END_THREADS, 2)        \
        ek_layer_end_##K##_l##LIMBS(const __grid_constant__ ek_cuda_layer_end_args a) \
    {                                                                                 \
        layer_end<weight_format<BITS, A, SCALES>, LIMBS>(a);                          \
    }
#define LAYER_ENDS(K, BITS, A, SCALES) LAYER_END(K, 1, BITS, A, SCALES) LAYER_END(K, 2, BITS, A, SCALES)
LAYER_ENDS(q4, 4, 64, SCALES_BIASED + SCALES_BF16)
LAYER_ENDS(q4h_32, 4, 32, SCALES_F16)
LAYER_ENDS(q8h_32, 8, 32, SCALES_F16)
LAYER_ENDS(q4fm_32, 4, 32, SCALES_BIASED + SCALES_F32)
LAYER_ENDS(q8fm_32, 8, 32, SCALES_BIASED + SCALES_F32)
LAYER_END(q8f_16, 2, 8, 16, SCALES_F32) // with one limb it spills
