// Attention in integers of 12 bits for two queries, if each block of threads has a multiprocessor to itself (contract:
// ops/attn/attn_int.h; choice: cuda/attn/choose.h): the bits of ek_attn_int_DIM, in less code and with more registers,
// because the waits of these blocks determine the time of a short step.
//
// A lane has eight steps of codes in registers: a warp's 32 keys of 256 dims, then its 32 dims of a segment's values.
// One loop body loads and adds both, so its instructions are fetched once. If every view has one row in the step, keys
// are read before the previous kernels have ended, and the row's own key is read again later. Values arrive while
// weights are computed.
#include "cuda/kernels/attn/attn_int_end.cuh"
#include "cuda/kernels/attn/attn_int_heads.cuh"
#include "cuda/kernels/attn/attn_int_open.cuh"

using namespace ek;

constexpr int STEPS = 8, ROWS = fragment<16>::ROWS;

// Two tiles of 16 columns by the steps of a round.
struct round_codes {
    fragment<16> x[STEPS][2];
    int sum[2][3][4]; // hh, mid, ll

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int i = 0; i < 24; i++) (&sum[0][0][0])[i] = 0;
    }

    // Steps from FROM on need no registers in front of this.
    template <int FROM> __device__ __forceinline__ void forget()
    {
#pragma unroll
        for (int u = FROM; u < STEPS; u++)
#pragma unroll
            for (int i = 0; i < 8; i++) x[u][i / 4].w[i % 4] = make_uint2(0, 0);
    }

    // Steps [from, to); at(u): the lane's columns of step u's first row; row: bytes between rows.
    template <class F> __device__ __forceinline__ void load(F at, int row, int from, int to, int lane)
    {
        const int first = lane % 4 * 2 * row;
#pragma unroll
        for (int u = 0; u < STEPS; u++) {
            if (u < from || u >= to) continue;
            const uint8_t *const p = at(u) + first;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const uint8_t *const word = p + (i / 2 * 8 + i % 2) * row;
                x[u][0].w[i] = __ldcg((const uint2 *)word), x[u][1].w[i] = __ldcg((const uint2 *)(word + 64));
            }
        }
    }

    __device__ __forceinline__ void add(const u32 (*b)[2][32][2], int from, int to, int lane)
    {
#pragma unroll
        for (int u = 0; u < STEPS; u++) {
            if (u < from || u >= to) continue;
            const uint2 low = *(const uint2 *)b[u][0][lane], high = *(const uint2 *)b[u][1][lane];
#pragma unroll
            for (int m = 0; m < 2; m++) {
                u32 l[4], h[4];
                x[u][m].limbs(l, h);
                mma(sum[m][2], l, low.x, low.y);
                mma(sum[m][1], l, high.x, high.y);
                mma(sum[m][1], h, low.x, low.y);
                mma(sum[m][0], h, high.x, high.y);
            }
        }
    }
};

template <int DIM> __device__ __forceinline__ void own(const ek_cuda_attn_args &a)
{
    constexpr int ROUNDS = (DIM + 255) / 256, SCORE_STEPS = DIM < 256 ? DIM / 32 : STEPS,
                  EARLY = DIM > 256 ? 4 : SCORE_STEPS; // steps, as there are registers beside a head
    __shared__ few_shared<DIM> sm;
    const ek_cuda_attn_start own_item = item_of(a), &item = sm.item;
    const ek_cuda_attn_tile &t = item.t;
    let_next_start();
    if (own_item.tile < 0) { // a graph's launch has room for more items than there are
        wait_for_previous();
        return;
    }
    const ek_cuda_kv &kv = a.kv;
    fetch_segment(a, kv, own_item);
    if (!open(sm, a, kv, own_item)) {
        wait_for_previous();
        return;
    }
    __syncthreads();
    const int last = (item.end - 1) / SEGMENT == item.seg ? (item.end - 1) % SEGMENT : -1; // key of a.single's row
    const bool alone = t.n_seg == 1;
    float s[1][2][4], k_scale[2][2], v_scale[1][2][2];
    round_codes codes;
    // Rounds of scores, then of values; -1: keys of the first that are there before the kernels in front have ended.
#pragma unroll 1
    for (int r = a.single ? -1 : 0;; r++) {
        if (r == 0) {
            wait_for_previous();
            head_by_warp(sm, a, last, threadIdx.x / 32);
            __syncthreads();
            codes.forget<EARLY>();
        }
        const int tid = thread_again(), lane = tid % 32, warp = tid / 32, g = lane / 4 * 2, column = warp % 2 * 32 + g;
        const uint8_t *const page = sm.page[warp / 2];
        const bool of_scores = r < ROUNDS, fresh = last >= 0 && last / 32 == warp && last % 16 / 2 == lane / 4;
        const int d0 = warp * 32 + (r - ROUNDS) * 256; // of values
        const bool has = of_scores ? page != 0 : d0 < DIM;
        const int from = of_scores ? 0 : sm.first * 2, to = of_scores ? SCORE_STEPS : sm.end * 2;
        if (r == 0) {
#pragma unroll
            for (int i = 0; i < 4; i++) (&k_scale[0][0])[i] = (&v_scale[0][0][0])[i] = 0;
            if (page) {
                load_scales(k_scale, page, 16, DIM, column);
                load_scales(v_scale[0], page + kv.k_bytes, 16, DIM, column);
            }
        }
        if (r < 2 * ROUNDS && has) {
            const uint8_t *const keys = page + column * 4 + max(r, 0) * STEPS * ROWS * PAGE * 4;
            codes.load(
                [&](int u) {
                    return of_scores ? keys + u * ROWS * PAGE * 4
                                     : sm.page[u / 2] + kv.k_bytes + (u % 2 * ROWS * DIM + d0 + g) * 4;
                },
                of_scores ? PAGE * 4 : DIM * 4, r == 0 && a.single && !fresh ? EARLY : from, r < 0 ? EARLY : to, lane);
        }
        if (r < 0) continue;
        if (r == ROUNDS) {
            scale_scores<16>(s[0], codes.sum, k_scale, *(const float2 *)&sm.q_scale[lane % 4 * 2]);
            weigh(sm, a, s, v_scale, alone, warp, lane);
        }
        if (r > ROUNDS && d0 - 256 < DIM) put_values<16>(sm, a, codes.sum, alone, DIM, d0 - 256 + g);
        if (r == 2 * ROUNDS) break;
        if (r == 0 || r >= ROUNDS) codes.clear();
        if (has) codes.add(of_scores ? sm.q + r * STEPS : sm.p, from, to, lane);
    }
    if (!join(sm, a, item)) return;
    __syncthreads();
    write_two_rows(sm, a, t);
}

#define OWN(DIM)                                                           \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)               \
        ek_attn_int_own_##DIM(const __grid_constant__ ek_cuda_attn_args a) \
    {                                                                      \
        own<DIM>(a);                                                       \
    }
OWN(64)
OWN(128)
OWN(256)
OWN(512)
