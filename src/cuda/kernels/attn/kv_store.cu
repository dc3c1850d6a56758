// Stores keys and values in pages (contract: ops/kv/kv.h, definition: ops/kv/kv_store.c), after their norms and
// rotations: one block of threads per token, KV head and part. Each token is quantised alone and once.
#include "cuda/kernels/int_codes.cuh"
#include "cuda/kernels/norm.cuh"

using namespace ek;

constexpr int THREADS = 128, MAX_DIM = 512; // a thread has up to 4 dims: dim = thread + 128 i

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

// Data that the threads of a token share. Thread t has dims t + 128 i: a warp has 32 neighbours for each i.
struct token {
    float x[MAX_DIM];
    float least[MAX_DIM / 32], most[MAX_DIM / 32]; // of 32 neighbours
    uint8_t code[MAX_DIM + 8];                     // zeros after the head's dims
};

// Scales, biases and codes of a token's groups, by the rules of ops/kv/kv_store.c. The dims of a group have four
// classes, by their number mod 4. If the first dim of a class is NaN, the class does not count; if it is number 0, no
// class counts.
__device__ __forceinline__ void quantize(token &s, const kv_codec &c, bool has_bias, unsigned short *scales, int step,
                                         int groups_step)
{
    const int lane = threadIdx.x % 32;
    for (int d = threadIdx.x; d < MAX_DIM; d += THREADS) {
        const int first = d >> c.shift << c.shift;
        float least = INFINITY, most = -INFINITY;
        if (d < c.dim) {
            const float x = s.x[d];
            const bool counts = has_bias ? s.x[first + d % 4] == s.x[first + d % 4] && x == x : x == x;
            if (has_bias && counts) least = most = x;
            if (!has_bias) least = 0, most = counts ? fabsf(x) : 0;
        }
        for (int apart = 16; apart; apart /= 2) {
            least = fminf(least, __shfl_xor_sync(~0u, least, apart));
            most = fmaxf(most, __shfl_xor_sync(~0u, most, apart));
        }
        if (lane == 0) s.least[d / 32] = least, s.most[d / 32] = most;
    }
    __syncthreads();
    for (int d = threadIdx.x; d < MAX_DIM + 8; d += THREADS) {
        if (d >= c.dim) {
            s.code[d] = 0;
            continue;
        }
        const int g = d >> c.shift, first = g << c.shift,
                  parts = (min(c.dim, first + (1 << c.shift)) + 31 - first) / 32;
        float least = s.least[first / 32], most = s.most[first / 32];
        for (int i = 1; i < parts; i++)
            least = fminf(least, s.least[first / 32 + i]), most = fmaxf(most, s.most[first / 32 + i]);
        unsigned short scale, bias = 0;
        if (!has_bias) {
            scale = half_up(__fdiv_rn(most, 127.0f));
            const float sf = half_f32(scale);
            s.code[d] = (uint8_t)(sf > 0 ? (int)clamp_(rintf(__fdiv_rn(s.x[d], sf)), -127, 127) : 0);
        } else {
            const float codes = (float)((1 << c.bits) - 1);
            if (s.x[first] != s.x[first]) least = most = s.x[first];
            const bool low = fabsf(least) > fabsf(most);
            float sf = __fdiv_rn(most - least, codes), edge = low ? least : most;
            sf = sf > 1e-7f ? sf : 1e-7f;
            sf = low ? sf : -sf;
            const float steps = rintf(__fdiv_rn(edge, sf));
            scale = __half_as_ushort(
                __float2half_rn(clamp_(steps != 0 ? __fdiv_rn(edge, steps) : sf, -65504.0f, 65504.0f)));
            bias = __half_as_ushort(__float2half_rn(clamp_(steps != 0 ? edge : 0, -65504.0f, 65504.0f)));
            s.code[d] = (uint8_t)(int)clamp_(rintf(__fdiv_rn(s.x[d] - half_f32(bias), half_f32(scale))), 0, codes);
        }
        if (d != first) continue;
        scales[g * step] = scale;
        if (has_bias) scales[groups_step + g * step] = bias;
    }
    __syncthreads();
}

// The part of the codes in a plane of P bits, which begins at bit `from` of the codes.
template <int P>
__device__ __forceinline__ void put_plane(const token &s, uint8_t *to, int dim, int slot, bool keys, int from)
{
    const int bytes = keys ? (dim * P + 7) / 8 : v_plane_row(P, dim), mask = (1 << P) - 1;
    for (int b = threadIdx.x; b < bytes; b += THREADS) {
        const bool apart = P == 4 && !keys; // the low nibbles hold the first 16 of 32 dims
        const int d = apart ? b / 16 * 32 + b % 16 : b * 8 / P;
        int byte = 0;
#pragma unroll
        for (int i = 0; i < 8 / P; i++) byte |= (s.code[d + i * (apart ? 16 : 1)] >> from & mask) << i * P;
        to[keys ? b * PAGE + slot : slot * bytes + b] = (uint8_t)byte;
    }
}

// A token's part in integers, by a warp (contract: ops/attn/attn_int.h).
__device__ __forceinline__ void store_token(uint8_t *at, const float *in, const kv_codec &c, int slot, bool keys)
{
    const int lane = threadIdx.x % 32;
    float x[HEAD];
#pragma unroll
    for (int i = 0; i < HEAD; i++) x[i] = i * 32 + lane < c.dim ? in[i * 32 + lane] : 0.0f;
    store_rotated(at, x, c.dim, c.bits, slot, keys);
}

extern "C" __global__ void __launch_bounds__(THREADS) ek_kv_store(const __grid_constant__ ek_cuda_store_args a)
{
    __shared__ u32 warp_most[THREADS / 32];
    __shared__ token shared;
    __shared__ float finished[4 * THREADS], leaf[2];
    let_next_start();
    wait_for_previous();
    ek_cuda_place place = ((const ek_cuda_place *)a.place)[blockIdx.y];
    const ek_cuda_kv kv = kv_at(a, place.pos / PAGE);
    int head = blockIdx.x, dim = kv.head_dim, lane = threadIdx.x % 32;
    bool keys = blockIdx.z == 0;
    uint8_t *at = (uint8_t *)page_block(kv, place.view, place.pos / PAGE) + head * (kv.k_bytes + kv.v_bytes) +
                  (keys ? 0 : kv.k_bytes);
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
    if (f == ROTATED) {
        if (threadIdx.x < 32) store_token(at, in, keys ? keys_of(kv) : values_of(kv), slot, keys);
        return;
    }
    if (grouped(f)) {
        const kv_codec c = keys ? keys_of(kv) : values_of(kv);
        for (int d = threadIdx.x; d < dim; d += THREADS) shared.x[d] = in[d];
        __syncthreads();
        unsigned short *scales = (unsigned short *)(at + (keys ? k_codes(f, c) : v_codes(f, c))) +
                                 (keys ? slot : slot * c.groups());
        quantize(shared, c, affine(f), scales, keys ? PAGE : 1, c.groups() * PAGE);
        if (f == Q8) {
            for (int d = threadIdx.x; d < dim; d += THREADS)
                at[keys ? d * PAGE + slot : slot * dim + d] = shared.code[d];
            return;
        }
        if (c.bits >= 4) {
            put_plane<4>(shared, at, dim, slot, keys, 0);
            at += keys ? k_plane(4, dim) : PAGE * v_plane_row(4, dim);
        } else {
            put_plane<2>(shared, at, dim, slot, keys, 0);
            at += keys ? k_plane(2, dim) : PAGE * v_plane_row(2, dim);
        }
        if (c.bits == 6) put_plane<2>(shared, at, dim, slot, keys, 4);
        if (c.bits % 2) put_plane<1>(shared, at, dim, slot, keys, c.bits - 1);
        return;
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
        if (threadIdx.x == 0) ((float *)(at + dim * PAGE * 2))[slot] = s16;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int d = threadIdx.x + i * THREADS;
        if (d >= dim) break;
        int64_t to = keys ? (int64_t)d * PAGE + slot : (int64_t)slot * dim + d;
        if (f == F32) ((float *)at)[to] = x[i];
        if (f == F16) ((unsigned short *)at)[to] = to_half(x[i]);
        if (f == BF16) ((unsigned short *)at)[to] = to_bf16(x[i]);
        if (f == I16) ((int16_t *)at)[to] = s16 > 0 ? (int16_t)clamp_(rintf(__fdiv_rn(x[i], s16)), -32767, 32767) : 0;
    }
}
