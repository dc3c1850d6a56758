// Attention over tensors where all rows see all keys (contract: ops/attn/attn_tensors.h, Form A without scale), for
// towers of images. A block takes 64 queries of a head through all segments, a warp 16 of them, so that scores, weights
// and sums of values need no barriers besides those of their copies. A thread has scores of 16 queries by 8 keys, which
// become weights in its registers; weights are in shared memory, values are 8 queries by a sixteenth of the dims. T is
// a stack of nodes in scratch memory.
#include "cuda/kernels/attn/attn_tensors_weights.cuh"

using namespace ek;

namespace
{

constexpr int THREADS = 128, SLOTS = 3;
constexpr int V_KEYS = 32; // of a slot of values: [key][dim]

// The dims of a lane in sums of values: ACROSS. With 72 dims, the last 8 are distributed.
template <int COLS> struct shape {
    static constexpr int ACROSS = COLS / 16, REST = COLS % 16 ? 4 : 0,
                         SLOT = K_DIMS * LDK > V_KEYS *COLS ? K_DIMS *LDK : V_KEYS *COLS;
    struct shared {
        float slot[SLOTS][SLOT], q[COLS][TILE], e[SEGMENT][TILE], l[TILE];
        int m[TILE];
    };
    static_assert(sizeof(shared) == EK_CUDA_TENSORS_SHARED(COLS), "tower_args.h says what a launch must ask for");
};

// A node of T for 8 queries of a half warp: ACROSS dims of each, and REST: one more dim for 4 of the queries.
template <int ACROSS, int REST> struct __align__(16) node
{
    float o[8][ACROSS], rest[REST ? REST : 1], l[8];
    int m[8];
    static constexpr int OWN = 8 * ACROSS / 4 + REST / 4, FOURS = OWN + 4; // as it lies in scratch memory

    static __device__ __forceinline__ int half()
    {
        return threadIdx.x % 32 / 16;
    }

    // the four of the 8 queries for which the lane has a dim of the rest
    static __device__ __forceinline__ int rest_half()
    {
        return threadIdx.x % 16 / 8;
    }

    __device__ __forceinline__ void meet(const float4 *left)
    {
        float fa[8], fb[8];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float4 left_l = left[(OWN + h) * THREADS], left_m = left[(OWN + 2 + h) * THREADS];
            const float ls[4] = {left_l.x, left_l.y, left_l.z, left_l.w};
            const float ms[4] = {left_m.x, left_m.y, left_m.z, left_m.w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int q = h * 4 + i, ma = (int)__float_as_uint(ms[i]), both = max(ma, m[q]);
                fa[q] = factor(ma - both), fb[q] = factor(m[q] - both);
                l[q] = ls[i] * fa[q] + l[q] * fb[q];
                m[q] = both;
            }
        }
#pragma unroll
        for (int i = 0; i < 8 * ACROSS / 4; i++) { // elements of o, four at a time
            const float4 a = left[i * THREADS];
            const float as[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int q = (i * 4 + j) / ACROSS, d = (i * 4 + j) % ACROSS;
                o[q][d] = as[j] * fa[q] + o[q][d] * fb[q];
            }
        }
        if (!REST) return;
        const float4 a = left[(OWN - 1) * THREADS];
        const float as[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
        for (int i = 0; i < REST; i++) {
            const bool upper = rest_half();
            rest[i] = as[i] * (upper ? fa[i + 4] : fa[i]) + rest[i] * (upper ? fb[i + 4] : fb[i]);
        }
    }

    __device__ __forceinline__ void put(float4 * to) const
    {
#pragma unroll
        for (int i = 0; i < 8 * ACROSS; i += 4)
            to[i / 4 * THREADS] = make_float4(o[i / ACROSS][i % ACROSS], o[(i + 1) / ACROSS][(i + 1) % ACROSS],
                                              o[(i + 2) / ACROSS][(i + 2) % ACROSS],
                                              o[(i + 3) / ACROSS][(i + 3) % ACROSS]);
        if constexpr (REST > 0) to[(OWN - 1) * THREADS] = make_float4(rest[0], rest[1], rest[2], rest[3]);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            to[(OWN + h) * THREADS] = make_float4(l[h * 4], l[h * 4 + 1], l[h * 4 + 2], l[h * 4 + 3]);
            to[(OWN + 2 + h) * THREADS] = make_float4(bits((u32)m[h * 4]), bits((u32)m[h * 4 + 1]),
                                                      bits((u32)m[h * 4 + 2]), bits((u32)m[h * 4 + 3]));
        }
    }
};

template <int COLS> struct tile {
    typedef shape<COLS> S;
    typedef node<S::ACROSS, S::REST> node_of;
    typedef typename S::shared shared;

    const ek_cuda_tensors_args &a;
    shared &sm;
    int number, head, q0;

    // Slots follow each other: first dims of a segment's keys, then its values.
    int k_slots;
    struct place {
        int seg, slot;
    };

    __device__ __forceinline__ int keys_of(int seg) const
    {
        return min(SEGMENT, a.keys - seg * SEGMENT);
    }

    __device__ __forceinline__ place behind(place p) const
    {
        p.slot++;
        if (p.slot == k_slots + (keys_of(p.seg) + V_KEYS - 1) / V_KEYS) p.seg++, p.slot = 0;
        return p;
    }

    // After the last key, the last one is copied again and not used. Dims after the last are not copied.
    __device__ __forceinline__ void copy(place p, float *to) const
    {
        const int tid = threadIdx.x, kv = head / (a.heads / a.kv_heads) * a.dim;
        const bool whole = (p.seg + 1) * SEGMENT <= a.keys;
        if (p.slot < k_slots) {
            const int d = tid % K_DIMS, key = tid / K_DIMS;
            if (p.slot * K_DIMS + d >= a.dim) return;
            const float *k = (const float *)a.k + kv + p.slot * K_DIMS + d;
            to += d * LDK + key;
            if (whole) {
                k += (p.seg * SEGMENT + key) * a.ldk;
#pragma unroll
                for (int i = 0; i < SEGMENT; i += THREADS / K_DIMS, k += THREADS / K_DIMS * a.ldk)
                    copy_async<4>(to + i, k);
            } else {
#pragma unroll 1
                for (int i = 0; i < SEGMENT; i += THREADS / K_DIMS)
                    copy_async<4>(to + i, k + min(p.seg * SEGMENT + i + key, a.keys - 1) * a.ldk);
            }
            return;
        }
        const int first = p.seg * SEGMENT + (p.slot - k_slots) * V_KEYS;
        const float *v = (const float *)a.v + kv;
        if (a.dim == COLS && whole && a.ldv % 4 == 0 && a.v % 16 == 0) {
            constexpr int FOURS = COLS / 4;
            if constexpr (THREADS % FOURS == 0) {
                v += (first + tid / FOURS) * a.ldv + tid % FOURS * 4, to += tid * 4;
#pragma unroll(COLS > 72 ? 1 : 8)
                for (int i = 0; i < V_KEYS; i += THREADS / FOURS, v += THREADS / FOURS * a.ldv)
                    copy_async<16>(to + i * COLS, v);
            } else {
#pragma unroll
                for (int i = 0; i < V_KEYS * FOURS; i += THREADS) {
                    const int at = i + tid;
                    if (V_KEYS * FOURS % THREADS == 0 || at < V_KEYS * FOURS)
                        copy_async<16>(to + at * 4, v + (first + at / FOURS) * a.ldv + at % FOURS * 4);
                }
            }
            return;
        }
#pragma unroll 1
        for (int i = tid; i < V_KEYS * a.dim; i += THREADS)
            copy_async<4>(to + i / a.dim * COLS + i % a.dim,
                          v + min(first + i / a.dim, a.keys - 1) * a.ldv + i % a.dim);
    }

    __device__ __forceinline__ void copy_queries() const
    {
        const int d0 = threadIdx.x % K_DIMS, r0 = threadIdx.x / K_DIMS;
        for (int d = d0; d < a.dim; d += K_DIMS)
#pragma unroll
            for (int r = r0; r < TILE; r += THREADS / K_DIMS)
                copy_async<4>(&sm.q[d][r], (const float *)a.q + min(q0 + r, a.rows - 1) * a.ldq + head * a.dim + d);
    }

    // A key's weights for the half warp's queries, and the lane's dims of its value.
    struct __align__(16) value
    {
        float e[8], v[S::ACROSS], rest_e[4], rest_v;

        __device__ __forceinline__ void read(const float *weights, const float *from, int piece, int key)
        {
            const int lane = threadIdx.x % 32;
            *(float4 *)e = *(const float4 *)(weights + piece_of(piece, key));
            *(float4 *)(e + 4) = *(const float4 *)(weights + piece_of(piece + 1, key));
            if (S::ACROSS == 2) *(float2 *)v = *(const float2 *)(from + lane % 16 * 2);
#pragma unroll
            for (int i = 0; i + 4 <= S::ACROSS; i += 4)
                *(float4 *)(v + i) = *(const float4 *)(from + lane % 16 * 4 + i * 16);
            if (!S::REST) return;
            *(float4 *)rest_e = *(const float4 *)(weights + piece_of(piece + node_of::rest_half(), key));
            rest_v = from[64 + lane % 8];
        }
    };

    static __device__ __forceinline__ void add_value(node_of &n, const value &x)
    {
#pragma unroll
        for (int q = 0; q < 8; q++)
#pragma unroll
            for (int turn = 0; turn < S::ACROSS; turn++) {
                const int d = q & 1 ? S::ACROSS - 1 - turn : turn;
                n.o[q][d] = fma_(x.e[q], x.v[d], n.o[q][d]);
            }
#pragma unroll
        for (int i = 0; i < S::REST; i++) n.rest[i] = fma_(x.rest_e[i], x.rest_v, n.rest[i]);
    }

    __device__ __forceinline__ void write_one(int q, int d, float o, float l) const
    {
        const float y = __fdiv_rn(o + 0.0f, l), m = a.clip[0] > y ? a.clip[0] : y;
        if (q < a.rows && d < a.dim) ((float *)a.o)[q * a.ldo + head * a.dim + d] = a.clip[1] < m ? a.clip[1] : m;
    }

    // The result follows T and is clamped to a.clip.
    __device__ __forceinline__ void write(const node_of &n) const
    {
        const int lane = threadIdx.x % 32, first = q0 + threadIdx.x / 32 * 16 + n.half() * 8;
#pragma unroll
        for (int q = 0; q < 8; q++)
#pragma unroll
            for (int d = 0; d < S::ACROSS; d++)
                write_one(first + q, S::ACROSS == 2 ? lane % 16 * 2 + d : d / 4 * 64 + lane % 16 * 4 + d % 4, n.o[q][d],
                          n.l[q]);
#pragma unroll
        for (int i = 0; i < S::REST; i++)
            write_one(first + n.rest_half() * 4 + i, 64 + lane % 8, n.rest[i], n.rest_half() ? n.l[i + 4] : n.l[i]);
    }

    __device__ __forceinline__ void run(float4 *stack)
    {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, segments = (a.keys + SEGMENT - 1) / SEGMENT;
        const int piece = warp * 4 + node_of::half() * 2; // of values
        place next = {0, 0};
        int slot = 0, filled = SLOTS - 1;
        // Waits for the current slot, and requests the slot that replaces the last one.
        auto take = [&]() -> const float * {
            copy_wait<SLOTS - 2>();
            __syncthreads();
            if (next.seg < segments) copy(next, sm.slot[filled]), next = behind(next);
            copy_commit();
            if (++filled == SLOTS) filled = 0;
            const float *at = sm.slot[slot];
            if (++slot == SLOTS) slot = 0;
            return at;
        };
        __syncthreads(); // the tile before was read
        copy_queries();
        for (int i = 0; i < SLOTS - 1; i++) {
            if (next.seg < segments) copy(next, sm.slot[i]), next = behind(next);
            copy_commit();
        }
#pragma unroll 1
        for (int seg = 0; seg < segments; seg++) {
            const int keys = keys_of(seg);
            {
                scores s;
                s.clear();
                const float *q = &sm.q[0][warp * 16];
#pragma unroll 1
                for (int d0 = 0; d0 < a.dim; d0 += K_DIMS, q += K_DIMS * TILE) {
                    const float *k = take() + lane * 4;
                    if (d0 + K_DIMS <= a.dim) {
                        s.add_slot(q, k);
                    } else {
#pragma unroll 1
                        for (int d = 0; d0 + d < a.dim; d++) {
                            scores::dim one;
                            one.read(q + d * TILE, k + d * LDK), s.add(one);
                        }
                    }
                }
                __syncwarp(); // the warp has read the data of the segment before
                s.put(sm.e, warp * 4);
                s.top_of(keys, &sm.m[warp * 16]);
                __syncwarp();
            }
            weigh(sm.e, warp * 4, keys, &sm.m[warp * 16]);
            __syncwarp();
            sum_weights(sm.e, warp * 4, &sm.l[warp * 16]);
            __syncwarp();
            node_of n;
#pragma unroll
            for (int q = 0; q < 8; q++) {
                n.m[q] = sm.m[piece * 4 + q] - 0x4b400000, n.l[q] = sm.l[piece * 4 + q];
#pragma unroll
                for (int d = 0; d < S::ACROSS; d++) n.o[q][d] = 0;
            }
#pragma unroll
            for (int i = 0; i < S::REST; i++) n.rest[i] = 0;
#pragma unroll 1
            for (int j0 = 0; j0 < keys; j0 += V_KEYS) {
                const float *v = take();
                if (j0 + V_KEYS <= keys) {
                    value x[2];
                    x[0].read(sm.e[j0], v, piece, 0);
#pragma unroll 1
                    for (int j = 0; j < V_KEYS; j += 8) {
#pragma unroll
                        for (int i = 0; i < 8; i++) {
                            const int next = j + i + 1;
                            if (i < 7 || next < V_KEYS)
                                x[(i + 1) % 2].read(sm.e[j0 + next], v + next * COLS, piece, next);
                            add_value(n, x[i % 2]);
                        }
                    }
                } else {
#pragma unroll 1
                    for (int j = 0; j0 + j < keys; j++) {
                        value x;
                        x.read(sm.e[j0 + j], v + j * COLS, piece, j), add_value(n, x);
                    }
                }
            }
            const bool last = seg + 1 == segments;
            int depth = __popc((unsigned)seg);
            for (int left = seg; last ? depth > 0 : left & 1; left >>= 1) n.meet(stack + --depth * n.FOURS * THREADS);
            if (last) write(n);
            else n.put(stack + depth * n.FOURS * THREADS);
        }
    }
};

// Any grid; a.stack: a.levels nodes for each block.
template <int COLS> __device__ __forceinline__ void attend(const ek_cuda_tensors_args &a)
{
    EK_DYNAMIC_SHARED(uint8_t, base);
    const int row_tiles = (a.rows + TILE - 1) / TILE, tiles = row_tiles * a.heads;
    float4 *const stack = (float4 *)a.stack + (int64_t)blockIdx.x * a.levels * tile<COLS>::node_of::FOURS * THREADS +
                          threadIdx.x;
    static_assert(tile<COLS>::node_of::FOURS * THREADS * 16 == EK_CUDA_TENSORS_NODE(COLS), "tower_args.h");
    let_next_start();
    wait_for_previous();
    for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
        tile<COLS> t = {a,
                        *(typename shape<COLS>::shared *)base,
                        i,
                        i / row_tiles,
                        i % row_tiles * TILE,
                        (a.dim + K_DIMS - 1) / K_DIMS};
        t.run(stack);
    }
}

} // namespace

#define TENSORS(COLS, BLOCKS)                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)              \
        ek_attn_tensors_##COLS(const __grid_constant__ ek_cuda_tensors_args a) \
    {                                                                          \
        attend<COLS>(a);                                                       \
    }
TENSORS(32, 2)
TENSORS(64, 2)
TENSORS(72, 2)
TENSORS(128, 1)
