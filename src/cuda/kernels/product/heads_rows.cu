// Heads of prompts (contracts: ops/rows/rows.h, ops/kv/kv.h): queries in place, keys and values into pages of f16. A
// head lies in the registers of half a warp, or of a warp for more than 256 dims; keys of 32 rows are turned in shared
// memory, as a page has the keys of a dim side by side.
#include "cuda/kernels/kv.cuh"
#include "cuda/kernels/norm.cuh"
#include "cuda/model_args.h"

using namespace ek;

// A lane has 16 elements, 16 apart in a block of 256, which is its chain in the sum of squares. Element j turns with
// j + DIM / 2: of the same lane, or of the lane 16 behind.
template <int DIM> struct row_head {
    static constexpr int LANES = DIM > 256 ? 32 : 16, OWN = DIM / LANES, PER_WARP = 32 / LANES,
                         PAIRS = LANES == 32 ? OWN : OWN / 2;
    static_assert(OWN == 16, "256 or 512 dims");
    float w[OWN], cos[PAIRS], sin[PAIRS];

    static __device__ __forceinline__ int lane()
    {
        return threadIdx.x % 32;
    }

    // the element of i = 0
    static __device__ __forceinline__ int first()
    {
        return lane() % 16 + (LANES == 32 ? lane() / 16 * 256 : 0);
    }

    static __device__ __forceinline__ int pair(int i)
    {
        return lane() % 16 + i * 16;
    }

    __device__ __forceinline__ void weights(const ek_cuda_head &how)
    {
#pragma unroll
        for (int i = 0; i < OWN; i++) w[i] = ((const float *)how.norm)[first() + i * 16];
    }

    __device__ __forceinline__ void rotation(const ek_cuda_head &how, int r)
    {
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            const bool rotates = how.cos && pair(i) < how.rotated;
            cos[i] = rotates ? ((const float *)how.cos)[r * how.ld_table + pair(i)] : 1;
            sin[i] = rotates ? ((const float *)how.sin)[r * how.ld_table + pair(i)] : 0;
        }
    }

    static __device__ __forceinline__ void read(float (&x)[OWN], const float *from)
    {
#pragma unroll
        for (int i = 0; i < OWN; i++) x[i] = from[first() + i * 16];
    }

    // By all lanes of a warp.
    template <bool WEIGHS> __device__ __forceinline__ void norm(float (&x)[OWN], float eps) const
    {
        float ss = 0;
#pragma unroll
        for (int i = 0; i < OWN; i++) ss = fma_(x[i], x[i], ss);
        ss = __shfl_sync(~0u, add_lanes(ss), 0, 16);
        if (LANES == 32) ss = __shfl_sync(~0u, ss, 0) + __shfl_sync(~0u, ss, 16); // blocks of 256
        const float f = norm_factor(ss, DIM, eps);
#pragma unroll
        for (int i = 0; i < OWN; i++) x[i] = WEIGHS ? x[i] * f * w[i] : x[i] * f;
    }

    __device__ __forceinline__ void rotate(float (&x)[OWN], const ek_cuda_head &how) const
    {
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            const bool rotates = how.cos && pair(i) < how.rotated;
            if (LANES == 32) {
                const float other = __shfl_xor_sync(~0u, x[i], 16);
                if (rotates) x[i] = fma_(lane() < 16 ? -other : other, sin[i], x[i] * cos[i]);
            } else if (rotates) {
                const float x0 = x[i], x1 = x[i + OWN - PAIRS];
                x[i] = fma_(-x1, sin[i], x0 * cos[i]), x[i + OWN - PAIRS] = fma_(x0, sin[i], x1 * cos[i]);
            }
        }
    }
};

template <int DIM> __device__ __forceinline__ void heads(const ek_cuda_heads_args &a)
{
    typedef row_head<DIM> head;
    const int r = blockIdx.x, sub = head::lane() / head::LANES, n_heads = (int)(a.ldq / DIM);
    head h;
    let_next_start();
    h.weights(a.head);
    wait_for_previous();
    h.rotation(a.head, r);
#pragma unroll 1
    for (int i = threadIdx.x / 32 * head::PER_WARP; i < n_heads; i += EK_CUDA_HEADS_THREADS / head::LANES) {
        float *const at = (float *)a.q + r * a.ldq + (int64_t)min(i + sub, n_heads - 1) * DIM, x[head::OWN];
        head::read(x, at);
        h.template norm<true>(x, a.head.eps);
        h.rotate(x, a.head);
        if (i + sub >= n_heads) continue;
#pragma unroll
        for (int j = 0; j < head::OWN; j++) at[head::first() + j * 16] = x[j];
    }
}

// The page of a row's token, at the keys or values of the block's head; its slot in it.
__device__ __forceinline__ unsigned short *token_at(const ek_cuda_store_args &a, int r, bool keys, int *slot)
{
    const ek_cuda_place place = ((const ek_cuda_place *)a.place)[r];
    const u64 page = page_block(a.kv, place.view, place.pos / PAGE);
    *slot = place.pos % PAGE;
    return (unsigned short *)(page + blockIdx.x * (a.kv.k_bytes + a.kv.v_bytes) + (keys ? 0 : a.kv.k_bytes));
}

template <int DIM> __device__ __forceinline__ void store(const ek_cuda_store_args &a)
{
    typedef row_head<DIM> head;
    constexpr int ROWS = EK_CUDA_STORE_ROWS;
    __shared__ unsigned short tile[ROWS][DIM + 2]; // rows begin in different banks
    const int row0 = blockIdx.y * ROWS, rows = min(ROWS, a.rows - row0), lane = head::lane(), warp = threadIdx.x / 32;
    const bool keys = blockIdx.z == 0;
    head h;
    let_next_start();
    if (keys) h.weights(a.head);
    wait_for_previous();
#pragma unroll 1
    for (int i = warp * head::PER_WARP; i < rows; i += EK_CUDA_STORE_THREADS / head::LANES) {
        const int mine = i + lane / head::LANES, r = row0 + min(mine, rows - 1);
        float x[head::OWN];
        head::read(x, (keys ? (const float *)a.k + r * a.ldk : (const float *)a.v + r * a.ldv) +
                          (int64_t)blockIdx.x * DIM);
        if (!keys) {
            h.template norm<false>(x, a.head.eps);
            int slot;
            unsigned short *const to = token_at(a, r, false, &slot);
#pragma unroll
            for (int j = 0; j < head::OWN; j++)
                if (mine < rows) to[slot * DIM + head::first() + j * 16] = to_half(x[j]);
            continue;
        }
        h.rotation(a.head, r);
        h.template norm<true>(x, a.head.eps);
        h.rotate(x, a.head);
#pragma unroll
        for (int j = 0; j < head::OWN; j++)
            if (mine < rows) tile[mine][head::first() + j * 16] = to_half(x[j]);
    }
    if (!keys) return;
    __syncthreads();
    if (lane >= rows) return;
    int slot;
    unsigned short *const to = token_at(a, row0 + lane, true, &slot) + slot; // rows of a prompt: neighbours in a page
#pragma unroll 8
    for (int d = warp; d < DIM; d += EK_CUDA_STORE_THREADS / 32) to[d * PAGE] = tile[lane][d];
}

#define HEADS(DIM)                                                           \
    extern "C" __global__ void __launch_bounds__(EK_CUDA_HEADS_THREADS)      \
        ek_heads_rows_##DIM(const __grid_constant__ ek_cuda_heads_args a)    \
    {                                                                        \
        heads<DIM>(a);                                                       \
    }                                                                        \
    extern "C" __global__ void __launch_bounds__(EK_CUDA_STORE_THREADS)      \
        ek_kv_store_rows_##DIM(const __grid_constant__ ek_cuda_store_args a) \
    {                                                                        \
        store<DIM>(a);                                                       \
    }
HEADS(256)
HEADS(512)
