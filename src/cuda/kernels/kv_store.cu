// Writing keys and values into pages (contract: ops/kv.h, definition: ops/kv_store.c), their norms and rotations first:
// one block of threads per token, KV head and part. A token is quantised alone and once.
#include "cuda/kernels/kv.cuh"
#include "cuda/kernels/norm.cuh"

using namespace ek;

constexpr int THREADS = 128; // up to 4 dims a thread, dim = thread + 128 i: a group of 32 is a warp's

__device__ __forceinline__ float clamp_(float x, float least, float most)
{
    return x > least ? x < most ? x : most : least; // NaN: least
}

__device__ __forceinline__ unsigned short to_half(float x)
{
    return __half_as_ushort(__float2half_rn(clamp_(x, -65504.0f, 65504.0f)));
}

__device__ __forceinline__ unsigned short to_bf16(float x)
{
    u32 u = __float_as_uint(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (unsigned short)(u >> 16 | 0x40);
    return (unsigned short)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

// The smallest f16 >= x >= 0.
__device__ __forceinline__ unsigned short half_up(float x)
{
    unsigned short h = __half_as_ushort(__float2half_rn(clamp_(x, 0, 65504.0f)));
    return half_f32(h) < x && h < 0x7bff ? (unsigned short)(h + 1) : h;
}

// A group of up to 32 dims, one a lane; absent lanes pass in = false. Codes by the rules of ops/kv_store.c.
__device__ __forceinline__ int quantize8(float x, bool in, unsigned short *scale)
{
    float a = in ? fabsf(x) : 0;
    a = a > 0 ? a : 0; // NaN does not count
    u32 most = __reduce_max_sync(~0u, __float_as_uint(a));
    *scale = half_up(__fdiv_rn(bits(most), 127.0f));
    float s = half_f32(*scale);
    return s > 0 ? (int)clamp_(rintf(__fdiv_rn(x, s)), -127, 127) : 0;
}

__device__ __forceinline__ int quantize4(float x, bool in, unsigned short *scale, unsigned short *bias)
{
    float first = __shfl_sync(~0u, x, 0), least = in && x < first ? x : first, most = in && x > first ? x : first;
    for (int apart = 16; apart; apart /= 2) { // a first that is NaN stays: no comparison with it holds
        float l = __shfl_xor_sync(~0u, least, apart), m = __shfl_xor_sync(~0u, most, apart);
        least = l < least ? l : least;
        most = m > most ? m : most;
    }
    bool low = fabsf(least) > fabsf(most);
    float s = __fdiv_rn(most - least, 15.0f), edge = low ? least : most;
    s = s > 1e-7f ? s : 1e-7f;
    s = low ? s : -s;
    float steps = rintf(__fdiv_rn(edge, s));
    *scale = __half_as_ushort(__float2half_rn(clamp_(steps != 0 ? __fdiv_rn(edge, steps) : s, -65504.0f, 65504.0f)));
    *bias = __half_as_ushort(__float2half_rn(clamp_(steps != 0 ? edge : 0, -65504.0f, 65504.0f)));
    float sf = half_f32(*scale), bf = half_f32(*bias);
    return in ? (int)clamp_(rintf(__fdiv_rn(x - bf, sf)), 0, 15) : 0;
}

extern "C" __global__ void __launch_bounds__(THREADS) ek_kv_store(const __grid_constant__ ek_cuda_store_args a)
{
    __shared__ u32 warp_most[THREADS / 32];
    __shared__ float finished[4 * THREADS], leaf[2];
    const ek_cuda_kv &kv = a.kv;
    let_next_start();
    wait_for_previous();
    int head = blockIdx.x, dim = kv.head_dim, groups = (dim + GROUP - 1) / GROUP, lane = threadIdx.x % 32;
    bool keys = blockIdx.z == 0;
    ek_cuda_place place = ((const ek_cuda_place *)a.place)[blockIdx.y];
    uint8_t *at = (uint8_t *)page_block(kv, place.view, place.pos / PAGE) + head * (kv.k_bytes + kv.v_bytes) + (keys ? 0 : kv.k_bytes);
    int slot = place.pos % PAGE, f = keys ? kv.k_format : kv.v_format;
    const float *in = keys ? (const float *)a.k + blockIdx.y * a.ldk : (const float *)a.v + blockIdx.y * a.ldv;
    in += (int64_t)head * dim;
    if (a.head.norm) {
        ek_cuda_head how = a.head;
        if (!keys) how.norm = how.cos = 0;
        for (int i = threadIdx.x; i < dim; i += THREADS) finished[i] = in[i];
        __syncthreads();
        finish_head(finished, how, blockIdx.y, dim, leaf);
        in = finished;
    }
    float x[4];
    u32 most = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int d = threadIdx.x + i * THREADS;
        x[i] = d < dim ? in[d] : 0;
        float m = fabsf(x[i]);
        if (m > bits(most)) most = __float_as_uint(m);
    }
    float s16 = 0;
    if (f == I16) { // one scale for the token
        most = __reduce_max_sync(~0u, most);
        if (lane == 0) warp_most[threadIdx.x / 32] = most;
        __syncthreads();
        for (int w = 0; w < THREADS / 32; w++) most = max(most, warp_most[w]);
        s16 = __fdiv_rn(bits(most), 32767.0f);
        if (threadIdx.x == 0) ((float *)(at + kv_code_bytes(I16, dim)))[slot] = s16;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int d = threadIdx.x + i * THREADS, g = d / GROUP;
        bool real = d < dim;
        if (g >= groups) break; // whole warps
        int64_t to = keys ? (int64_t)d * PAGE + slot : (int64_t)slot * dim + d;
        if (f == F32 && real) ((float *)at)[to] = x[i];
        if (f == F16 && real) ((unsigned short *)at)[to] = to_half(x[i]);
        if (f == BF16 && real) ((unsigned short *)at)[to] = to_bf16(x[i]);
        if (f == I16 && real) ((int16_t *)at)[to] = s16 > 0 ? (int16_t)clamp_(rintf(__fdiv_rn(x[i], s16)), -32767, 32767) : 0;
        if (f != Q8 && f != Q4) continue;
        unsigned short scale, bias = 0;
        int code = f == Q8 ? quantize8(x[i], real, &scale) : quantize4(x[i], real, &scale, &bias);
        unsigned short *scales = (unsigned short *)(at + (keys ? k_codes(f, dim) : v_codes(f, dim)));
        int64_t mine = keys ? (int64_t)g * PAGE + slot : (int64_t)slot * groups + g;
        if (lane == 0) scales[mine] = scale;
        if (lane == 0 && f == Q4) scales[(int64_t)groups * PAGE + mine] = bias;
        if (f == Q8) {
            if (real) at[to] = (uint8_t)code;
            continue;
        }
        int other = __shfl_down_sync(~0u, code, keys ? 1 : 16);
        if (keys && real && d % 2 == 0) at[(int64_t)(d / 2) * PAGE + slot] = (uint8_t)(code | other << 4);
        if (!keys && lane < 16) at[((int64_t)slot * groups + g) * 16 + lane] = (uint8_t)(code | other << 4);
    }
}
