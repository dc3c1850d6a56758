// Attention in integers over tensors where all rows see all keys (contract: ops/attn/attn_int.h, i12), for large
// pictures. ek_tensors_codes writes codes in the order of mma.sync's lanes, in two limbs, so that nothing is unpacked.
// A block takes 64 queries of a head through all segments. Two warps share 16 queries; each has the scores of half of a
// segment's keys in registers, where they become codes of weights. These are operand a of the sums of values without
// reordering, because the place of a key in a sum is free. Each warp has every other 8 dims of the values. T is a stack
// of nodes in scratch memory.
//
// Model, H100, for 16 queries, a segment and 64 dims: 512 products of 6 clocks, and 128 pairs of query and key per lane
// with about 35 instructions each; a multiprocessor runs four such at once. So 7,500 clocks for four would give 65 T
// multiply-adds/s.
#include "cuda/kernels/attn/attn_tensors_int.cuh"
#include "cuda/kernels/mma.cuh"

using namespace ek;

namespace
{

constexpr int THREADS = 256, TILE = EK_CUDA_TENSORS_TILE;
constexpr int HALF = SEGMENT / 2, JS = HALF / 8; // keys of a warp, in blocks of 8

} // namespace

// A warp has a row of a head of queries, keys or values. Rows after the last are zeros.
extern "C" __global__ void __launch_bounds__(256) ek_tensors_codes(const __grid_constant__ ek_cuda_tensors_int_args a)
{
    constexpr int COUNT = 128 / 32;
    const codes c(a);
    const int lane = threadIdx.x % 32, row = blockIdx.x * 8 + threadIdx.x / 32, number = blockIdx.y;
    const int which = number < a.heads ? 0 : number < a.heads + a.kv_heads ? 1 : 2; // q, k, v
    const int head = number - (which == 0 ? 0 : which == 1 ? a.heads : a.heads + a.kv_heads);
    const float *from = (const float *)(which == 0 ? a.q : which == 1 ? a.k : a.v) + row * a.ld + head * a.dim;
    let_next_start();
    wait_for_previous();
    float x[COUNT];
    int code[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) x[i] = row < a.rows && i * 32 + lane < a.dim ? __ldcg(from + i * 32 + lane) : 0.0f;
    const float scale = encode(x, a.dim, QUERY_CODE, code); // keys and values have as many codes
    const int key = row % SEGMENT;
    const int64_t segment = (int64_t)head * (c.padded / SEGMENT) + row / SEGMENT;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        if (i >= c.steps) break;
        const int d = i * 32 + lane, t = lane % 16 / 4, half = lane / 16, e = lane % 4; // inputs 4 t + e, + 16
        if (which == 0) {
            const int64_t tile = (int64_t)head * (c.padded / 16) + row / 16;
            put_code(c.q + tile * c.q_bytes + (i * 32 + row % 8 * 4 + t) * 32 + half * 8 + row / 8 % 2 * 4 + e, 16,
                     code[i]);
        } else if (which == 1) {
            put_code(c.k + segment * c.k_bytes + SCALES + (key / 8 * c.steps + i) * STEP + (key % 8 * 4 + t) * 16 +
                         half * 4 + e,
                     8, code[i]);
        } else if (d < c.blocks * 8) { // keys 2 t, 2 t + 1, 8 + 2 t and 9 + 2 t of 16
            put_code(c.v + segment * c.v_bytes + SCALES + (d / 8 * 8 + key / 32) * STEP +
                         (d % 8 * 4 + key % 8 / 2) * 16 + key / 16 % 2 * 4 + key / 8 % 2 * 2 + key % 2,
                     8, code[i]);
        }
    }
    if (lane) return;
    if (which == 0) c.q_scale[head * c.padded + row] = scale * __fdiv_rn(1.0f, (float)(a.dim & -a.dim));
    else if (which == 1) ((float *)(c.k + segment * c.k_bytes))[key] = scale;
    else ((float *)(c.v + segment * c.v_bytes))[key] = scale;
}

namespace
{

// f over the four lanes that have the same two queries.
template <class T, class F> __device__ __forceinline__ T over_keys(T x, F f)
{
    x = f(x, __shfl_xor_sync(~0u, x, 1));
    return f(x, __shfl_xor_sync(~0u, x, 2));
}

// Data that the two warps of 16 queries, `group`, exchange.
struct told {
    float top[2][4][16], largest[2][4][16];
    u32 sum[2][4][16];
};

// STEPS: of 32 dims. Lane 4 g + t has queries g and g + 8 of the group's; of 8 keys, or dims, 2 t and 2 t + 1.
template <int STEPS> struct tile {
    const ek_cuda_tensors_int_args &a;
    told &sm;
    uint8_t *base; // shared memory: a segment's keys, later codes of weights, then results; values follow
    int head, row_tile;
    static constexpr int K_BYTES = STEPS * 16384 + SCALES;

    float s[JS][4]; // of block i / 8 of keys: query g of 2 t, of 2 t + 1, then g + 8
    u32 p[8][2][4]; // codes of weights by 32 keys, limbs
    float l[2], unit[2];
    int m[2];

    static __device__ __forceinline__ int lane()
    {
        return thread_again() % 32;
    }
    static __device__ __forceinline__ int group()
    {
        return thread_again() / 32 % 4;
    }
    static __device__ __forceinline__ int half()
    {
        return thread_again() / 128;
    }

    __device__ __forceinline__ void copy(bool keys, int seg) const
    {
        const codes c(a);
        const int bytes = (int)(keys ? c.k_bytes : c.v_bytes);
        const uint8_t *from = (keys ? c.k : c.v) +
                              (int64_t)(head / (a.heads / a.kv_heads) * (c.padded / SEGMENT) + seg) * bytes;
        uint8_t *const to = base + (keys ? 0 : K_BYTES);
#pragma unroll 4
        for (int i = thread_again() * 16; i < bytes; i += THREADS * 16) copy_async<16>(to + i, from + i);
        copy_commit();
    }

    // Queries are read again for each segment, because there are no registers for them.
    __device__ __forceinline__ void score()
    {
        const codes c(a);
        const int number = row_tile * 4 + group();
        const uint4 *from = (const uint4 *)(c.q + ((int64_t)head * (c.padded / 16) + number) * c.q_bytes) + lane() * 2;
        const float *const from_scale = c.q_scale + head * c.padded + number * 16 + lane() / 4;
        const float q_scale[2] = {from_scale[0], from_scale[8]};
        const uint4 *const keys = (const uint4 *)(base + SCALES) + half() * (JS * STEPS * 32) + lane();
        const float2 *const scale = (const float2 *)base + half() * (HALF / 2) + lane() % 4;
        u32 q[STEPS][2][4]; // limbs
#pragma unroll
        for (int i = 0; i < STEPS; i++)
#pragma unroll
            for (int limb = 0; limb < 2; limb++) {
                const uint4 x = from[i * 64 + limb];
                q[i][limb][0] = x.x, q[i][limb][1] = x.y, q[i][limb][2] = x.z, q[i][limb][3] = x.w;
            }
#pragma unroll
        for (int j = 0; j < JS; j++) {
            int hh[4] = {}, mid[4] = {}, ll[4] = {};
#pragma unroll
            for (int i = 0; i < STEPS; i++) add(hh, mid, ll, q[i][0], q[i][1], keys[(j * STEPS + i) * 32]);
            const float2 by = scale[j * 4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float x = (float)score_sum<16>(hh[i], mid[i], ll[i]) * (i % 2 ? by.y : by.x) * q_scale[i / 2];
                s[j][i] = fminf(fmaxf(x, -0x1p20f), 0x1p20f);
            }
        }
    }

    // Products of limbs, of 16 rows by 8 columns.
    static __device__ __forceinline__ void add(int (&hh)[4], int (&mid)[4], int (&ll)[4], const u32 *low,
                                               const u32 *high, const uint4 &b)
    {
        mma(ll, low, b.x, b.y), mma(mid, low, b.z, b.w);
        mma(mid, high, b.x, b.y), mma(hh, high, b.z, b.w);
    }

    // Whether keys 2 t and 2 t + 1 of block j are among the segment's.
    template <bool MASKED> static __device__ __forceinline__ bool seen(int j, int i, int keys)
    {
        return !MASKED || half() * HALF + j * 8 + lane() % 4 * 2 + i % 2 < keys;
    }

    template <bool MASKED> __device__ __forceinline__ void tell_top(int keys)
    {
        float top[2] = {-0x1p20f, -0x1p20f};
#pragma unroll
        for (int j = 0; j < JS; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (seen<MASKED>(j, i, keys)) top[i / 2] = fmaxf(top[i / 2], s[j][i]);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            top[r] = over_keys(top[r], [](float x, float y) { return fmaxf(x, y); });
            if (lane() % 4 == 0) sm.top[half()][group()][lane() / 4 + r * 8] = top[r];
        }
    }

    // Scores become weights times the values' scales.
    template <bool MASKED> __device__ __forceinline__ void tell_weights(int keys)
    {
        const float2 *const scale = (const float2 *)(base + K_BYTES) + half() * (HALF / 2) + lane() % 4;
        float largest[2] = {0, 0};
        u32 sum[2] = {0, 0}, max_n[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int n = lane() / 4 + r * 8;
            max_n[r] = exponent_bits(fmaxf(sm.top[0][group()][n], sm.top[1][group()][n])); // n ascends with the score
            m[r] = (int)(max_n[r] - WHOLE_BITS);
        }
#pragma unroll
        for (int j = 0; j < JS; j++) {
            const float2 by = scale[j * 4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const bool is = seen<MASKED>(j, i, keys);
                const float e = is ? weight_of(s[j][i], max_n[i / 2]) : 0.0f;
                sum[i / 2] += sum_bits(e) - WHOLE_BITS;
                s[j][i] = is ? e * (i % 2 ? by.y : by.x) : 0.0f;
                largest[i / 2] = fmaxf(largest[i / 2], s[j][i]);
            }
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            sum[r] = over_keys(sum[r], [](u32 x, u32 y) { return x + y; });
            largest[r] = over_keys(largest[r], [](float x, float y) { return fmaxf(x, y); });
            if (lane() % 4) continue;
            sm.sum[half()][group()][lane() / 4 + r * 8] = sum[r];
            sm.largest[half()][group()][lane() / 4 + r * 8] = largest[r];
        }
    }

    // Codes of the weights of the warp's keys to shared memory, l and the codes' unit.
    __device__ __forceinline__ void put_codes()
    {
        uint4 *const to = (uint4 *)base + (group() * 8 + half() * 4) * 64 + lane();
        float factor[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int n = lane() / 4 + r * 8;
            const float largest = fmaxf(sm.largest[0][group()][n], sm.largest[1][group()][n]);
            l[r] = (float)(int)(sm.sum[0][group()][n] + sm.sum[1][group()][n]) * (1.0f / (1 << SUM_BITS));
            unit[r] = code_unit(largest), factor[r] = code_factor(largest);
        }
#pragma unroll
        for (int at = 0; at < 4; at++) {
            u32 low[4], high[4];
#pragma unroll
            for (int i = 0; i < 4; i++) { // four codes of a query
                const int r = i % 2, j = at * 4 + i / 2 * 2;
                u32 both[2];
#pragma unroll
                for (int b = 0; b < 2; b++)
                    both[b] = __byte_perm(code_bits(s[j + b][r * 2], factor[r]),
                                          code_bits(s[j + b][r * 2 + 1], factor[r]), 0x5410) &
                              0x3fff3fffu;
                low[i] = __byte_perm(both[0], both[1], 0x6420) & 0x7f7f7f7fu;
                high[i] = __byte_perm(both[0] >> 7, both[1] >> 7, 0x6420);
            }
            to[at * 64] = make_uint4(low[0], low[1], low[2], low[3]);
            to[at * 64 + 32] = make_uint4(high[0], high[1], high[2], high[3]);
        }
    }

    __device__ __forceinline__ void take_codes()
    {
        const uint4 *const from = (const uint4 *)base + group() * 8 * 64 + lane();
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const uint4 x = from[i * 32];
            u32 *const to = p[i / 2][i % 2];
            to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
        }
    }

    // The thread's part of a node: 8 dims, or after all of these l and m, for each half of the warps.
    __device__ __forceinline__ float4 *node(int level, int block) const
    {
        const int blocks = (a.dim + 7) / 8;
        return (float4 *)a.stack + ((int64_t)(blockIdx.x * a.levels + level) * (blocks + 2) + block) * 128 +
               thread_again() % 128;
    }

    // The nodes that leaf number `count` meets; the last leaf meets all nodes: f(level, l and m of the left one,
    // factors).
    template <class F> __device__ __forceinline__ void meet(int count, bool last, int (&own)[2], F f) const
    {
#pragma unroll 1
        for (int level = 0; last ? count >> level : count >> level & 1; level++) {
            if (!(count >> level & 1)) continue;
            const float4 left = __ldcg(node(level, (a.dim + 7) / 8 + half()));
            const int ms[2] = {(int)__float_as_uint(left.z), (int)__float_as_uint(left.w)};
            float fa[2], fb[2];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const int both = max(ms[r], own[r]);
                fa[r] = factor(ms[r] - both), fb[r] = factor(own[r] - both), own[r] = both;
            }
            f(level, left, fa, fb);
        }
    }

    // Values of the segment, joined with the nodes of T. The result goes to the node, or for the last leaf to shared
    // memory.
    __device__ __forceinline__ void add_values(int seg, bool last)
    {
        const int blocks = (a.dim + 7) / 8;
        const int level = __popc((unsigned)(seg & ~(seg + 1))); // the level of its node
        const uint4 *const at = (const uint4 *)(base + K_BYTES + SCALES) + lane();
        float l_sum[2] = {l[0], l[1]};
        int m_sum[2] = {m[0], m[1]};
        meet(seg, last, m_sum, [&](int, const float4 &left, const float *fa, const float *fb) {
            l_sum[0] = left.x * fa[0] + l_sum[0] * fb[0], l_sum[1] = left.y * fa[1] + l_sum[1] * fb[1];
        });
#pragma unroll 1
        for (int block = half(); block < blocks; block += 2) {
            int hh[4] = {}, mid[4] = {}, ll[4] = {};
#pragma unroll
            for (int i = 0; i < 8; i++) add(hh, mid, ll, p[i][0], p[i][1], at[(block * 8 + i) * 32]);
            float o[4];
#pragma unroll
            for (int i = 0; i < 4; i++) o[i] = value_sum_of<16>(hh[i], mid[i], ll[i]) * unit[i / 2];
            int from[2] = {m[0], m[1]};
            meet(seg, last, from, [&](int of, const float4 &, const float *fa, const float *fb) {
                const float4 x = __ldcg(node(of, block));
                o[0] = x.x * fa[0] + o[0] * fb[0], o[1] = x.y * fa[0] + o[1] * fb[0];
                o[2] = x.z * fa[1] + o[2] * fb[1], o[3] = x.w * fa[1] + o[3] * fb[1];
            });
            if (!last) {
                *node(level, block) = make_float4(o[0], o[1], o[2], o[3]);
                continue;
            }
            const int d = block * 8 + lane() % 4 * 2;
            float *const out = (float *)base + (group() * 16 + lane() / 4) * a.dim + d;
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (d + i % 2 < a.dim) out[i / 2 * 8 * a.dim + i % 2] = __fdiv_rn(o[i] + 0.0f, l_sum[i / 2]);
        }
        if (!last)
            *node(level, blocks + half()) = make_float4(l_sum[0], l_sum[1], bits((u32)m_sum[0]), bits((u32)m_sum[1]));
    }

    // Results, rotated back and clamped to a.clip.
    __device__ __forceinline__ void write() const
    {
#pragma unroll 1
        for (int r = thread_again() / 32; r < TILE && row_tile * TILE + r < a.rows; r += THREADS / 32) {
            float x[STEPS];
#pragma unroll
            for (int i = 0; i < STEPS; i++)
                x[i] = i * 32 + lane() < a.dim ? ((const float *)base)[r * a.dim + i * 32 + lane()] : 0.0f;
            rotate_back(x, a.dim);
#pragma unroll
            for (int i = 0; i < STEPS; i++) {
                const float low = a.clip[0] > x[i] ? a.clip[0] : x[i];
                if (i * 32 + lane() < a.dim)
                    ((float *)a.o)[(row_tile * TILE + r) * a.ldo + head * a.dim + i * 32 + lane()] = a.clip[1] < low
                                                                                                         ? a.clip[1]
                                                                                                         : low;
            }
        }
    }

    __device__ __forceinline__ void run()
    {
        const int segments = (a.rows + SEGMENT - 1) / SEGMENT;
        __syncthreads(); // the tile before was written
        copy(true, 0), copy(false, 0);
        copy_wait<1>();
#pragma unroll 1
        for (int seg = 0; seg < segments; seg++) {
            const int keys = a.rows - seg * SEGMENT;
            __syncthreads();
            if (seg > 0) copy(false, seg);
            score();
            if (keys < SEGMENT) tell_top<true>(keys);
            else tell_top<false>(keys);
            copy_wait<0>();
            __syncthreads();
            if (keys < SEGMENT) tell_weights<true>(keys);
            else tell_weights<false>(keys);
            __syncthreads();
            put_codes();
            __syncthreads();
            take_codes();
            __syncthreads();
            if (seg + 1 < segments) copy(true, seg + 1);
            add_values(seg, seg + 1 == segments);
            copy_wait<0>();
        }
        __syncthreads();
        write();
    }
};

template <int STEPS> __device__ __forceinline__ void attend(const ek_cuda_tensors_int_args &a)
{
    EK_DYNAMIC_SHARED(uint8_t, base);
    __shared__ told sm;
    const int row_tiles = (a.rows + TILE - 1) / TILE, tiles = row_tiles * a.heads;
    let_next_start();
    wait_for_previous();
    for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
        tile<STEPS> t = {a, sm, base, i / row_tiles, i % row_tiles};
        t.run();
    }
}

} // namespace

// Any grid; a.stack: a.levels nodes for each block.
#define TENSORS_INT(COLS)                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                           \
        ek_attn_tensors_int_##COLS(const __grid_constant__ ek_cuda_tensors_int_args a) \
    {                                                                                  \
        attend<COLS / 32>(a);                                                          \
    }
TENSORS_INT(64)
TENSORS_INT(96)
TENSORS_INT(128)
