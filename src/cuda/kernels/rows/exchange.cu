// What several devices have computed of the same rows goes to all of them (cuda/exchange_args.h): each stores its part
// into the others' memory and then says so, and waits until they have. Bytes are moved and nothing is added.
#include "cuda/exchange_args.h"
#include "cuda/kernels/words.cuh"

using namespace ek;

constexpr int THREADS = 256;

// A span of all rows, by all blocks of a peer.
template <class T>
__device__ __forceinline__ void store(u64 to, u64 from, int64_t ld, const ek_cuda_exchange_span &s, int rows)
{
    constexpr int AT_ONCE = 4;
    const int each = s.bytes / (int)sizeof(T), n = rows * each, step = gridDim.x * THREADS;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += step * AT_ONCE) {
        T v[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const int at = i + j * step;
            if (at < n) v[j] = ((const T *)(from + at / each * ld + s.from))[at % each];
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const int at = i + j * step;
            if (at < n) ((T *)(to + at / each * ld + s.from))[at % each] = v[j];
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) ek_exchange_put(const __grid_constant__ ek_cuda_exchange_args a)
{
    const int peer = (int)blockIdx.y + ((int)blockIdx.y >= a.rank);
    let_next_start();
    wait_for_previous();
    for (int p = 0; p < EK_CUDA_EXCHANGE_PIECES; p++) {
        const ek_cuda_exchange_piece &piece = a.piece[p];
        const u64 from = piece.at[a.rank] + piece.first, to = piece.at[peer] + piece.first;
        for (int s = 0; s < EK_CUDA_EXCHANGE_SPANS && a.rows[p]; s++) {
            const ek_cuda_exchange_span span = piece.span[s];
            if (!span.bytes) continue;
            if (((from | to | (u64)piece.ld | (u64)span.from | (u64)span.bytes) & 15) == 0)
                store<uint4>(to, from, piece.ld, span, a.rows[p]);
            else store<u32>(to, from, piece.ld, span, a.rows[p]);
        }
    }
    fence_system();
    __syncthreads();
    if (threadIdx.x) return;
    const u32 done = ((const ek_cuda_exchange_control *)a.control[a.rank])->done;
    store_system(&((ek_cuda_exchange_control *)a.control[peer])->arrived[a.rank][blockIdx.x], done + 1);
}

extern "C" __global__ void __launch_bounds__(THREADS) ek_exchange_take(const __grid_constant__ ek_cuda_exchange_args a)
{
    ek_cuda_exchange_control *const own = (ek_cuda_exchange_control *)a.control[a.rank];
    let_next_start();
    wait_for_previous();
    const u32 want = own->done + 1;
    const u64 begun = nanoseconds();
    for (int i = threadIdx.x; i < a.ranks * a.blocks; i += THREADS) {
        const int peer = i / a.blocks;
        if (peer == a.rank) continue;
        while ((int)(load_system(&own->arrived[peer][i % a.blocks]) - want) < 0) {
            if (load_system(&own->lost)) break;
            if (nanoseconds() - begun > a.limit) store_system(&own->lost, 1u);
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) own->done = want;
}

// --- in words

// What of a span is here, to the others; else what is not, from them.
template <bool SENDS>
__device__ __forceinline__ void words(const ek_cuda_words &w, const ek_cuda_words_piece &piece, int s, u32 number)
{
    constexpr int AT_ONCE = 4;
    const u64 rows = piece.rows + piece.first;
    const ek_cuda_exchange_span here = piece.span[s], whole = SENDS ? here : piece.whole[s];
    const int each = whole.bytes / 4, n = piece.n_rows * each, step = gridDim.x * THREADS;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += step * AT_ONCE) {
        u32 *at[AT_ONCE];
        int64_t place[AT_ONCE];
        u64 v[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const int k = i + j * step, row = k / each, byte = whole.from + k % each * 4;
            const bool own = byte >= here.from && byte < here.from + here.bytes;
            at[j] = k < n && own == SENDS ? (u32 *)(rows + row * piece.ld + byte) : nullptr;
            place[j] = piece.place + (row * piece.ld + byte) / 4;
            if (at[j]) v[j] = SENDS ? *at[j] : load_word(landing(w, place[j]));
        }
        if (SENDS) {
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++)
                if (at[j]) send(w, place[j], (u32)v[j], number);
        } else {
#pragma unroll 1
            for (int j = 0; j < AT_ONCE; j++) {
                u32 *const to = at[0];
                if (to) *to = await(w, landing(w, place[0]), v[0], number);
#pragma unroll
                for (int k = 0; k < AT_ONCE - 1; k++) at[k] = at[k + 1], place[k] = place[k + 1], v[k] = v[k + 1];
            }
        }
    }
}

template <bool SENDS> __device__ __forceinline__ void all_words(const ek_cuda_exchange_words_args &a, u32 number)
{
    for (int p = 0; p < EK_CUDA_EXCHANGE_PIECES; p++)
        for (int s = 0; s < EK_CUDA_EXCHANGE_SPANS && a.piece[p].n_rows; s++)
            if (a.piece[p].whole[s].bytes) words<SENDS>(a.w, a.piece[p], s, number);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    ek_exchange_words(const __grid_constant__ ek_cuda_exchange_words_args a)
{
    let_next_start();
    const u32 number = number_of(a.w);
    wait_for_previous();
    if (a.w.half != EK_CUDA_TAKE) all_words<true>(a, number);
    if (a.w.half != EK_CUDA_PUT) all_words<false>(a, number);
}
