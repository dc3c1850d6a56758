// Distributes the parts of rows that several devices have computed to all of them (cuda/exchange_args.h). Bytes are
// moved, and nothing is added.
#include "cuda/exchange_args.h"
#include "cuda/kernels/device.cuh"

using namespace ek;

constexpr int THREADS = EK_CUDA_EXCHANGE_THREADS, AT_ONCE = 4;

__device__ __forceinline__ int peer_of(const ek_cuda_exchange_args &a)
{
    return (int)blockIdx.y + ((int)blockIdx.y >= a.rank);
}

// Also before wait_for_previous, because the copy of the step's number ended before the step's first kernel began.
// Bypasses the cache, which may have the number of the step before.
__device__ __forceinline__ u32 number_of(const ek_cuda_exchange_args &a)
{
    return (u32)load_word((const u64 *)a.step) * (u32)EK_CUDA_EXCHANGES + (u32)a.index;
}

__device__ __forceinline__ ek_cuda_exchange_control *control(const ek_cuda_exchange_args &a, int rank)
{
    return (ek_cuda_exchange_control *)a.control[rank];
}

// --- one number after all data

template <class T> __device__ __forceinline__ void copy(u64 to, u64 from, int64_t ld, int bytes, int rows)
{
    const int each = bytes / (int)sizeof(T), n = rows * each, step = gridDim.x * THREADS;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += step * AT_ONCE) {
        T v[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const int at = i + j * step;
            if (at < n) v[j] = ((const T *)(from + at / each * ld))[at % each];
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const int at = i + j * step;
            if (at < n) ((T *)(to + at / each * ld))[at % each] = v[j];
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    ek_exchange_rows(const __grid_constant__ ek_cuda_exchange_args a)
{
    const int peer = peer_of(a);
    const ek_cuda_exchange_span &s = a.span[blockIdx.z];
    const ek_cuda_exchange_piece &p = a.piece[s.piece];
    ek_cuda_exchange_control *const own = control(a, a.rank);
    let_next_start();
    const u32 number = number_of(a);
    wait_for_previous();
    if (threadIdx.x == 0 && a.half != EK_CUDA_TAKE) store_system(&own->ready, number);
    if (a.half == EK_CUDA_PUT) return;
    if (threadIdx.x == 0) {
        const u64 begun = nanoseconds();
        while ((int)(load_system(&control(a, peer)->ready) - number) < 0) {
            if (load_system(&own->lost)) break;
            if (nanoseconds() - begun > a.limit) store_system(&own->lost, 1u);
        }
    }
    __syncthreads();
    const u64 at = (u64)p.first + (u64)s.from[peer], from = p.at[peer] + at, to = p.at[a.rank] + at;
    if (((from | to | (u64)p.ld | (u64)s.bytes[peer]) & 15) == 0) copy<uint4>(to, from, p.ld, s.bytes[peer], p.rows);
    else copy<u32>(to, from, p.ld, s.bytes[peer], p.rows);
}

// --- a number beside each word; two words are stored and read at once if their places allow it

template <int N> __device__ __forceinline__ void load(const u64 *from, u64 v[N])
{
    if (N == 2) load_words(from, v);
    else v[0] = load_word(from);
}

// The distance between the words' number and the wanted number; for two words, that of the second if the first has
// arrived.
template <int N> __device__ __forceinline__ int lacks(const u64 v[N], u32 number)
{
    const int first = (int)((u32)(v[0] >> 32) - number);
    return N == 1 || first ? first : (int)((u32)(v[N - 1] >> 32) - number);
}

// The arrived words; v is a first reading. If a device does not deliver them, or is known not to, any words.
template <int N>
__device__ __forceinline__ void await(const ek_cuda_exchange_args &a, const u64 *from, u64 v[N], u32 number)
{
    constexpr int READINGS = 64; // between two checks of the clock
    if (lacks<N>(v, number) == 0) return;
    u32 *const lost = &control(a, a.rank)->lost;
    const u64 begun = nanoseconds();
    for (;;) {
        for (int i = 0; i < READINGS; i++) {
            load<N>(from, v);
            if (lacks<N>(v, number) == 0) return;
        }
        if (load_system(lost)) return;
        const bool passed = lacks<N>(v, number) > 0; // the device that should deliver them gave up and went on
        if (passed || nanoseconds() - begun > a.limit) store_system(lost, 1u);
    }
}

// Moves the block's words of `device`: to its landing, or from there.
template <bool LEAVES, int N>
__device__ __forceinline__ void words(const ek_cuda_exchange_args &a, int device, u32 number)
{
    const ek_cuda_exchange_span &s = a.span[blockIdx.z];
    const ek_cuda_exchange_piece &p = a.piece[s.piece];
    const u64 rows = p.at[a.rank] + p.first + (u64)s.from[device];
    u64 *const landing = (u64 *)a.landing[device] + p.place + s.from[device] / 4;
    const int each = s.bytes[device] / (4 * N), n = p.rows * each, step = gridDim.x * THREADS;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += step * AT_ONCE) {
        u64 v[AT_ONCE][N];
        int64_t byte[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const int k = i + j * step;
            if (k >= n) continue;
            byte[j] = k / each * p.ld + k % each * (4 * N);
            if (!LEAVES) load<N>(landing + byte[j] / 4, v[j]);
            else if (N == 1) v[j][0] = *(const u32 *)(rows + byte[j]);
            else v[j][0] = ((const uint2 *)(rows + byte[j]))->x, v[j][N - 1] = ((const uint2 *)(rows + byte[j]))->y;
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            if (i + j * step >= n) continue;
            u64 *const landed = landing + byte[j] / 4;
            const u64 beside = (u64)number << 32;
            if (!LEAVES) {
                await<N>(a, landed, v[j], number);
                if (N == 1) *(u32 *)(rows + byte[j]) = (u32)v[j][0];
                else *(uint2 *)(rows + byte[j]) = make_uint2((u32)v[j][0], (u32)v[j][N - 1]);
            } else if (N == 1) {
                store_word(landed, beside | v[j][0]);
            } else {
                store_words(landed, beside | v[j][0], beside | v[j][N - 1]);
            }
        }
    }
}

template <int N> __device__ __forceinline__ void leave_and_take(const ek_cuda_exchange_args &a, u32 number)
{
    if (a.half != EK_CUDA_TAKE && blockIdx.y == 0) words<true, N>(a, a.rank, number);
    if (a.half != EK_CUDA_PUT) words<false, N>(a, peer_of(a), number);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    ek_exchange_words(const __grid_constant__ ek_cuda_exchange_args a)
{
    const ek_cuda_exchange_span &s = a.span[blockIdx.z];
    const ek_cuda_exchange_piece &p = a.piece[s.piece];
    u32 two = (u32)p.ld | 4u * (u32)p.place; // the same on every device, because the sizes are those of the whole rows
    for (int r = 0; r < a.ranks; r++) two |= (u32)s.from[r] | (u32)s.bytes[r];
    let_next_start();
    const u32 number = number_of(a);
    wait_for_previous();
    if ((two & 7) == 0) leave_and_take<2>(a, number);
    else leave_and_take<1>(a, number);
}
