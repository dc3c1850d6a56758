// The work of a forward pass between its linear layers (cuda/model_args.h; contracts: ops/rows/rows.h,
// ops/linear/linear.h, src/model/forward.c). Sums of a row as in rows.cu: half a warp adds a block of 256 elements.
#include <cuda_fp16.h>

#include "cuda/kernels/group.cuh"
#include "cuda/kernels/element.cuh"
#include "cuda/kernels/norm.cuh"
#include "cuda/kernels/quantize.cuh"
#include "cuda/kernels/row.cuh"
#include "cuda/model_args.h"

using namespace ek;

// --- between products

constexpr int STAGE_THREADS = EK_CUDA_STAGE_WIDTH / 8;

// A row takes as long as the fetching of its code. If rows are few, all code runs once over norms before the earlier
// kernels have ended, and writes nothing.
__device__ __forceinline__ void stage(const ek_cuda_stage_args &a)
{
    __shared__ float leaf[2][STAGE_THREADS / 32];
    const int r = blockIdx.x;
    const float *const any = (const float *)(a.x_norm ? a.x_norm : a.y_norm);
    stage_row h, y;
    let_next_start();
    const float scalar = a.scalar ? *(const float *)a.scalar : 1;
#pragma unroll 1
    for (int real = !any || gridDim.x > 16; real < 2; real++) {
        const int n = a.n, n_written = real ? n : 0;
        if (real) wait_for_previous();
        h.read(real ? (const float *)a.h + r * a.ld : any, n);
        if (a.y) y.read(real ? (const float *)a.y + r * a.ld : any, n);
        __syncthreads(); // the sums of the pass before were read
        if (a.y) {
            stage_row norm; // from the caches, in the second pass
            norm.read((const float *)a.y_norm, n);
            const float f = y.factor(n, a.eps, leaf[0]);
#pragma unroll
            for (int i = 0; i < 8; i++) h.v[i] = h.v[i] + y.v[i] * f * norm.v[i];
        }
        if (a.scalar)
#pragma unroll
            for (int i = 0; i < 8; i++) h.v[i] = h.v[i] * scalar;
        if (a.y || a.scalar) h.write((float *)a.h + r * a.ld, n_written);
        if (a.x_norm) {
            stage_row norm;
            norm.read((const float *)a.x_norm, n);
            const float f = h.factor(n, a.eps, leaf[1]);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const float v = h.v[i] * f * norm.v[i];
                h.v[i] = a.has_factor ? v * a.factor : v;
            }
        }
        if (a.x) h.write((float *)a.x + r * a.ld, n_written);
        if (!a.to.q) continue;
        if (a.to.a_group == 64) quantize_block<64>(a.to, r, threadIdx.x / 16, h.v, n_written);
        else quantize_block<32>(a.to, r, threadIdx.x / 16, h.v, n_written);
    }
}

extern "C" __global__ void __launch_bounds__(STAGE_THREADS) ek_stage(const __grid_constant__ ek_cuda_stage_args a)
{
    stage(a);
}

extern "C" __global__ void __launch_bounds__(256) ek_gate(const __grid_constant__ ek_cuda_gate_args a)
{
    const int group = a.to.q ? a.to.a_group : 64, g = blockIdx.x * 8 + threadIdx.x / 32, r = blockIdx.y;
    let_next_start();
    wait_for_previous();
    if (g * group >= a.n) return;
    const float *gate = (const float *)a.g + r * a.ldg, *up = (const float *)a.u + r * a.ldu;
    float v[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int at = g * group + threadIdx.x % 32 + i * 32;
        if (i * 32 >= group || at >= a.n) continue;
        v[i] = gelu_(gate[at]) * up[at];
        if (a.y) ((float *)a.y)[r * a.ldy + at] = v[i];
    }
    if (a.to.q) quantize_group(a.to, r, g, v);
}

// --- queries

constexpr int HEAD_THREADS = 128, MAX_HEAD_DIM = 512;

extern "C" __global__ void __launch_bounds__(HEAD_THREADS) ek_heads(const __grid_constant__ ek_cuda_heads_args a)
{
    __shared__ float x[MAX_HEAD_DIM], leaf[MAX_HEAD_DIM / 256];
    const int r = blockIdx.y, dim = a.head_dim, tid = threadIdx.x;
    let_next_start();
    wait_for_previous();
    float *at = (float *)a.q + r * a.ldq + (int64_t)blockIdx.x * dim;
    for (int i = tid; i < dim; i += HEAD_THREADS) x[i] = at[i];
    __syncthreads();
    finish_head(x, a.head, r, dim, leaf);
    for (int i = tid; i < dim; i += HEAD_THREADS) at[i] = x[i];
}

// --- rotations: ek_cos_sin of ops/math.c in float64

template <int N> __device__ __forceinline__ double horner(const double (&c)[N], double z)
{
    double p = c[N - 1];
#pragma unroll
    for (int i = N - 2; i >= 0; i--) p = __fma_rn(p, z, c[i]);
    return p;
}

extern "C" __global__ void __launch_bounds__(64) ek_rope_tables(const __grid_constant__ ek_cuda_rope_tables_args a)
{
    const double sin_c[] = {1.0,          -1.0 / 6,        1.0 / 120,          -1.0 / 5040,
                            1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800.0, -1.0 / 1307674368000.0};
    const double cos_c[] = {1.0,
                            -1.0 / 2,
                            1.0 / 24,
                            -1.0 / 720,
                            1.0 / 40320,
                            -1.0 / 3628800,
                            1.0 / 479001600.0,
                            -1.0 / 87178291200.0,
                            1.0 / 20922789888000.0};
    const int j = blockIdx.x * 64 + threadIdx.x;
    let_next_start();
    wait_for_previous();
    if (j >= a.rotated) return;
    const int pos = ((const ek_cuda_place *)a.place)[blockIdx.y].pos;
    const double x = (double)__fmul_rn((float)pos, ((const float *)a.frequency)[j]);
    const double k = rint(__dmul_rn(x, 0.6366197723675814));
    double r = __fma_rn(-k, 1.5707963267948966, x);
    r = __fma_rn(-k, 6.123233995736766e-17, r);
    r = __fma_rn(-k, -1.4973849048591698e-33, r);
    const double z = __dmul_rn(r, r), sr = __dmul_rn(r, horner(sin_c, z)), cr = horner(cos_c, z);
    double c, s;
    switch ((int64_t)k & 3) {
    case 0: c = cr, s = sr; break;
    case 1: c = -sr, s = cr; break;
    case 2: c = -cr, s = -sr; break;
    default: c = sr, s = -cr; break;
    }
    ((float *)a.cos)[blockIdx.y * a.ld + j] = __double2float_rn(c);
    ((float *)a.sin)[blockIdx.y * a.ld + j] = __double2float_rn(s);
}

// --- embeddings

// Element k of row `id` of a synthetic model's table (model/embed.c).
__device__ __forceinline__ float invented(const ek_cuda_embed_args &a, int64_t id, int k)
{
    return (float)(mix64(a.codes ^ (u64)(id * a.k + k)) >> 40) * 0x1p-24f - 0.5f;
}

extern "C" __global__ void __launch_bounds__(256) ek_embed(const __grid_constant__ ek_cuda_embed_args a)
{
    const int at = blockIdx.x * 256 + threadIdx.x, k = a.first + at, r = blockIdx.y;
    let_next_start();
    wait_for_previous();
    if (at >= a.n) return;
    int64_t id = ((const int32_t *)a.id)[r];
    if (id <= EK_CUDA_DRAWN) {
        id = ((const int32_t *)a.token)[EK_CUDA_DRAWN - id];
        if (id < 0 || id >= a.rows) id = 0;
    }
    if (id < 0) return;
    ((float *)a.h)[r * a.ldh + at] = (a.form == 4 ? invented(a, id, k) : element(a, id, k)) * a.factor;
}

extern "C" __global__ void __launch_bounds__(128) ek_per_layer(const __grid_constant__ ek_cuda_per_layer_args a)
{
    EK_DYNAMIC_SHARED(float, row);
    __shared__ float leaf[MAX_LEAVES];
    const int n = a.size;
    let_next_start();
    wait_for_previous();
    float *ctx = (float *)a.ctx + blockIdx.y * a.ld_ctx + (int64_t)blockIdx.x * n;
    const float *temp = (const float *)a.temp + blockIdx.y * a.ld_temp + (int64_t)blockIdx.x * n,
                *w = (const float *)a.w;
    for (int i = threadIdx.x; i < n; i += 128) row[i] = ctx[i] * a.ctx_scale;
    __syncthreads();
    float f = norm_factor(row_sum<true>(row, n, leaf), n, a.eps);
    for (int i = threadIdx.x; i < n; i += 128) ctx[i] = (row[i] * f * w[i] + temp[i] * a.temp_scale) * a.sum_scale;
}

extern "C" __global__ void __launch_bounds__(256) ek_gather(const __grid_constant__ ek_cuda_gather_args a)
{
    let_next_start();
    wait_for_previous();
    const int64_t from = a.index ? ((const int32_t *)a.index)[blockIdx.y] : blockIdx.y;
    const float *x = (const float *)a.x + from * a.ldx;
    float *y = (float *)a.y + blockIdx.y * a.ldy;
    for (int i = blockIdx.x * 1024 + threadIdx.x; i < a.n && i < (int)(blockIdx.x + 1) * 1024; i += 256) y[i] = x[i];
}

// --- experts

// Probabilities of all experts, divided by the sum of the largest ones, in ascending order of experts.
extern "C" __global__ void __launch_bounds__(256) ek_route(const __grid_constant__ ek_cuda_route_args a)
{
    __shared__ float prob[EK_CUDA_MAX_EXPERTS], scale[EK_CUDA_MAX_EXPERTS], leaf[EK_CUDA_MAX_EXPERTS / 256];
    __shared__ u32 warp_best[8];
    __shared__ int32_t id[EK_CUDA_MAX_TOP_K]; // by rank
    const int n = a.n_experts, tid = threadIdx.x, r = blockIdx.x;
    let_next_start();
    for (int i = tid; i < n; i += 256) scale[i] = ((const float *)a.expert_scale)[i];
    wait_for_previous();
    const float *x = (const float *)a.route + r * a.ld;
    const float x0 = x[0];
    u32 best = 0;
    for (int i = tid; i < n; i += 256) {
        const float v = x[i];
        prob[i] = v;
        if (v > bits(0xff800000u)) best = max(best, ordered(v));
    }
    best = __reduce_max_sync(~0u, best);
    if (tid % 32 == 0) warp_best[tid / 32] = best;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < 8; w++) best = max(best, warp_best[w]);
    const float top = best ? unordered(best) : x0;
    for (int i = tid; i < n; i += 256) prob[i] = exp_(prob[i] - top);
    __syncthreads();
    const float total = row_sum<false>(prob, n, leaf);
    for (int i = tid; i < n; i += 256)
        prob[i] = __fdiv_rn(prob[i], total); // if the row has NaN, all are NaN; the answer is refused later
    __syncthreads();
    for (int i = tid; i < n; i += 256) { // the number of values that are larger, or equal and earlier
        const float p = prob[i];
        int rank = 0;
#pragma unroll 8
        for (int j = 0; j < n; j++) rank += j < i ? !(prob[j] < p) : prob[j] > p;
        if (rank < a.top_k) id[rank] = i;
    }
    __syncthreads();
    if (tid >= a.top_k) return;
    float sum = 0;
    int place = 0;
    const int mine = id[tid];
    for (int k = 0; k < a.top_k; k++) sum = sum + prob[id[k]], place += id[k] < mine;
    ((int32_t *)a.expert)[r * a.top_k + place] = mine;
    ((float *)a.weight)[r * a.top_k + place] = __fdiv_rn(prob[mine], sum) * scale[mine];
}

extern "C" __global__ void __launch_bounds__(1024) ek_group(const __grid_constant__ ek_cuda_group_args a)
{
    group<false>(a);
}

extern "C" __global__ void __launch_bounds__(1024) ek_group_ordered(const __grid_constant__ ek_cuda_group_args a)
{
    group<true>(a);
}

// --- logits

extern "C" __global__ void __launch_bounds__(256) ek_soft_cap_check(const __grid_constant__ ek_cuda_cap_args a)
{
    let_next_start();
    wait_for_previous();
    float *x = (float *)a.x + blockIdx.y * a.ld;
    u32 bad = 0;
    u64 sum = 0;
    auto check = [&](float v, int i) {
        bad |= (__float_as_uint(v) & 0x7f800000u) == 0x7f800000u;
        if (a.digest) sum += mix64((u64)i << 32 | __float_as_uint(v));
    };
    auto capped = [&](float v) {
        const float y = __fdiv_rn(v, a.cap);
        return a.cap * (y != y ? y : tanh_of_number(y));
    };
    const int whole = (a.n | a.ld) % 4 ? 0 : a.n;
    for (int i = (blockIdx.x * 256 + threadIdx.x) * 4; i < whole; i += gridDim.x * 1024) {
        float4 v = *(const float4 *)(x + i);
        if (a.cap != 0) *(float4 *)(x + i) = v = make_float4(capped(v.x), capped(v.y), capped(v.z), capped(v.w));
        check(v.x, i), check(v.y, i + 1), check(v.z, i + 2), check(v.w, i + 3);
    }
    for (int i = whole + blockIdx.x * 256 + threadIdx.x; i < a.n; i += gridDim.x * 256) {
        float v = x[i];
        if (a.cap != 0) x[i] = v = capped(v);
        check(v, i);
    }
    if (bad) ((int32_t *)a.bad)[blockIdx.y] = 1;
    if (!a.digest) return;
    for (int apart = 16; apart; apart /= 2) sum += __shfl_xor_sync(~0u, sum, apart);
    if (threadIdx.x % 32 == 0) atomicAdd((unsigned long long *)a.digest + blockIdx.y, (unsigned long long)sum);
}

// --- weights

extern "C" __global__ void __launch_bounds__(32) ek_pack_q(const __grid_constant__ ek_cuda_pack_args a)
{
    const int unit = blockIdx.x, lane = threadIdx.x, t = lane % 4;
    const int64_t panel = a.first + blockIdx.y;
    const uint8_t *from = (const uint8_t *)a.from + blockIdx.y * a.panel_bytes;
    uint8_t *to = (uint8_t *)a.codes + (panel * a.units + unit) * a.bits * 128;
    const int zero = a.bits == 8 ? 128 : 8;
    // byte e of word i of step j: output o, input k + e
    auto code = [&](int j, int i, int e) {
        const int o = lane / 4 + 8 * (i & 1);
        const int k = unit * 64 + (a.a_group == 64 ? 16 * t + 8 * j : 32 * j + 8 * t) + 4 * (i >> 1) + e;
        if (k >= a.k) return 0;
        const uint8_t *group = from + k / a.group * a.group_bytes;
        const int quad = k % a.group / 4, at = o * 4 + k % 4;
        if (a.bits == 8) return (int)group[quad * 64 + at] - zero;
        return (int)(group[quad / 2 * 64 + at] >> (quad & 1) * 4 & 15) - zero;
    };
    for (int j = 0; j < 2; j++)
        for (int i = 0; i < (a.bits == 8 ? 4 : 2); i++) {
            u32 word = 0;
            for (int e = 0; e < 4; e++) {
                u32 byte = a.bits == 8 ? code(j, i, e) & 255 : (code(j, i, e) & 15) | (code(j, i + 2, e) & 15) << 4;
                word |= byte << 8 * e;
            }
            if (a.bits == 8) *(u32 *)(to + j * 512 + lane * 16 + i * 4) = word;
            else *(u32 *)(to + lane * 16 + (j * 2 + i) * 4) = word;
        }
    // scales: output g, then g + 8, each s and b
    const int per_unit = a.group < 64 ? 64 / a.group : 1, parts = a.biased ? 2 : 1;
    for (int s = 0; s < per_unit; s++) {
        const int k = unit * 64 + s * a.group, g = k / a.group;
        if (k >= a.k || k % a.group) continue; // the group began in another unit
        const uint8_t *src = from + g * a.group_bytes + (a.bits == 8 ? a.group * 16 : a.group * 8);
        uint8_t *dst = (uint8_t *)a.scales + (panel * (a.k / a.group) + g) * 16 * parts * a.scale_bytes;
        for (int i = lane; i < 16 * parts; i += 32) {
            const int o = i / (2 * parts), half = i / parts % 2, part = i % parts;
            const int at = part * 16 + o + 8 * half;
            if (a.scale_bytes == 4) ((u32 *)dst)[i] = ((const u32 *)src)[at];
            else ((unsigned short *)dst)[i] = ((const unsigned short *)src)[at];
        }
    }
}
