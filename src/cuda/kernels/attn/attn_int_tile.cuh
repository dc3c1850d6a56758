// The sums of prompts' attention in integers (attn_int_prompt.cu): 64 queries of one KV head, by wgmma. Operand a are
// codes of keys, then of values, 64 columns of a page's part, which a warp copies for itself into a ring; operand b
// the limbs of 64 queries, then of their weights, in shared memory.
#pragma once

#include "cuda/kernels/attn/attn.cuh"
#include "cuda/kernels/attn/attn_int_codes.cuh"
#include "cuda/kernels/mma.cuh"

namespace ek
{

constexpr int TILE = EK_CUDA_PROMPT_TILE, THREADS = EK_CUDA_INT_PROMPT_THREADS, WARPS = THREADS / 32;
constexpr int GROUPS = THREADS / 128, PAGES = SEGMENT / PAGE, OWN = PAGES / GROUPS; // OWN: pages of a warpgroup
constexpr int IN_FLIGHT = EK_HAS_WGMMA ? 2 : 1, UNROLLED = EK_HAS_WGMMA ? 4 : 1;
constexpr int SLOTS = 12, SLOT = 1024, MAX_LEVELS = 12;

struct int_shared {
    uint8_t q[2][4][TILE * 128];      // limbs, 128 dims in a row, as wgmma reads operand b
    uint8_t p[2][GROUPS][TILE * 128]; // of weights, 128 keys in a row
    uint8_t ring[WARPS][SLOTS][SLOT];
    union {
        u32 part[2][WARPS][TILE];      // of the queries, per warp
        u32 factors[MAX_LEVELS][TILE]; // of a node of T below, which the leaf meets: the node's, bf16, its own above it
    };
    u32 max_n[TILE];                                 // bits of WHOLE + m
    float q_scale[TILE], unit[TILE], factor[TILE];   // factor: 1 / unit
    float l[TILE];                                   // of queries that end here
    int lo[TILE], end[TILE], from[TILE], seen[TILE]; // the last two of the segment: its first key, how many
    const uint8_t *page[PAGES];                      // the head's part; 0: nobody sees any
    int64_t k_bytes; // of the segment's pages, as in ek_cuda_kv; here, for registers are needed for sums
    int k_bits, v_bits, dim, first, last; // pages that are seen
    ek_cuda_attn_tile tile;
    int next;
};

// Element i < 128 of row n of 64: bytes from the first.
__device__ __forceinline__ int row_place(int n, int i)
{
    return n * 128 + ((i / 16 ^ n % 8) * 16) + i % 16;
}

// Steps of 32 inputs, of which a warp copies its 16 columns: rows of 64 bytes, two in 128, whose pieces of 16 are
// turned so that lanes of four rows read from different banks. First the warpgroup's pages of keys, then all of values
// for every GROUPS-th block of 64 dims.
struct int_ring {
    const int_shared &sm;
    uint8_t *const slots;
    int get;
    int page, step, block; // of what is copied next; block: of dims, -1 keys

    static __device__ __forceinline__ int warp() // of the warpgroup
    {
        return threadIdx.x / 32 % 4;
    }

    __device__ __forceinline__ explicit int_ring(int_shared &shared)
        : sm(shared), slots(shared.ring[threadIdx.x / 32][0]), get(1)
    {
        const int group = threadIdx.x / 128;
        page = max(sm.first, group * OWN), step = 0, block = -1;
        if (page > min(sm.last, group * OWN + OWN - 1)) page = sm.first, block = group;
        __syncwarp();
#pragma unroll 1
        for (int i = 0; i < SLOTS - 1; i++) feed();
        get = 0;
    }

    // from: the warp's columns of the step's first row; of `rows` rows, the last is repeated; columns: of the 16, those
    // that are there
    __device__ __forceinline__ void copy(uint8_t *to, const uint8_t *from, int bits, int ld, int rows, int columns)
    {
        const int lane = threadIdx.x % 32, piece = lane % 4, column = piece * 4 < columns ? piece * 16 : 0;
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int row = lane / 4 + j * 8, at = row / 2;
            if (j * 8 + 8 > bits) continue;
            copy_async<16>(to + at * 128 + ((row % 2 * 4 + piece) ^ (at % 4 * 2)) * 16,
                           from + (int64_t)min(row, rows - 1) * ld + column);
        }
    }

    // The next step comes into the slot in front of the one that will be read next: the last that was read.
    __device__ __forceinline__ void feed()
    {
        uint8_t *const to = slots + (get ? get - 1 : SLOTS - 1) * SLOT;
        const int dim = sm.dim;
        if (block < 0) {
            const int rows = dim * sm.k_bits / 32, row = step * sm.k_bits; // 32 inputs
            copy(to, sm.page[page] + warp() * 64 + (int64_t)min(row, rows - 1) * (PAGE * 4), sm.k_bits, PAGE * 4,
                 max(rows - row, 1), 16);
            if (++step == (dim + 127) / 128 * 4) {
                step = 0;
                if (++page > min(sm.last, (int)threadIdx.x / 128 * OWN + OWN - 1))
                    page = sm.first, block = threadIdx.x / 128;
            }
        } else if (block * 64 < dim) {
            const int d = block * 64 + warp() * 16;
            copy(to, sm.page[page] + sm.k_bytes + ((int64_t)step * sm.v_bits * dim + (d < dim ? d : 0)) * 4, sm.v_bits,
                 dim * 4, sm.v_bits, d < dim ? dim - d : 16);
            if (++step == 2) {
                step = 0;
                if (++page > sm.last) page = sm.first, block += GROUPS;
            }
        }
        copy_commit();
        get = get + 1 == SLOTS ? 0 : get + 1;
    }

    // The oldest step of those that are on their way, which is there for the warp then; feed follows.
    template <int BITS> __device__ __forceinline__ void read(fragment<BITS> &x) const
    {
        copy_wait<SLOTS - 2>();
        __syncwarp();
        const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
        const uint8_t *const slot = slots + get * SLOT;
#pragma unroll
        for (int i = 0; i < BITS / 4; i++) {
            const int row = fragment<BITS>::row(i, t), at = row / 2;
            x.w[i] = *(const uint2 *)(slot + at * 128 + ((row % 2 * 4 + g / 2) ^ (at % 4 * 2)) * 16 + g % 2 * 8);
        }
    }
};

// A step's products; a step in front of it may still be computed.
template <int BITS>
__device__ __forceinline__ void multiply(int (&hh)[32], int (&mid)[32], int (&ll)[32], u32 (&l)[4], u32 (&h)[4],
                                         const uint8_t *low, const uint8_t *high)
{
    wgmma_pin(l);
    if (BITS == 16) wgmma_pin(h);
    wgmma_fence();
    wgmma<1>(ll, l, low), wgmma<1>(mid, l, high);
    if (BITS == 16) wgmma<1>(mid, h, low), wgmma<1>(hh, h, high);
    wgmma_commit();
}

template <int BITS> __device__ __forceinline__ void pin_sums(int (&hh)[32], int (&mid)[32], int (&ll)[32])
{
    if (BITS == 16) wgmma_pin(hh);
    wgmma_pin(mid), wgmma_pin(ll);
}

template <int BITS> __device__ __forceinline__ void open_sums(int (&hh)[32], int (&mid)[32], int (&ll)[32])
{
#pragma unroll
    for (int i = 0; i < 32; i++) hh[i] = mid[i] = ll[i] = 0;
    pin_sums<BITS>(hh, mid, ll);
}

// Scores of the warpgroup's pages, held: s[p][4 j + 2 r + c] of its key 64 p + 16 warp + 2 g + r and query 8 j + 2 t +
// c.
template <int BITS>
__device__ __forceinline__ void int_scores(const int_shared &sm, int_ring &ring, float (&s)[OWN][32])
{
    const int page0 = threadIdx.x / 128 * OWN;
#pragma unroll
    for (int p = 0; p < OWN; p++) {
        if (page0 + p < sm.first || page0 + p > sm.last) {
#pragma unroll
            for (int i = 0; i < 32; i++) s[p][i] = 0;
            continue;
        }
        int hh[32], mid[32], ll[32];
        open_sums<BITS>(hh, mid, ll);
#pragma unroll 1
        for (int chunk = 0; chunk * 128 < sm.dim; chunk++) {
            u32 l[IN_FLIGHT][4], h[IN_FLIGHT][4];
#pragma unroll UNROLLED
            for (int u = 0; u < 4; u++) {
                const int k = u % IN_FLIGHT;
                fragment<BITS> x;
                ring.read(x);
                if (u > 1) wgmma_wait<1>();
                x.limbs(l[k], h[k]);
                multiply<BITS>(hh, mid, ll, l[k], h[k], sm.q[0][chunk] + u * 32, sm.q[1][chunk] + u * 32);
                ring.feed();
            }
            wgmma_wait<0>();
            pin_sums<BITS>(hh, mid, ll);
        }
        const float *const scale = (const float *)(sm.page[page0 + p] + rotated_codes(BITS, sm.dim));
        const int lane = threadIdx.x % 32, t = lane % 4;
        const float2 k = *(const float2 *)(scale + ring.warp() * 16 + lane / 4 * 2);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const float2 q = *(const float2 *)&sm.q_scale[j * 8 + t * 2];
#pragma unroll
            for (int i = j * 4; i < j * 4 + 4; i++)
                s[p][i] = held_score((float)score_sum<BITS>(hh[i], mid[i], ll[i]) * (i & 2 ? k.y : k.x) *
                                     (i & 1 ? q.y : q.x));
        }
    }
}

// Sums of 64 dims, unrounded.
template <int BITS>
__device__ __forceinline__ void int_values(const int_shared &sm, int_ring &ring, int (&hh)[32], int (&mid)[32],
                                           int (&ll)[32])
{
    open_sums<BITS>(hh, mid, ll);
#pragma unroll 1
    for (int p = sm.first; p <= sm.last; p++) {
        const uint8_t *const low = sm.p[0][p / 2] + p % 2 * 64, *const high = sm.p[1][p / 2] + p % 2 * 64;
        u32 l[2][4], h[2][4];
#pragma unroll
        for (int u = 0; u < 2; u++) {
            fragment<BITS> x;
            ring.read(x);
            x.limbs(l[u], h[u]);
            multiply<BITS>(hh, mid, ll, l[u], h[u], low + u * 32, high + u * 32);
            ring.feed();
        }
        wgmma_wait<0>();
        pin_sums<BITS>(hh, mid, ll);
    }
}

} // namespace ek
