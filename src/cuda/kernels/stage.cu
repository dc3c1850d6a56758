// What a forward pass does between its linear layers (cuda/model_args.h; contracts: ops/rows.h, ops/linear.h,
// src/model/forward.c). Sums of a row as in rows.cu: a block of 256 elements by half a warp.
#include <cuda_fp16.h>

#include "cuda/kernels/element.cuh"
#include "cuda/kernels/norm.cuh"
#include "cuda/kernels/quantize.cuh"
#include "cuda/model_args.h"

using namespace ek;

// --- between products

// A row by a block of threads, half a warp for 256 elements, which a lane has 16 apart: a lane's elements are those of
// its chain in a sum of squares, so that a norm needs one barrier.
constexpr int STAGE_THREADS = EK_CUDA_STAGE_WIDTH / 16;

struct stage_row {
    float v[16];

    __device__ __forceinline__ void read(const float *x, int n)
    {
        const int at = threadIdx.x / 16 * 256 + threadIdx.x % 16;
#pragma unroll
        for (int i = 0; i < 16; i++) v[i] = x && at + i * 16 < n ? x[at + i * 16] : 0;
    }

    __device__ __forceinline__ void write(float *x, int n) const
    {
        const int at = threadIdx.x / 16 * 256 + threadIdx.x % 16;
#pragma unroll
        for (int i = 0; i < 16; i++)
            if (at + i * 16 < n) x[at + i * 16] = v[i];
    }

    // 1 / root mean square; leaf: 32 that nobody else uses
    __device__ __forceinline__ float factor(int n, float eps, float *leaf) const
    {
        const int blocks = (n + 255) / 256, lane = threadIdx.x % 32;
        float sum = 0;
#pragma unroll
        for (int i = 0; i < 16; i++) sum = fma_(v[i], v[i], sum); // 0 where there is no element changes nothing
        sum = add_lanes(sum);
        if (threadIdx.x % 16 == 0) leaf[threadIdx.x / 16] = sum;
        __syncthreads();
        float s = lane < blocks ? leaf[lane] : 0; // T, by every warp
        for (int apart = 1; apart < blocks; apart *= 2) {
            const float other = __shfl_down_sync(~0u, s, apart);
            if (lane % (2 * apart) == 0 && lane + apart < blocks) s = s + other;
        }
        return norm_factor(__shfl_sync(~0u, s, 0), n, eps);
    }
};

extern "C" __global__ void __launch_bounds__(STAGE_THREADS) ek_stage(const __grid_constant__ ek_cuda_stage_args a)
{
    __shared__ float leaf[4][STAGE_THREADS / 16];
    const int n = a.n, r = blockIdx.x;
    stage_row h, y, w, x_norm;
    let_next_start();
    w.read((const float *)a.y_norm, n), x_norm.read((const float *)a.x_norm, n); // weights depend on nothing
    const float scalar = a.scalar ? *(const float *)a.scalar : 1;
    wait_for_previous();
    h.read((const float *)a.h + r * a.ld, n);
    if (a.y) {
        y.read((const float *)a.y + r * a.ld, n);
        if (a.pair_out) {
            const float *weight = (const float *)a.weight + r * a.top_k;
            const int32_t *pair = (const int32_t *)a.row_pair + r * a.top_k;
            const int at = threadIdx.x / 16 * 256 + threadIdx.x % 16;
            stage_row sum, norm;
#pragma unroll
            for (int i = 0; i < 16; i++) sum.v[i] = 0;
            for (int k = 0; k < a.top_k; k++) {
                const float f = weight[k], *out = (const float *)a.pair_out + pair[k] * a.ld + at;
#pragma unroll
                for (int i = 0; i < 16; i++)
                    if (at + i * 16 < n) sum.v[i] = fma_(f, out[i * 16], sum.v[i]);
            }
            const float f1 = y.factor(n, a.eps, leaf[0]), f2 = sum.factor(n, a.eps, leaf[1]);
            norm.read((const float *)a.norm_1, n);
#pragma unroll
            for (int i = 0; i < 16; i++) y.v[i] = y.v[i] * f1 * norm.v[i];
            norm.read((const float *)a.norm_2, n);
#pragma unroll
            for (int i = 0; i < 16; i++) y.v[i] = y.v[i] + sum.v[i] * f2 * norm.v[i];
        }
        const float f = y.factor(n, a.eps, leaf[2]);
#pragma unroll
        for (int i = 0; i < 16; i++) h.v[i] = h.v[i] + y.v[i] * f * w.v[i];
    }
    if (a.scalar)
#pragma unroll
        for (int i = 0; i < 16; i++) h.v[i] = h.v[i] * scalar;
    if (a.y || a.scalar) h.write((float *)a.h + r * a.ld, n);
    if (a.x_norm) {
        const float f = h.factor(n, a.eps, leaf[3]);
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const float v = h.v[i] * f * x_norm.v[i];
            h.v[i] = a.has_factor ? v * a.factor : v;
        }
    }
    if (a.x) h.write((float *)a.x + r * a.ld, n);
    if (!a.to.q) return;
    if (a.to.a_group == 64) quantize_block<64>(a.to, r, threadIdx.x / 16, h.v, n);
    else quantize_block<32>(a.to, r, threadIdx.x / 16, h.v, n);
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
    const double cos_c[] = {1.0,          -1.0 / 2,           1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600.0,
                            -1.0 / 87178291200.0, 1.0 / 20922789888000.0};
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

extern "C" __global__ void __launch_bounds__(256) ek_embed(const __grid_constant__ ek_cuda_embed_args a)
{
    const int at = blockIdx.x * 256 + threadIdx.x, k = a.first + at, r = blockIdx.y;
    let_next_start();
    wait_for_previous();
    if (at >= a.n) return;
    const int64_t id = ((const int32_t *)a.id)[r];
    if (id < 0) return;
    ((float *)a.h)[r * a.ldh + at] = element(a, id, k) * a.factor;
}

extern "C" __global__ void __launch_bounds__(128) ek_per_layer(const __grid_constant__ ek_cuda_per_layer_args a)
{
    EK_DYNAMIC_SHARED(float, row);
    __shared__ float leaf[MAX_LEAVES];
    const int n = a.size;
    let_next_start();
    wait_for_previous();
    float *ctx = (float *)a.ctx + blockIdx.y * a.ld_ctx + (int64_t)blockIdx.x * n;
    const float *temp = (const float *)a.temp + blockIdx.y * a.ld_temp + (int64_t)blockIdx.x * n, *w = (const float *)a.w;
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

extern "C" __global__ void __launch_bounds__(256) ek_route(const __grid_constant__ ek_cuda_route_args a)
{
    __shared__ float prob[EK_CUDA_MAX_EXPERTS], leaf[EK_CUDA_MAX_EXPERTS / 256];
    __shared__ u64 key[EK_CUDA_MAX_EXPERTS];
    __shared__ unsigned long long best;
    __shared__ int32_t id[EK_CUDA_MAX_TOP_K];
    __shared__ float weight[EK_CUDA_MAX_TOP_K];
    const int n = a.n_experts, tid = threadIdx.x, r = blockIdx.x;
    let_next_start();
    wait_for_previous();
    const float *x = (const float *)a.route + r * a.ld;
    if (tid == 0) best = 0;
    __syncthreads();
    u64 mine = 0;
    for (int i = tid; i < n; i += 256) {
        float v = x[i];
        if (v > bits(0xff800000u)) mine = max(mine, rank_key(v, (u32)i));
    }
    mine = warp_max(mine);
    if (tid % 32 == 0 && mine) atomicMax(&best, (unsigned long long)mine);
    __syncthreads();
    const float top = x[best ? ~(u32)best : 0];
    for (int i = tid; i < n; i += 256) prob[i] = exp_(x[i] - top);
    __syncthreads();
    const float total = row_sum<false>(prob, n, leaf);
    for (int i = tid; i < n; i += 256) {
        float p = __fdiv_rn(prob[i], total);
        prob[i] = p;
        key[i] = p == p ? rank_key(p, (u32)i) : 0;
    }
    __syncthreads();
    if (tid >= 32) return;
    for (int k = 0; k < a.top_k; k++) { // the largest that is left
        u64 most = 0;
        for (int i = tid; i < n; i += 32) most = max(most, key[i]);
        most = warp_max(most);
        if (tid == 0) {
            int32_t found = most ? (int32_t)~(u32)most : k; // NaN everywhere: any, the answer is refused later
            id[k] = found, weight[k] = prob[found];
            key[found] = 0;
        }
        __syncwarp();
    }
    if (tid) return;
    float sum = 0;
    for (int k = 0; k < a.top_k; k++) sum = sum + weight[k];
    for (int k = 0; k < a.top_k; k++) weight[k] = __fdiv_rn(weight[k], sum) * ((const float *)a.expert_scale)[id[k]];
    for (int i = 1; i < a.top_k; i++)
        for (int j = i; j > 0 && id[j] < id[j - 1]; j--) {
            int32_t t = id[j];
            float u = weight[j];
            id[j] = id[j - 1], weight[j] = weight[j - 1];
            id[j - 1] = t, weight[j - 1] = u;
        }
    for (int k = 0; k < a.top_k; k++) {
        ((int32_t *)a.expert)[r * a.top_k + k] = id[k];
        ((float *)a.weight)[r * a.top_k + k] = weight[k];
    }
}

// Which place a pair gets among those of its expert decides no bit: a pair's product is its own.
extern "C" __global__ void __launch_bounds__(1024) ek_group(const __grid_constant__ ek_cuda_group_args a)
{
    __shared__ int count[EK_CUDA_MAX_EXPERTS], first[EK_CUDA_MAX_EXPERTS], job[EK_CUDA_MAX_EXPERTS];
    __shared__ int warp_pairs[32], warp_jobs[32];
    const int tid = threadIdx.x, lane = tid % 32;
    let_next_start();
    wait_for_previous();
    const int32_t *expert = (const int32_t *)a.expert;
    count[tid] = 0;
    __syncthreads();
    for (int i = tid; i < a.n_pairs; i += 1024) atomicAdd(&count[expert[i]], 1);
    __syncthreads();
    // sums of what is before, of pairs and of jobs: over a warp, then over warps
    const int pairs = count[tid], jobs = (pairs + a.tile - 1) / a.tile;
    int sum_pairs = pairs, sum_jobs = jobs;
    for (int apart = 1; apart < 32; apart *= 2) {
        int p = __shfl_up_sync(~0u, sum_pairs, apart), j = __shfl_up_sync(~0u, sum_jobs, apart);
        if (lane >= apart) sum_pairs += p, sum_jobs += j;
    }
    if (lane == 31) warp_pairs[tid / 32] = sum_pairs, warp_jobs[tid / 32] = sum_jobs;
    __syncthreads();
    int before_pairs = 0, before_jobs = 0;
    for (int w = 0; w < tid / 32; w++) before_pairs += warp_pairs[w], before_jobs += warp_jobs[w];
    first[tid] = before_pairs + sum_pairs - pairs;
    job[tid] = before_jobs + sum_jobs - jobs;
    if (tid == 1023) *(u32 *)a.n_jobs = (u32)(before_jobs + sum_jobs);
    for (int j = 0; j < jobs; j++) {
        int at = first[tid] + j * a.tile, left = pairs - j * a.tile;
        ((ek_cuda_job *)a.jobs)[job[tid] + j] = {tid, at, left < a.tile ? left : a.tile, 0};
    }
    __syncthreads();
    for (int i = tid; i < a.n_pairs; i += 1024) {
        int at = atomicAdd(&first[expert[i]], 1);
        ((int32_t *)a.pair_row)[at] = i / a.top_k;
        ((int32_t *)a.row_pair)[i] = at;
    }
}

// --- logits

extern "C" __global__ void __launch_bounds__(256) ek_soft_cap_check(const __grid_constant__ ek_cuda_cap_args a)
{
    let_next_start();
    wait_for_previous();
    float *x = (float *)a.x + blockIdx.y * a.ld;
    u32 bad = 0;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < a.n; i += gridDim.x * 256) {
        float v = x[i];
        if (a.cap != 0) x[i] = v = a.cap * tanh_(__fdiv_rn(v, a.cap));
        bad |= (__float_as_uint(v) & 0x7f800000u) == 0x7f800000u;
    }
    if (bad) ((int32_t *)a.bad)[blockIdx.y] = 1;
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
        if (k >= a.k || k % a.group) continue; // the group began with another unit
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
