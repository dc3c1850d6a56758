// The sums of prompts' attention in integers (attn_int_prompt.cu): 64 queries of one KV head, by wgmma. Operand a is
// codes of keys, then of values, 64 columns of a page's part, which each warp copies for itself into a ring. Operand b
// is the limbs of 64 queries, then of their weights, in shared memory.
#pragma once

#include "cuda/kernels/attn/attn.cuh"
#include "cuda/kernels/int_codes.cuh"
#include "cuda/kernels/mma.cuh"

namespace ek
{

constexpr int TILE = EK_CUDA_PROMPT_TILE, THREADS = EK_CUDA_INT_PROMPT_THREADS, WARPS = THREADS / 32;
constexpr int GROUPS = THREADS / 128, PAGES = SEGMENT / PAGE, OWN = PAGES / GROUPS; // OWN: pages of a warpgroup
constexpr int UNROLLED = EK_HAS_WGMMA ? 4 : 1, PAIRS = EK_HAS_WGMMA ? 7 : 1;
constexpr int SLOTS = 6, SLOT = 2048, MAX_LEVELS = 12;

struct int_shared {
    uint8_t q[2][4][TILE * 128];      // limbs, 128 dims in a row, as wgmma reads operand b
    uint8_t p[2][GROUPS][TILE * 128]; // of weights, 128 keys in a row
    uint8_t ring[WARPS][SLOTS][SLOT];
    union {
        u32 part[2][WARPS][TILE];      // of the queries, per warp
        u32 factors[MAX_LEVELS][TILE]; // for a leaf that is joined to a node of T below it: the node's factor as bf16,
                                       // its own above it
    };
    union {
        u32 max_n[TILE];    // bits of WHOLE + m
        float factor[TILE]; // 1 / unit, once max_n is no longer needed
    };
    float q_scale[TILE], unit[TILE];
    float l[TILE];                                   // of queries that end here
    int lo[TILE], end[TILE], from[TILE], seen[TILE]; // the last two of the segment: its first key, how many
    const uint8_t *page[PAGES];                      // the head's part; 0: no query sees it
    int64_t k_bytes; // as in ek_cuda_kv; kept here, because registers are needed for sums
    int out[TILE];   // the target of a query's node, and its row
    int k_bits, v_bits, first, last,
        seen_end; // first, last: visible pages; seen_end: after the last visible key
    ek_cuda_attn_tile tile;
    int next;
};

// Element i < 128 of row n of 64: bytes from the first.
__device__ __forceinline__ int row_place(int n, int i)
{
    return n * 128 + ((i / 16 ^ n % 8) * 16) + i % 16;
}

// Pairs of steps of 32 inputs, of which a warp copies its 16 columns: rows of 64 bytes, two in 128, whose pieces of 16
// are permuted so that lanes of four rows read from different banks. First the warpgroup's pages of keys, then all
// pages of values for every GROUPS-th block of 64 dims. Each lane keeps the addresses of its next pieces.
template <int DIM> struct int_ring {
    const int_shared &sm;
    uint8_t *const slots;
    const int dim;
    int get;             // offset of the slot that is read next, in bytes
    const uint8_t *from; // the lane's piece of the next pair's first eight rows
    int eights;          // groups of eight rows in a pair
    int left;            // pairs of keys left in the page
    int page, block;     // of the next copy; block: of dims, -1 for keys

    static __device__ __forceinline__ int warp() // of the warpgroup
    {
        return threadIdx.x / 32 % 4;
    }

    static __device__ __forceinline__ int group()
    {
        return threadIdx.x / 128;
    }

    // the column among a row's four; computed when a page is opened, and not kept
    static __device__ __forceinline__ int piece()
    {
        const int tid = thread_again();
        return tid / 32 % 4 * 16 + tid % 4 * 4;
    }

    static __device__ __forceinline__ int row() // of the eight, likewise
    {
        return thread_again() % 32 / 4;
    }

    static __device__ __forceinline__ int hot_lane() // kept in a register where these suffice
    {
        return (EK_HAS_WGMMA ? (int)threadIdx.x : thread_again()) % 32;
    }

    __device__ __forceinline__ int_ring(int_shared &shared, const ek_cuda_attn_args &a)
        : sm(shared), slots(shared.ring[threadIdx.x / 32][0]), dim(DIM ? DIM : a.kv.head_dim), get(SLOT), block(-1)
    {
        page = max(sm.first, group() * OWN), eights = sm.k_bits / 4;
        if (page > min(sm.last, group() * OWN + OWN - 1)) open_values();
        else open_keys();
        __syncwarp();
#pragma unroll 1
        for (int i = 0; i < SLOTS - 1; i++) feed(), next();
        get = 0;
    }

    __device__ __forceinline__ int pairs() const // of a page's keys
    {
        return (dim + 127) / 128 * 2;
    }

    __device__ __forceinline__ void open_keys()
    {
        left = pairs(), from = sm.page[page] + (row() * PAGE + piece()) * 4;
    }

    __device__ __forceinline__ void open_values()
    {
        page = sm.first, block = group(), eights = sm.v_bits / 4;
        open_page();
    }

    __device__ __forceinline__ void open_page()
    {
        const int d = block * 64 + piece();
        from = sm.page[page] + sm.k_bytes + (row() * dim + (d < dim ? d : 0)) * 4;
    }

    // Copies the next pair into the slot that was read last. After the last row of keys that row is repeated.
    __device__ __forceinline__ void feed()
    {
        const int own = hot_lane() / 4, at = own / 2;
        uint8_t *const to = slots + (get ? get - SLOT : (SLOTS - 1) * SLOT) + at * 128 +
                            ((own % 2 * 4 + hot_lane() % 4) ^ (at % 4 * 2)) * 16;
        const int eight = block < 0 ? 8 * PAGE * 4 : 8 * dim * 4; // rows
        const int rows = DIM % 128 == 0 && DIM ? 32 : block < 0 ? dim * eights / 8 - (pairs() - left) * eights * 8 : 32;
        if (rows < eights * 8) {
#pragma unroll 1
            for (int j = 0; j < eights; j++)
                copy_async<16>(to + j * 512, from + (min(j * 8 + own, rows - 1) - own) * (PAGE * 4));
        } else if (eights) {
            copy_async<16>(to, from), copy_async<16>(to + 512, from + eight);
            if (eights > 2) copy_async<16>(to + 1024, from + 2 * eight), copy_async<16>(to + 1536, from + 3 * eight);
        }
        copy_commit();
        if (block < 0) {
            from += eights * eight;
            if (--left) return;
            if (++page > min(sm.last, group() * OWN + OWN - 1)) open_values();
            else open_keys();
        } else {
            if (++page > sm.last) page = sm.first, block += GROUPS;
            if (block * 64 < dim) open_page();
            else eights = 0;
        }
    }

    // Waits for the oldest pair in flight, for the warp; reads of its two steps, a feed and next follow.
    __device__ __forceinline__ void open() const
    {
        copy_wait<SLOTS - 2>();
        __syncwarp();
    }

    template <int BITS> __device__ __forceinline__ void read(fragment<BITS> &x, int step) const
    {
        const int g = hot_lane() / 4, t = hot_lane() % 4;
        // for the first row that the lane reads; the offsets of the others are constants
        const int at = BITS == 16 ? t * 128 + ((g / 2) ^ (t * 2)) * 16 + g % 2 * 8
                                  : t / 2 * 128 + ((t % 2 * 4 + g / 2) ^ (t / 2 * 2)) * 16 + g % 2 * 8;
        const uint8_t *const even = slots + get + at, *const odd = slots + get + (at ^ 64);
#pragma unroll
        for (int i = 0; i < BITS / 4; i++)
            x.w[i] = *(const uint2 *)((i % 2 ? odd : even) + step * (BITS * 64) + (BITS == 16 ? i / 2 * 512 : i * 256));
    }

    __device__ __forceinline__ void next()
    {
        get = get + SLOT == SLOTS * SLOT ? 0 : get + SLOT;
    }
};

// A step's products; the previous step may still be running. KEPT 0: the sums' first.
template <int BITS, int KEPT>
__device__ __forceinline__ void multiply(int (&hh)[32], int (&mid)[32], int (&ll)[32], u32 (&l)[4], u32 (&h)[4],
                                         const uint8_t *low, const uint8_t *high)
{
    wgmma_pin(l);
    if (BITS == 16) wgmma_pin(h);
    wgmma_fence();
    wgmma<KEPT>(ll, l, low), wgmma<KEPT>(mid, l, high);
    if (BITS == 16) wgmma<1>(mid, h, low), wgmma<KEPT>(hh, h, high);
    wgmma_commit();
}

// A pair of steps with the next codes; the last step before it may still be running.
template <int BITS, int KEPT, int DIM>
__device__ __forceinline__ void multiply_pair(int_ring<DIM> &ring, int (&hh)[32], int (&mid)[32], int (&ll)[32],
                                              u32 (&l)[2][4], u32 (&h)[2][4], const uint8_t *low, const uint8_t *high)
{
    constexpr int two = DIM && EK_HAS_WGMMA ? 1 : 0; // steps in flight; registers suffice
    fragment<BITS> x;
    ring.open();
    ring.read(x, 0);
    if (KEPT) wgmma_wait<two>();
    x.limbs(l[0], h[0]);
    multiply<BITS, KEPT>(hh, mid, ll, l[0], h[0], low, high);
    ring.read(x, 1);
    wgmma_wait<two>();
    x.limbs(l[two], h[two]);
    multiply<BITS, 1>(hh, mid, ll, l[two], h[two], low + 32, high + 32);
    ring.feed(), ring.next(); // while it is multiplied
}

template <int BITS> __device__ __forceinline__ void pin_sums(int (&hh)[32], int (&mid)[32], int (&ll)[32])
{
    if (BITS == 16) wgmma_pin(hh);
    wgmma_pin(mid), wgmma_pin(ll);
}

// Scores of the warpgroup's pages: s[p][4 j + 2 r + c] is for key 64 p + 16 warp + 2 g + r and query 8 j + 2 t + c.
template <int BITS, int DIM>
__device__ __forceinline__ void int_scores(const int_shared &sm, int_ring<DIM> &ring, float (&s)[OWN][32])
{
    const int dim = ring.dim;
    const int page0 = threadIdx.x / 128 * OWN;
#pragma unroll
    for (int i = 0; i < 32; i++) s[OWN - 1][i] = 0;
#pragma unroll 1
    for (int p = 0; p < OWN; p++) { // one code for both pages
#pragma unroll
        for (int i = 0; i < 32; i++) s[0][i] = s[OWN - 1][i], s[OWN - 1][i] = 0;
        if (page0 + p < sm.first || page0 + p > sm.last) continue;
        int hh[32], mid[32], ll[32];
        u32 l[2][4], h[2][4];
#pragma unroll
        for (int i = 0; i < 32; i++) hh[i] = mid[i] = ll[i] = 0;
        pin_sums<BITS>(hh, mid, ll);
        constexpr int peeled = DIM && EK_HAS_WGMMA;
        if (peeled) multiply_pair<BITS, !peeled>(ring, hh, mid, ll, l, h, sm.q[0][0], sm.q[1][0]);
#pragma unroll DIM ? PAIRS : 1
        for (int pair = peeled; pair < ring.pairs(); pair++)
            multiply_pair<BITS, 1>(ring, hh, mid, ll, l, h, sm.q[0][pair / 2] + pair % 2 * 64,
                                   sm.q[1][pair / 2] + pair % 2 * 64);
        wgmma_wait<0>();
        pin_sums<BITS>(hh, mid, ll);
        const float *const scale = (const float *)(sm.page[page0 + p] + rotated_codes(BITS, dim));
        const int lane = threadIdx.x % 32, t = lane % 4;
        const float2 k = *(const float2 *)(scale + ring.warp() * 16 + lane / 4 * 2);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const float2 q = *(const float2 *)&sm.q_scale[j * 8 + t * 2];
#pragma unroll
            for (int i = j * 4; i < j * 4 + 4; i++)
                s[OWN - 1][i] = held_score((float)score_sum<BITS>(hh[i], mid[i], ll[i]) * (i & 2 ? k.y : k.x) *
                                           (i & 1 ? q.y : q.x));
        }
    }
}

// Sums of 64 dims, unrounded.
template <int BITS, int DIM>
__device__ __forceinline__ void int_values(const int_shared &sm, int_ring<DIM> &ring, int (&hh)[32], int (&mid)[32],
                                           int (&ll)[32])
{
    const int first = sm.first, last = sm.last;
    u32 l[2][4], h[2][4];
#pragma unroll
    for (int i = 0; i < 32; i++) hh[i] = mid[i] = ll[i] = 0;
    pin_sums<BITS>(hh, mid, ll);
#pragma unroll DIM ? UNROLLED : 1
    for (int p = 0; p < PAGES; p++) {
        if (p < first || p > last) continue;
        multiply_pair<BITS, 1>(ring, hh, mid, ll, l, h, sm.p[0][p / 2] + p % 2 * 64, sm.p[1][p / 2] + p % 2 * 64);
        wgmma_wait<0>();
        pin_sums<BITS>(hh, mid, ll);
    }
}

} // namespace ek
