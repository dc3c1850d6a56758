// A segment of 256 keys in f16 for a tile of N queries of DIM dims, by a block of threads (attn_half.cu): its ring of
// copies, scores, weights and values; the sums are used in attn_half_end.cuh. Loops are short and appear once, because
// fetching code from memory costs more than its computation.
#pragma once

#include "cuda/kernels/attn/attn.cuh"
#include "cuda/kernels/block_copies.cuh"

namespace ek
{

constexpr int PIECE = EK_CUDA_ATTN_PIECE, MAX_SLOTS = EK_CUDA_ATTN_FEW_SLOTS; // pieces in flight

// Threads of a block: one per key. With more than 256 dims all of them add values, and sums have a further warp, except
// for one query.
template <int N, int DIM> constexpr int HALF_THREADS = N > 1 && DIM > 256 ? 288 : 256;

template <int N, int DIM> struct half_shared {
    int from[N], to[N];                      // keys of the segment that a query sees
    int row[N], column[N];                   // of the queries, and their first element there
    int leaves[N];                           // leaves per query
    __align__(16) int most[N][SEGMENT / 32]; // largest exponents of a warp's keys
    float sum[N];                            // l
    u64 arrived[MAX_SLOTS];                  // one per step in flight
    u64 page[4];                             // the head's part of each of the segment's pages
    int holes;                               // keys between others that no query sees
    int before;                              // ended blocks of the tile
    uint8_t seen[SEGMENT];
    float weight[2][DIM > 256 ? DIM : 1];               // of the norms of queries and of the new key
    float second[N][DIM > 256 && N <= 2 ? SEGMENT : 1]; // scores over the dims from 256 on
    __align__(16) unsigned short fresh[2][DIM];         // in the pages' format
};

// A step's slot in the ring, and the phase in which all its pieces have arrived.
struct ring_cursor {
    int place = 0;
    u32 phase = 0;
};

// A call that is not real runs only to fetch its code early, over the ring's first piece, and writes nothing.
template <int N, int DIM> struct half_leaf {
    static constexpr int STEPS = DIM / 64, PER = PIECE / 2 / DIM; // steps of keys, as many of values; values of a piece
    static constexpr int THREADS = HALF_THREADS<N, DIM>, LAST = THREADS / 32 - 1;
    const ek_cuda_attn_args &a;
    const ek_cuda_attn_start &item;
    const ek_cuda_attn_tile &t;
    half_shared<N, DIM> &m;
    uint8_t *ring;
    float *q, *e;         // [DIM][N], [256][N], in the same memory
    int first, some;      // visible pages
    int all_from, all_to; // visible keys
    u32 mine;             // queries that see the thread's key
    int fresh;            // the new key, or -1
    int ahead;            // steps in flight
    bool alone;           // the tile has no other leaf
    bool there;           // all pieces have arrived

    // Copies the pieces of a step into its slot of `ahead`, by one thread, or with by_block by all threads.
    __device__ __forceinline__ void issue(int step, int place) const
    {
        uint8_t *to = ring + place * some * PIECE;
        arrival_expect(m.arrived + place, some * PIECE);
#pragma unroll 1
        for (int r = 0; r < some; r++, to += PIECE) {
            const int i = (step - STEPS) * some + r;
            const u64 own_page = m.page[first + (step < STEPS ? r : i / STEPS)],
                      at = own_page ? own_page : m.page[first]; // absent: nobody sees it
            copy_piece_of_block(to,
                                (const uint8_t *)at + (step < STEPS ? step * PIECE : a.kv.k_bytes + i % STEPS * PIECE),
                                PIECE, m.arrived + place);
        }
        arrival_of_copies(m.arrived + place);
    }

    // Issues the first steps, as many as fit the ring.
    __device__ __forceinline__ void issue_first() const
    {
        if (by_block())
#pragma unroll 1
            for (int step = 0; step < ahead; step++) issue(step, step);
        else if ((int)threadIdx.x < ahead) issue(threadIdx.x, threadIdx.x);
    }

    // All steps are in flight: waits for their pieces.
    __device__ __forceinline__ void arrive()
    {
#pragma unroll 1
        for (int step = 0; step < 2 * STEPS; step++) arrival_wait(m.arrived + step, 0);
        there = true;
    }

    // All threads have read the pieces of n steps, whose slots may be refilled.
    __device__ __forceinline__ void release(int step, int n, bool real, ring_cursor &at) const
    {
        const int left = (real ? 2 * STEPS : 0) - (step + ahead);
        if (left > 0) {
            wgmma_reads_fence(); // the copies stay after the threads' earlier writes there
            __syncthreads();
            if (by_block() || threadIdx.x == 0)
#pragma unroll 1
                for (int i = 0; i < min(n, left); i++)
                    issue(step + ahead + i, at.place + i < ahead ? at.place + i : at.place + i - ahead);
        }
        at.place += n;
        if (at.place >= ahead) at.place -= ahead, at.phase ^= 1;
    }

    template <int SUB>
    static __device__ __forceinline__ void read_dims(unsigned short (&key)[SUB], float (&v)[SUB * N],
                                                     const unsigned short *k, const float *x)
    {
        load_queries<SUB * N>(v, x);
#pragma unroll
        for (int d = 0; d < SUB; d++) key[d] = k[d * PAGE];
    }

    template <int SUB>
    static __device__ __forceinline__ void add_dims(float (&s)[N], const unsigned short (&key)[SUB],
                                                    const float (&v)[SUB * N])
    {
#pragma unroll
        for (int d = 0; d < SUB; d++)
#pragma unroll
            for (int n = 0; n < N; n++) s[n] = fma_(v[d * N + n], half_f32(key[d]), s[n]);
    }

    // The thread's key: its warp, and whether the thread has the dims from 256 on of another thread's key.
    __device__ __forceinline__ bool helps(int &warp) const
    {
        warp = threadIdx.x / 32;
        const bool second = DIM > 256 && (warp / 2 < first || warp / 2 >= first + some);
        if (second) warp ^= 4;
        return second;
    }

    __device__ __forceinline__ bool seen_by(int warp) const
    {
        return warp * 32 < all_to && warp * 32 + 32 > all_from;
    }

    // Reads 256 dims of the thread's key; all pieces have arrived.
    static constexpr int PAIRS = (DIM > 256 ? 256 : DIM) / 2;
    __device__ __forceinline__ void keep_key(u32 (&key)[PAIRS]) const
    {
        int warp;
        const bool second = helps(warp);
        if (!seen_by(warp)) return;
        const unsigned short *k = (const unsigned short *)(ring +
                                                           ((second ? 4 : 0) * some + warp / 2 - first) * PIECE) +
                                  warp % 2 * 32 + threadIdx.x % 32;
#pragma unroll
        for (int step = 0; step < PAIRS / 32; step++, k += some * (PIECE / 2))
#pragma unroll
            for (int i = 0; i < 32; i++) key[step * 32 + i] = k[2 * i * PAGE] | (u32)k[(2 * i + 1) * PAGE] << 16;
    }

    // A score of one query by keys in registers; the new key is read from where the heads put it.
    __device__ __forceinline__ void score_kept(float (&s)[N], u32 (&key)[PAIRS], bool real)
    {
        int warp;
        const bool second = helps(warp);
        s[0] = 0;
        if (!real || seen_by(warp)) {
            if (!real) arrival_wait(m.arrived, 0);
            if (real && fresh == warp * 32 + (int)threadIdx.x % 32) {
                const uint4 *const own = (const uint4 *)(m.fresh[0] + (second ? 256 : 0));
#pragma unroll
                for (int i = 0; i < PAIRS; i += 4) {
                    const uint4 x = own[i / 4];
                    key[i] = x.x, key[i + 1] = x.y, key[i + 2] = x.z, key[i + 3] = x.w;
                }
            }
            const float *const x = real ? q + (second ? 256 : 0) : (const float *)ring;
#pragma unroll
            for (int i = 0; i < PAIRS; i += 2) {
                const float4 v = *(const float4 *)(x + i * 2);
                s[0] = fma_(v.x, half_f32(key[i] & 0xffff), s[0]);
                s[0] = fma_(v.y, half_f32(key[i] >> 16), s[0]);
                s[0] = fma_(v.z, half_f32(key[i + 1] & 0xffff), s[0]);
                s[0] = fma_(v.w, half_f32(key[i + 1] >> 16), s[0]);
            }
        }
        if (DIM <= 256 || !real) return;
        if (second) m.second[0][DIM > 256 ? warp * 32 + threadIdx.x % 32 : 0] = s[0];
        __syncthreads();
        if (threadIdx.x < SEGMENT) s[0] = s[0] + m.second[0][DIM > 256 ? threadIdx.x : 0];
    }

    // Scores of the thread's key: per query one chain over 256 dims, or two for more dims; if few pages are visible, a
    // warp without keys computes the second. The warp that reads the new key's page puts the key into its pieces.
    __device__ __forceinline__ void scores(float (&s)[N], bool real, ring_cursor &at)
    {
        constexpr int SUB = N <= 2 ? 16 : N == 4 ? 8 : 4; // dims that are read, then added
        const int lane = threadIdx.x % 32, steps = real ? STEPS : 1;
        int warp = threadIdx.x / 32;
        const bool split = DIM > 256 && N <= 2 && real && some <= 2 && ahead >= STEPS,
                   second = split && (warp / 2 < first || warp / 2 >= first + some);
        if (second) warp ^= 4;
        const bool sees = !real || (warp * 32 < all_to && warp * 32 + 32 > all_from);
        const int row = real ? warp / 2 - first : 0, put = real ? fresh : -1;
        float before[N];
#pragma unroll
        for (int n = 0; n < N; n++) s[n] = before[n] = 0;
#pragma unroll 1
        for (int step = second ? 4 : 0; step < (split && !second ? 4 : steps); step++) {
            const int place = split ? step : at.place;
            if (DIM > 256 && step == 4)
#pragma unroll
                for (int n = 0; n < N; n++) before[n] = s[n], s[n] = 0;
            if (sees) {
                if (!there) arrival_wait(m.arrived + place, at.phase);
                unsigned short *k = (unsigned short *)(ring + (place * some + row) * PIECE);
                if (put >> 5 == warp) {
#pragma unroll
                    for (int d = 0; d < 64; d += 32)
                        k[(d + lane) * PAGE + put % PAGE] = m.fresh[0][step * 64 + d + lane];
                    __syncwarp();
                }
                k += warp % 2 * 32 + lane;
                const float *x = (real ? q : (const float *)ring) + step * 64 * N;
#pragma unroll 1
                for (int d = 0; d < 64; d += SUB, k += SUB * PAGE, x += SUB * N) {
                    unsigned short key[SUB];
                    float v[SUB * N];
                    read_dims<SUB>(key, v, k, x);
                    add_dims<SUB>(s, key, v);
                }
            }
            if (!split) release(step, 1, real, at);
        }
        if (DIM <= 256) return;
        if (split) {
            if (second && sees)
#pragma unroll
                for (int n = 0; n < N; n++) m.second[n][warp * 32 + lane] = s[n];
            __syncthreads();
            release(0, STEPS, real, at);
        }
        const bool adds = split && threadIdx.x < SEGMENT;
#pragma unroll
        for (int n = 0; n < N; n++) s[n] = adds ? s[n] + m.second[n][threadIdx.x] : before[n] + s[n];
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

    // l and m of the leaf, by the last warp while others add values: lanes l and l + 8 of a query, added 8, 4, 2, 1
    // apart; keys of invisible pages add 0.
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

    // Stores the new key and value in their page, by a warp.
    __device__ __forceinline__ void store_fresh() const
    {
        const int lane = threadIdx.x % 32;
        unsigned short *const page = (unsigned short *)m.page[fresh / PAGE], *const k = page + fresh % PAGE;
        u32 *const v = (u32 *)(page + a.kv.k_bytes / 2 + fresh % PAGE * DIM);
#pragma unroll 4
        for (int d = lane; d < DIM / 2; d += 32) {
            k[d * PAGE] = m.fresh[0][d], k[(d + DIM / 2) * PAGE] = m.fresh[0][d + DIM / 2];
            v[d] = ((const u32 *)m.fresh[1])[d];
        }
    }

    __device__ __forceinline__ bool has_dims() const
    {
        return threadIdx.x < DIM / 2; // whole warps
    }

    // Two dims per lane over the visible keys, ascending. A key that a query does not see has weight 0; a key that no
    // query sees may be anything, and becomes 0 as well. Neither changes a sum except for the sign of 0, which does not
    // survive. Each thread touches its own dims of a piece.
    __device__ __forceinline__ void values(float (&o)[N][2], bool real, ring_cursor &at) const
    {
        const float *const e = real ? this->e : (const float *)ring;
        const bool works = !real || has_dims();
        const int own = threadIdx.x % (DIM / 2); // the last warps, which are not real, stay within the piece too
        const int steps = STEPS + (real ? STEPS : 1), put = real ? fresh : -1,
                  run = real && ahead == 2 * STEPS ? STEPS : 1;          // steps whose values are contiguous
        constexpr int KEYS = N <= 2 && DIM <= 256 ? 16 : N <= 4 ? 8 : 4; // that are read, then added
#pragma unroll
        for (int n = 0; n < N; n++) o[n][0] = o[n][1] = 0;
#pragma unroll 1
        for (int step = STEPS; step < steps; step += run) {
            const int j0 = (first * STEPS + (step - STEPS) * some) * PER,
                      count = run * some * PER; // the first key; keys
            u32 *const rows = (u32 *)(ring + at.place * some * PIECE) + own;
            const int seen_from = real ? min(max(all_from - j0, 0), count) : 0,
                      seen_to = real ? min(all_to - j0, count) : KEYS, from = seen_from / KEYS * KEYS;
            if (works) {
#pragma unroll 1
                for (int i = there ? run : 0; i < run; i++) arrival_wait(m.arrived + at.place + i, at.phase);
                if (put >= j0 && put < j0 + count)
                    rows[(put - j0) * (DIM / 2)] = ((const u32 *)m.fresh[1])[threadIdx.x];
                if (real && m.holes)
#pragma unroll 1
                    for (int j = seen_from; j < seen_to; j++)
                        if (!m.seen[j0 + j]) rows[j * (DIM / 2)] = 0;
#pragma unroll 1
                for (int j = from; j < seen_from; j++) rows[j * (DIM / 2)] = 0;
#pragma unroll 1
                for (int j = max(seen_to, 0); j % KEYS; j++) rows[j * (DIM / 2)] = 0;
                const u32 *v = rows + from * (DIM / 2);
                const float *x = e + ((real ? j0 : 0) + from) * N;
#pragma unroll 1
                for (int j = from; j < seen_to; j += KEYS, v += KEYS * (DIM / 2), x += KEYS * N) {
                    u32 two[KEYS];
                    float weight[KEYS * N];
                    read_keys<KEYS>(two, weight, v, x);
                    add_keys<KEYS>(o, two, weight);
                }
            }
            release(step, run, real, at);
        }
    }

    template <int SUB>
    static __device__ __forceinline__ void read_keys(u32 (&two)[SUB], float (&weight)[SUB * N], const u32 *v,
                                                     const float *e)
    {
        load_queries<SUB * N>(weight, e);
#pragma unroll
        for (int k = 0; k < SUB; k++) two[k] = v[k * (DIM / 2)];
    }

    template <int SUB>
    static __device__ __forceinline__ void add_keys(float (&o)[N][2], const u32 (&two)[SUB],
                                                    const float (&weight)[SUB * N])
    {
#pragma unroll
        for (int k = 0; k < SUB; k++) {
            const float v[2] = {half_f32(two[k] & 0xffff), half_f32(two[k] >> 16)};
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int c = 0; c < 2; c++) o[n][c] = fma_(weight[k * N + n], v[c], o[n][c]);
        }
    }
};

} // namespace ek
