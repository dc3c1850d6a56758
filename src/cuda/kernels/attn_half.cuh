// A segment of 256 keys in f16 for a tile of N queries of DIM dims, by a block of threads (attn_half.cu): its ring of
// copies, scores, weights and values. Loops are short and stand here once: code that comes from memory costs more than
// what it computes.
#pragma once

#include "cuda/kernels/attn.cuh"

namespace ek {

constexpr int PIECE = EK_CUDA_ATTN_PIECE, MAX_SLOTS = EK_CUDA_ATTN_FEW_SLOTS; // pieces on their way
constexpr int THREADS = 288, LAST = THREADS / 32 - 1;

template <int N, int DIM> struct half_shared {
    int from[N], to[N];              // keys of the segment that a query sees
    int row[N], column[N];           // of the queries, and their first element there
    __align__(16) int most[N][LAST]; // largest exponents of a warp's keys
    float sum[N];                    // l
    u64 arrived[MAX_SLOTS];            // per step on its way
    u64 page[4];                     // the head's part of each of the segment's pages
    int holes;                       // keys between others that nobody sees
    uint8_t seen[SEGMENT];
    float head[2][DIM];                         // new key and value on their way
    __align__(16) unsigned short fresh[2][DIM]; // as pages have them
};

// Where a step is: its place, and the phase in which all of its pieces are there.
struct ring_cursor {
    int place = 0;
    u32 phase = 0;
};

// What is not real runs for its code alone, which then is there when it counts: over the ring's first piece, and
// nothing is written.
template <int N, int DIM> struct half_leaf {
    static constexpr int STEPS = DIM / 64, PER = PIECE / 2 / DIM; // steps of keys, as many of values; values of a piece
    const ek_cuda_attn_args &a;
    const ek_cuda_attn_item &item;
    const ek_cuda_attn_tile &t;
    half_shared<N, DIM> &m;
    uint8_t *ring;
    float *q, *e;         // [DIM][N], [256][N], in one place
    int first, some;      // pages that are seen
    int all_from, all_to; // keys that are seen
    u32 mine;             // queries that see the thread's key
    int fresh;            // the new key, or -1
    int ahead;            // steps on their way
    bool alone;           // the tile has no other leaf

    // Pieces of a step into its place of `ahead`, by one thread.
    __device__ __forceinline__ void issue(int step, int place) const
    {
        uint8_t *to = ring + place * some * PIECE;
        arrival_expect(m.arrived + place, some * PIECE);
#pragma unroll 1
        for (int r = 0; r < some; r++, to += PIECE) {
            const int i = (step - STEPS) * some + r;
            const u64 own_page = m.page[first + (step < STEPS ? r : i / STEPS)], at = own_page ? own_page : m.page[first]; // absent: nobody sees it
            copy_piece(to, (const uint8_t *)at + (step < STEPS ? step * PIECE : a.kv.k_bytes + i % STEPS * PIECE), PIECE, m.arrived + place);
        }
    }

    // All threads have read the step's pieces, if others shall come in their place.
    __device__ __forceinline__ void release(int step, bool real, ring_cursor &at) const
    {
        if (step + ahead < (real ? 2 * STEPS : 0)) {
            wgmma_reads_fence(); // the copies stay behind what threads have written there
            __syncthreads();
            if (threadIdx.x == 0) issue(step + ahead, at.place);
        }
        if (++at.place == ahead) at.place = 0, at.phase ^= 1;
    }

    // Scores of the thread's key: a chain over 256 dims for each query, two for more. The new key is put into its page's
    // pieces by the warp that reads it.
    __device__ __forceinline__ void scores(float (&s)[N], bool real, ring_cursor &at) const
    {
        constexpr int EACH = N < 4 ? 4 / N : 1, CHUNK = N < 8 ? 32 : 16; // dims of a load, of a loop
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const bool sees = !real || (warp * 32 < all_to && warp * 32 + 32 > all_from);
        const int row = real ? warp / 2 - first : 0, put = real ? fresh : -1, steps = real ? STEPS : 1;
        float before[N];
#pragma unroll
        for (int n = 0; n < N; n++) s[n] = before[n] = 0;
#pragma unroll 1
        for (int step = 0; step < steps; step++) {
            if (DIM > 256 && step == 4)
#pragma unroll
                for (int n = 0; n < N; n++) before[n] = s[n], s[n] = 0;
            if (sees) {
                arrival_wait(m.arrived + at.place, at.phase);
                unsigned short *k = (unsigned short *)(ring + (at.place * some + row) * PIECE);
                if (put >> 5 == warp) {
#pragma unroll
                    for (int d = 0; d < 64; d += 32) k[(d + lane) * PAGE + put % PAGE] = m.fresh[0][step * 64 + d + lane];
                    __syncwarp();
                }
                k += warp % 2 * 32 + lane;
                const float *x = (real ? q : (const float *)ring) + step * 64 * N;
#pragma unroll 1
                for (int chunk = 0; chunk < 64 / CHUNK; chunk++, k += CHUNK * PAGE, x += CHUNK * N)
#pragma unroll
                    for (int d = 0; d < CHUNK; d += EACH) {
                        float v[EACH * N];
                        load_queries<EACH * N>(v, x + d * N);
#pragma unroll
                        for (int p = 0; p < EACH; p++) {
                            const float key = half_f32(k[(d + p) * PAGE]);
#pragma unroll
                            for (int n = 0; n < N; n++) s[n] = fma_(v[p * N + n], key, s[n]);
                        }
                    }
            }
            release(step, real, at);
        }
        if (DIM > 256)
#pragma unroll
            for (int n = 0; n < N; n++) s[n] = before[n] + s[n];
    }

    __device__ __forceinline__ int largest(int n) const
    {
        const int4 x = *(const int4 *)m.most[n], y = *(const int4 *)(m.most[n] + 4);
        return max(max(max(x.x, x.y), max(x.z, x.w)), max(max(y.x, y.y), max(y.z, y.w)));
    }

    // Weights of all keys into e.
    __device__ __forceinline__ void weights(const float (&s)[N], bool real) const
    {
        const int j = threadIdx.x;
        float p[N];
        int exponent[N];
        if (j < SEGMENT)
#pragma unroll
            for (int n = 0; n < N; n++) {
                p[n] = exp_split(s[n], &exponent[n]);
                const int most = __reduce_max_sync(~0u, mine >> n & 1 ? exponent[n] : INT32_MIN);
                if (real && j % 32 == 0) m.most[n][j / 32] = most;
            }
        if (real) __syncthreads();
        if (j < SEGMENT)
#pragma unroll
            for (int n = 0; n < N; n++) {
                const float weight = mine >> n & 1 ? p[n] * factor(exponent[n] - largest(n)) : 0.0f;
                if (real) e[j * N + n] = weight;
            }
        if (real) __syncthreads();
    }

    // l and m of the leaf, by the last warp while others add values: lanes l and l + 8 of a query, added 8, 4, 2, 1 apart;
    // keys of unseen pages add 0.
    __device__ __forceinline__ void sums(bool real) const
    {
        const float *const e = real ? this->e : (const float *)ring;
        const int lane = threadIdx.x % 32, l = lane % 8;
        if (!real) arrival_wait(m.arrived, 0);
#pragma unroll 1
        for (int n0 = 0; n0 < N; n0 += 4) {
            const int n = min(n0 + lane / 8, N - 1);
            float s0 = 0, s1 = 0;
#pragma unroll 1
            for (int j = first * PAGE; j < (first + some) * PAGE; j += 64)
#pragma unroll
                for (int i = l; i < l + 64; i += 16) s0 = s0 + e[(j + i) * N + n], s1 = s1 + e[(j + i + 8) * N + n];
            float total = s0 + s1;
#pragma unroll
            for (int apart = 4; apart; apart /= 2) total = total + __shfl_down_sync(~0u, total, apart, 8);
            if (!real || l || n0 + lane / 8 >= N || m.from[n] >= m.to[n]) continue;
            m.sum[n] = total;
            if (alone) continue;
            const int64_t leaf = (t.leaf0 + item.seg - t.seg0) * N + n;
            ((float *)a.leaf_l)[leaf] = total;
            ((int *)a.leaf_m)[leaf] = largest(n);
        }
    }

    __device__ __forceinline__ bool has_dims() const
    {
        return threadIdx.x < DIM / 2; // whole warps
    }

    // Two dims of a lane over the keys that are seen, ascending. A key that a query does not see has weight 0 there; one
    // that nobody sees, which may be anything, becomes 0 as well. Neither changes a sum but for the sign of 0, which ends
    // with it. Each thread touches its own dims of a piece.
    __device__ __forceinline__ void values(float (&o)[N][2], bool real, ring_cursor &at) const
    {
        const float *const e = real ? this->e : (const float *)ring;
        const bool works = !real || has_dims();
        const int own = threadIdx.x % (DIM / 2); // the last warps, not real, stay in the piece, too
        const int steps = STEPS + (real ? STEPS : 1), put = real ? fresh : -1;
        constexpr int KEYS = PER < 16 || N > 4 ? 8 : 16; // of a loop
#pragma unroll
        for (int n = 0; n < N; n++) o[n][0] = o[n][1] = 0;
#pragma unroll 1
        for (int step = STEPS; step < steps; step++) {
            if (works) arrival_wait(m.arrived + at.place, at.phase);
#pragma unroll 1
            for (int r = 0; r < some && works; r++) {
                const int i = (step - STEPS) * some + r, j0 = (first + i / STEPS) * PAGE + i % STEPS * PER; // the piece's first key
                u32 *const piece = (u32 *)(ring + (at.place * some + r) * PIECE) + own;
                const int seen_from = real ? min(max(all_from - j0, 0), PER) : 0, seen_to = real ? min(all_to - j0, PER) : KEYS, from = seen_from / KEYS * KEYS;
                if (put >= j0 && put < j0 + PER) piece[(put - j0) * (DIM / 2)] = ((const u32 *)m.fresh[1])[threadIdx.x];
                if (real && m.holes)
#pragma unroll 1
                    for (int j = seen_from; j < seen_to; j++)
                        if (!m.seen[j0 + j]) piece[j * (DIM / 2)] = 0;
#pragma unroll 1
                for (int j = from; j < seen_from; j++) piece[j * (DIM / 2)] = 0;
#pragma unroll 1
                for (int j = max(seen_to, 0); j % KEYS; j++) piece[j * (DIM / 2)] = 0;
#pragma unroll 1
                for (int j = from; j < seen_to; j += KEYS)
#pragma unroll
                    for (int k = 0; k < KEYS; k++) {
                        float x[N];
                        load_queries<N>(x, e + ((real ? j0 : 0) + j + k) * N);
                        const u32 two = piece[(j + k) * (DIM / 2)];
                        const float v[2] = {half_f32(two & 0xffff), half_f32(two >> 16)};
#pragma unroll
                        for (int n = 0; n < N; n++)
#pragma unroll
                            for (int c = 0; c < 2; c++) o[n][c] = fma_(x[n], v[c], o[n][c]);
                    }
            }
            release(step, real, at);
        }
    }

    // The tile's only leaf: o / l, and the rows of o quantised; a warp has a group of 64. Two queries at once.
    __device__ __forceinline__ void finish_alone(float (&o)[N][2], bool real) const
    {
        if (real && !has_dims()) return;
#pragma unroll 1
        for (int n0 = 0; n0 < (real ? t.n_q : 1); n0 += 2) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int n = n0 + i;
                if (n >= t.n_q) break;
                const int at = m.column[n] + threadIdx.x * 2;
                const float v[2] = {finish({o[i][0], m.sum[n], 0}), finish({o[i][1], m.sum[n], 0})};
                if (real) *(float2 *)((float *)a.o + m.row[n] * a.ldo + at) = make_float2(v[0], v[1]);
                if (a.to.q) quantize_pairs(a.to, m.row[n], at / 64, v, real);
            }
#pragma unroll
            for (int n = 0; n + 2 < N; n++) o[n][0] = o[n + 2][0], o[n][1] = o[n + 2][1];
        }
    }

    __device__ __forceinline__ void keep(const float (&o)[N][2]) const
    {
        if (!has_dims()) return;
        float *out = (float *)a.leaf_o + (int64_t)(t.leaf0 + item.seg - t.seg0) * N * DIM + threadIdx.x * 2;
#pragma unroll
        for (int n = 0; n < N; n++)
            if (n < t.n_q) *(float2 *)(out + n * DIM) = make_float2(o[n][0], o[n][1]);
    }
};

} // namespace ek
