// Heads of prompts (contracts: ops/rows/rows.h, ops/kv/kv.h): queries in place, keys and values into pages of f16 or of
// codes for attention in integers. A head lies in the registers of half a warp, or of a warp for more than 256 dims;
// keys of 32 rows are turned in shared memory, as a page has the keys of a dim side by side.
#include "cuda/kernels/int_codes.cuh"
#include "cuda/kernels/norm.cuh"
#include "cuda/model_args.h"

using namespace ek;

// A lane has 16 elements, 16 apart in a block of 256. They are its chain in the sum of squares. Element j is rotated
// with j + DIM / 2, in the same lane or in the lane 16 after it.
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

// The page of a row's token, at the keys or values of the block's head, and the token's slot.
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
    unsigned short *const to = token_at(a, row0 + lane, true, &slot) +
                               slot; // rows of a prompt are neighbours in a page
#pragma unroll 8
    for (int d = warp; d < DIM; d += EK_CUDA_STORE_THREADS / 32) to[d * PAGE] = tile[lane][d];
}

// --- pages of codes (contract: ops/attn/attn_int.h)

// x becomes R x, and code[i] the code of x[i]. Returns the scale. Like encode (int_codes.cuh), for row_head's elements.
template <int DIM, int OWN>
__device__ __forceinline__ float encode_row(float (&x)[OWN], float largest, int (&code)[OWN])
{
    typedef row_head<DIM> head;
    u32 top = 0;
#pragma unroll
    for (int i = 0; i < OWN; i++) x[i] = clamp_(x[i], -0x1p96f, 0x1p96f);
#pragma unroll
    for (int h = 1; h < DIM; h *= 2) { // in ascending order, as in the contract
        const int lanes = h < 16 ? h : h == 256 ? 16 : 0;
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            if (lanes) {
                const float other = __shfl_xor_sync(~0u, x[i], lanes);
                x[i] = head::lane() & lanes ? other - x[i] : x[i] + other;
            } else if (!(i & h / 16)) {
                const float a = x[i], b = x[i + h / 16];
                x[i] = a + b, x[i + h / 16] = a - b;
            }
        }
    }
#pragma unroll
    for (int i = 0; i < OWN; i++) top = max(top, __float_as_uint(x[i]) & 0x7fffffffu);
#pragma unroll
    for (int apart = head::LANES / 2; apart; apart /= 2) top = max(top, __shfl_xor_sync(~0u, top, apart));
    const float t = bits(top);
    const bool none = t < 0x1p-100f;
    const float by = none ? 0.0f : __fdiv_rn(largest, t);
#pragma unroll
    for (int i = 0; i < OWN; i++) code[i] = rounded(clamp_(x[i] * by, -largest, largest));
    return none ? 0.0f : __fdiv_rn(t, largest);
}

// A row's token: its slot, and the codes of the block's head in its page, described by the formats of that page.
struct code_place {
    uint8_t *at;
    int slot, bits;

    __device__ __forceinline__ code_place(const ek_cuda_store_args &a, int r, bool keys)
    {
        const ek_cuda_place place = ((const ek_cuda_place *)a.place)[r];
        const ek_cuda_kv kv = kv_at(a, place.pos / PAGE);
        at = (uint8_t *)page_block(kv, place.view, place.pos / PAGE) + blockIdx.x * (kv.k_bytes + kv.v_bytes) +
             (keys ? 0 : kv.k_bytes);
        slot = place.pos % PAGE, bits = keys ? kv.k_bits : kv.v_bits;
    }
};

// The codes of four keys of a row in the order of a page: codes of 16 bits in pairs, of 8 in fours (rotated_place).
__device__ __forceinline__ void put_keys(const code_place &to, const u32 (&pair)[2], int d)
{
    u32 *const at = (u32 *)to.at + to.slot;
    if (to.bits == 16) {
        at[d / 2 * PAGE] = pair[0], at[(d / 2 + 1) * PAGE] = pair[1];
    } else {
        at[d / 4 * PAGE] = __byte_perm(pair[0], pair[1], 0x6240);
    }
}

template <int DIM> __device__ __forceinline__ void store_codes(const ek_cuda_store_args &a)
{
    typedef row_head<DIM> head;
    constexpr int ROWS = EK_CUDA_STORE_ROWS;
    __shared__ int16_t tile[ROWS][DIM + 2]; // rows begin in different banks
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
        int code[head::OWN];
        head::read(x, (keys ? (const float *)a.k + r * a.ldk : (const float *)a.v + r * a.ldv) +
                          (int64_t)blockIdx.x * DIM);
        if (keys) {
            h.rotation(a.head, r);
            h.template norm<true>(x, a.head.eps);
            h.rotate(x, a.head);
        } else {
            h.template norm<false>(x, a.head.eps);
        }
        const code_place to(a, r, keys);
        const float scale = encode_row<DIM>(x, to.bits == 16 ? 2047.0f : 127.0f, code);
        if (mine >= rows) continue;
        if (lane % head::LANES == 0) ((float *)(to.at + rotated_codes(to.bits, DIM)))[to.slot] = scale;
#pragma unroll
        for (int j = 0; j < head::OWN; j++) {
            const int d = head::first() + j * 16;
            if (keys) tile[mine][d] = (int16_t)code[j];
            else if (to.bits == 16) ((int16_t *)to.at)[rotated_place(16, to.slot, DIM, d)] = (int16_t)code[j];
            else ((int8_t *)to.at)[rotated_place(8, to.slot, DIM, d)] = (int8_t)code[j];
        }
    }
    if (!keys) return;
    __syncthreads();
    if (lane >= rows) return;
    const code_place to(a, row0 + lane, true); // rows of a prompt are neighbours in a page
#pragma unroll 4
    for (int d = warp * 4; d < DIM; d += EK_CUDA_STORE_THREADS / 32 * 4) {
        const u32 pair[2] = {*(const u32 *)&tile[lane][d], *(const u32 *)&tile[lane][d + 2]};
        put_keys(to, pair, d);
    }
}

#define HEADS(DIM)                                                            \
    extern "C" __global__ void __launch_bounds__(EK_CUDA_HEADS_THREADS)       \
        ek_heads_rows_##DIM(const __grid_constant__ ek_cuda_heads_args a)     \
    {                                                                         \
        heads<DIM>(a);                                                        \
    }                                                                         \
    extern "C" __global__ void __launch_bounds__(EK_CUDA_STORE_THREADS)       \
        ek_kv_store_rows_##DIM(const __grid_constant__ ek_cuda_store_args a)  \
    {                                                                         \
        store<DIM>(a);                                                        \
    }                                                                         \
    extern "C" __global__ void __launch_bounds__(EK_CUDA_STORE_THREADS)       \
        ek_kv_store_codes_##DIM(const __grid_constant__ ek_cuda_store_args a) \
    {                                                                         \
        store_codes<DIM>(a);                                                  \
    }
HEADS(256)
HEADS(512)
