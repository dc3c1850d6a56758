// Attention in integers of prompts (contract: ops/attn/attn_int.h): 64 queries of one KV head, row by row and head by
// head, pass through their segments together, in a block of two warpgroups. Each has two pages of the keys, and every
// other block of 64 dims of the values. T is a stack of nodes in scratch memory, where a thread reads and writes only
// its own elements. If tiles are few, they are divided into parts of 2^n segments, one per block: a.items then has the
// stacks, and nodes of the parts go to a.leaf_o, for ek_attn_int_join.
//
// Model, per segment, of 256 (512) dims, clocks of a multiprocessor, H100: products of int8 8,200 (16,400);
// instructions of a quarter of it: unpacking 2,200 (4,500), weights 4,500, sums to floats and T 3,200 (6,400); 256
// (512) KB from the second-level cache at 55 bytes a clock 4,800 (9,500). Weights wait for all scores, so 16,000
// (25,000) may be reached. The measured figure, 74,000 for 512 dims, and its causes: docs/cuda/attention.md.
#include "cuda/kernels/attn/attn_int_tile.cuh"

using namespace ek;

// f over the lanes that have the same queries, with 16 values per lane. Three times, a lane gives away half of them and
// keeps the other half. Then it has the values of queries 8 j + 2 t and the next, where j = 4, 2, 1 come from bits 4,
// 3, 2 of its number.
template <int HALF, class T, class F> __device__ __forceinline__ void give_half(T (&x)[16], F f)
{
    const bool upper = threadIdx.x & HALF * 2;
#pragma unroll
    for (int i = 0; i < HALF; i++) {
        const T keep = upper ? x[i + HALF] : x[i], send = upper ? x[i] : x[i + HALF];
        x[i] = f(keep, __shfl_xor_sync(~0u, send, HALF * 2));
    }
}

template <class T, class F> __device__ __forceinline__ void over_keys(T (&x)[16], F f)
{
    give_half<8>(x, f), give_half<4>(x, f), give_half<2>(x, f);
}

// The first of the two queries.
__device__ __forceinline__ int query_of(int lane)
{
    return (lane & 16 ? 32 : 0) + (lane & 8 ? 16 : 0) + (lane & 4 ? 8 : 0) + lane % 4 * 2;
}

// A row's head, of q or o, over a warp.
template <int COUNT> __device__ __forceinline__ void load_head(float (&x)[COUNT], const float *at, int dim)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < COUNT; i++) x[i] = i * 32 + lane < dim ? __ldcg(at + i * 32 + lane) : 0.0f;
}

// Rotates and codes the tile's queries. A warp takes every eighth query, and requests the next one before it rotates
// one. DIM: the head's dims; 0: any.
template <int DIM> __device__ __forceinline__ void code_queries(int_shared &sm, const ek_cuda_attn_args &a)
{
    constexpr int COUNT = DIM ? DIM / 32 : HEAD;
    const ek_cuda_attn_tile &t = sm.tile;
    const int tid = thread_again(), lane = tid % 32, warp = tid / 32, dim = DIM ? DIM : a.kv.head_dim;
    const int padded = (dim + 127) / 128 * 128;
    float next[COUNT];
    auto load = [&](int n) {
        if (n < t.n_q)
            load_head(next, (const float *)a.q + row_of(a, t, n) * a.ldq + (int64_t)head_of(a, t, n) * dim, dim);
    };
    load(warp);
#pragma unroll 1
    for (int n = warp; n < TILE; n += WARPS) {
        float x[COUNT], scale = 0;
        int code[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; i++) x[i] = next[i], code[i] = 0;
        load(n + WARPS);
        if (n < t.n_q) scale = encode(x, dim, QUERY_CODE, code);
        if (lane == 0) sm.q_scale[n] = scale * __fdiv_rn(1.0f, (float)(dim & -dim));
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            if (i * 32 >= padded) break;
            const int at = row_place(n, i % 4 * 32 + lane);
            sm.q[0][i / 4][at] = (uint8_t)(code[i] & 127), sm.q[1][i / 4][at] = (uint8_t)(code[i] >> 7);
        }
    }
}

// weight_of; a choice by a mask has no branch.
__device__ __forceinline__ float weight_at(float s, u32 max_n)
{
    const u32 n = exponent_bits(s);
    const int apart = (int)(n - max_n);
    return bits((__float_as_uint(weight_of(s, n)) + ((u32)apart << 23)) & ~(u32)((apart + 125) >> 31));
}

// Scores of keys that a query does not see become UNSEEN, which is below all others. Such a key has the weight 0.
constexpr float UNSEEN = -0x1p21f;
__device__ __forceinline__ void hide(const int_shared &sm, float (&s)[OWN][32])
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, t = lane % 4;
    const int key0 = warp / 4 * OWN * PAGE + warp % 4 * 16 + lane / 4 * 2; // of the segment
#pragma unroll
    for (int n = 0; n < 16; n++) {
        const int q = n / 2 * 8 + t * 2 + n % 2, from = key0 - sm.from[q];
        const u32 seen = (u32)sm.seen[q];
#pragma unroll
        for (int p = 0; p < OWN; p++)
#pragma unroll
            for (int r = 0; r < 2; r++)
                if ((u32)(from + p * PAGE + r) >= seen) s[p][n / 2 * 4 + r * 2 + n % 2] = UNSEEN;
    }
}

// Codes of the weights; the thread of a query gets its m and l.
__device__ __forceinline__ void weigh(int_shared &sm, const ek_cuda_kv &kv, float (&s)[OWN][32], int &own_m,
                                      float &own_l)
{
    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32, t = lane % 4, page0 = warp / 4 * OWN;
    const int key0 = warp % 4 * 16 + lane / 4 * 2; // of the page
    {
        u32 max_n[16];
#pragma unroll
        for (int n = 0; n < 16; n++) {
            max_n[n] = 0;
#pragma unroll
            for (int p = 0; p < OWN; p++)
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    max_n[n] = max(max_n[n], exponent_bits(s[p][n / 2 * 4 + r * 2 + n % 2]));
                }
        }
        over_keys(max_n, [](u32 x, u32 y) { return max(x, y); });
        *(uint2 *)&sm.part[0][warp][query_of(lane)] = make_uint2(max_n[0], max_n[1]);
    }
    __syncthreads();
    if (tid < TILE) {
        u32 top = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) top = max(top, sm.part[0][w][tid]);
        sm.max_n[tid] = top, own_m = (int)(top - WHOLE_BITS);
    }
    float2 scale[OWN];
#pragma unroll
    for (int p = 0; p < OWN; p++) {
        scale[p] = make_float2(0, 0);
        if (sm.page[page0 + p])
            scale[p] = *(const float2 *)(sm.page[page0 + p] + kv.k_bytes + rotated_codes(kv.v_bits, kv.head_dim) +
                                         key0 * 4);
        const int first = (page0 + p) * PAGE + key0; // keys after the last visible one may have any content
        if (first >= sm.seen_end) scale[p].x = 0;
        if (first + 1 >= sm.seen_end) scale[p].y = 0;
    }
    __syncthreads();
    {
        u32 sum[16];
        float largest[16];
#pragma unroll
        for (int n = 0; n < 16; n++) {
            const int q = n / 2 * 8 + t * 2 + n % 2;
            const u32 max_n = sm.max_n[q];
            sum[n] = 0, largest[n] = 0;
#pragma unroll
            for (int p = 0; p < OWN; p++)
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    float &x = s[p][n / 2 * 4 + r * 2 + n % 2];
                    const float e = weight_at(x, max_n);
                    sum[n] += sum_bits(e) - WHOLE_BITS;
                    x = e * (r ? scale[p].y : scale[p].x);
                    largest[n] = fmaxf(largest[n], x);
                }
        }
        over_keys(sum, [](u32 x, u32 y) { return x + y; });
        over_keys(largest, [](float x, float y) { return fmaxf(x, y); });
        *(uint2 *)&sm.part[0][warp][query_of(lane)] = make_uint2(sum[0], sum[1]);
        *(float2 *)&sm.part[1][warp][query_of(lane)] = make_float2(largest[0], largest[1]);
    }
    __syncthreads();
    if (tid < TILE) {
        u32 sum = 0;
        float largest = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) sum += sm.part[0][w][tid], largest = fmaxf(largest, bits(sm.part[1][w][tid]));
        own_l = (float)(int)sum * (1.0f / (1 << SUM_BITS));
        sm.unit[tid] = code_unit(largest), sm.factor[tid] = code_factor(largest);
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < 16; n++) {
        const int q = n / 2 * 8 + t * 2 + n % 2;
        const float factor = sm.factor[q];
#pragma unroll
        for (int p = 0; p < OWN; p++) {
            const u32 both = __byte_perm(code_bits(s[p][n / 2 * 4 + n % 2], factor),
                                         code_bits(s[p][n / 2 * 4 + 2 + n % 2], factor), 0x5410) &
                             0x3fff3fffu;
            const int at = row_place(q, p * PAGE + key0);
            *(unsigned short *)&sm.p[0][warp / 4][at] = (unsigned short)__byte_perm(both & 0x007f007fu, 0, 0x4420);
            *(unsigned short *)&sm.p[1][warp / 4][at] = (unsigned short)__byte_perm(both >> 7, 0, 0x4420);
        }
    }
}

// A tile's stack of T: nodes of o by level, block of 64 dims, four elements of a thread, and thread. l and m of a query
// follow them.
struct int_stack {
    float4 *o;
    float *l;
    int *m;
    int blocks; // of 64 dims

    __device__ __forceinline__ int_stack(const ek_cuda_attn_args &a, int dim)
    {
        blocks = (dim + 63) / 64;
        const int64_t own = (int64_t)a.levels * TILE * (blocks * 64 + 2);
        float *const at = (float *)(a.items ? a.items : a.leaf_o) + own * blockIdx.x;
        o = (float4 *)at, l = at + (int64_t)a.levels * TILE * blocks * 64, m = (int *)(l + a.levels * TILE);
    }

    __device__ __forceinline__ float4 *at(int level, int block) const
    {
        return o + ((int64_t)level * blocks + block) * (TILE * 16) + threadIdx.x % 128;
    }
};

// Whether the segment has the last leaf of a query in the tile: its own last one, or that of the part.
__device__ __forceinline__ bool ends_in(const int_shared &sm, const ek_cuda_attn_args &a, int q, int seg)
{
    if (sm.end[q] <= seg * SEGMENT) return false;
    return sm.end[q] <= (seg + 1) * SEGMENT || (a.items && seg == sm.tile.seg0 + sm.tile.n_seg - 1);
}

// Finds the nodes that the leaf of the thread's query meets. ends: it is the last leaf, so it meets all of its nodes.
__device__ __forceinline__ void meet_query(int_shared &sm, const ek_cuda_attn_args &a, const int_stack &stack,
                                           int count, bool ends, float l, int m)
{
    const int q = threadIdx.x;
    auto meet = [&](int level) {
        const int left = stack.m[level * TILE + q], both = max(left, m);
        const float fa = factor(left - both), fb = factor(m - both);
        sm.factors[level][q] = __float_as_uint(fa) >> 16 | (__float_as_uint(fb) & 0xffff0000u); // powers of two
        l = stack.l[level * TILE + q] * fa + l * fb, m = both;
    };
    int level = 0;
    for (; count >> level & 1; level++) meet(level);
    stack.l[level * TILE + q] = l, stack.m[level * TILE + q] = m;
    if (!ends) return;
    for (level++; count >> level; level++)
        if (count >> level & 1) meet(level);
    sm.l[q] = l;
    if (!a.items) return;
    const int64_t node = (int64_t)sm.tile.leaf0 * TILE + q;
    ((float *)a.leaf_l)[node] = l, ((int *)a.leaf_m)[node] = m;
}

__device__ __forceinline__ float *out_of(const ek_cuda_attn_args &a)
{
    return (float *)(a.items ? a.leaf_o : a.o);
}

// Values of the segment, joined with the nodes of T. Queries that end here get their node.
template <int BITS, int DIM>
__device__ __forceinline__ void add_values(int_shared &sm, const ek_cuda_attn_args &a, int_ring<DIM> &ring,
                                           const int_stack &stack, int count, bool any_ends, int seg)
{
    const int lane = threadIdx.x % 32, t = lane % 4, dim = ring.dim;
#pragma unroll 1
    for (int block = threadIdx.x / 128; block * 64 < dim; block += GROUPS) {
        float o[32];
        {
            int hh[32], mid[32], ll[32];
            int_values<BITS>(sm, ring, hh, mid, ll);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                const float2 unit = *(const float2 *)&sm.unit[j * 8 + t * 2];
#pragma unroll
                for (int i = j * 4; i < j * 4 + 4; i++)
                    o[i] = value_sum_of<BITS>(hh[i], mid[i], ll[i]) * (i & 1 ? unit.y : unit.x);
            }
        }
        auto meet = [&](int level) {
            const float4 *const left = stack.at(level, block);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                const float4 x = __ldcg(left + j * 128);
                const uint2 f = *(const uint2 *)&sm.factors[level][j * 8 + t * 2];
                const float fa0 = bits(f.x << 16), fb0 = bits(f.x & 0xffff0000u), fa1 = bits(f.y << 16),
                            fb1 = bits(f.y & 0xffff0000u);
                float *const mine = o + j * 4;
                mine[0] = x.x * fa0 + mine[0] * fb0, mine[1] = x.y * fa1 + mine[1] * fb1;
                mine[2] = x.z * fa0 + mine[2] * fb0, mine[3] = x.w * fa1 + mine[3] * fb1;
            }
        };
        int level = 0;
#pragma unroll 1
        for (; count >> level & 1; level++) meet(level);
        float4 *const node = stack.at(level, block);
#pragma unroll
        for (int j = 0; j < 8; j++) node[j * 128] = make_float4(o[j * 4], o[j * 4 + 1], o[j * 4 + 2], o[j * 4 + 3]);
        if (!any_ends) continue;
#pragma unroll 1
        for (level++; count >> level; level++)
            if (count >> level & 1) meet(level);
        const int d = block * 64 + ring.warp() * 16 + lane / 4 * 2;
#pragma unroll
        for (int n = 0; n < 16; n++) {
            const int q = n / 2 * 8 + t * 2 + n % 2, i = n / 2 * 4 + n % 2;
            if (!ends_in(sm, a, q, seg) || d >= dim) continue;
            *(float2 *)(out_of(a) + sm.out[q] + d) = make_float2(o[i], o[i + 2]);
        }
    }
}

// Rows of queries that end in the segment: R (o / l) / n.
template <int DIM> __device__ __forceinline__ void turn_back(const int_shared &sm, const ek_cuda_attn_args &a, int seg)
{
    constexpr int COUNT = DIM ? DIM / 32 : HEAD;
    const int tid = thread_again(), lane = tid % 32, warp = tid / 32, dim = DIM ? DIM : a.kv.head_dim;
    float next[COUNT];
    auto ends = [&](int q) { return q < sm.tile.n_q && sm.end[q] > seg * SEGMENT && sm.end[q] <= (seg + 1) * SEGMENT; };
    auto load = [&](int q) {
        if (ends(q)) load_head(next, (float *)a.o + sm.out[q], dim);
    };
    load(warp);
#pragma unroll 1
    for (int q = warp; q < sm.tile.n_q; q += WARPS) {
        float x[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; i++) x[i] = next[i];
        load(q + WARPS);
        if (!ends(q)) continue;
        float *const out = (float *)a.o + sm.out[q];
        const float l = sm.l[q];
#pragma unroll
        for (int i = 0; i < COUNT; i++) x[i] = finish({x[i], l, 0});
        rotate_back(x, dim);
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (i * 32 + lane < dim) out[i * 32 + lane] = x[i];
    }
}

template <int DIM>
__device__ __forceinline__ void tile_of_prompt(int_shared &sm, const ek_cuda_attn_args &a, int number)
{
    const int tid = threadIdx.x, lane = tid % 32, dim = DIM ? DIM : a.kv.head_dim;
    __syncthreads();
    if (tid == 0) sm.tile = ((const ek_cuda_attn_tile *)a.tiles)[number];
    __syncthreads();
    const ek_cuda_attn_tile &t = sm.tile;
    if (tid < TILE) {
        sm.lo[tid] = sm.end[tid] = 0, sm.unit[tid] = 0;
        sm.out[tid] = a.items ? (t.leaf0 * TILE + tid) * dim
                              : row_of(a, t, tid) * (int)a.ldo + head_of(a, t, tid) * dim;
        if (tid < t.n_q) {
            const ek_cuda_attn_row row = ((const ek_cuda_attn_row *)a.rows)[row_of(a, t, tid)];
            sm.lo[tid] = row.lo, sm.end[tid] = row.end;
        }
    }
    code_queries<DIM>(sm, a);
    wgmma_reads_fence();
    for (int seg = t.seg0; seg < t.seg0 + t.n_seg; seg++) {
        const ek_cuda_kv &kv = seg * 4 < a.n_start ? a.start : a.kv;
        __syncthreads();
        if (tid == 0 &&
            seg == t.seg0 + t.n_seg - 1) { // n_tiles are requested in all; the last request restores the counter
            const int taken = atomicAdd((int *)a.ended, 1);
            sm.next = (int)gridDim.x + taken;
            if (taken == a.n_tiles - 1) *(volatile int *)a.ended = 0;
        }
        int all_from = SEGMENT, all_to = 0; // the range of keys that any query sees
        bool whole = true, ends = false;
#pragma unroll
        for (int q = lane; q < TILE; q += 32) {
            const int lo = clamp_key(sm.lo[q] - seg * SEGMENT), end = clamp_key(sm.end[q] - seg * SEGMENT);
            const bool sees = lo < end;
            all_from = min(all_from, -__reduce_max_sync(~0u, sees ? -lo : -SEGMENT));
            all_to = max(all_to, __reduce_max_sync(~0u, sees ? end : 0));
            whole &= !__any_sync(~0u, lo > 0 || end < SEGMENT);
            ends |= __any_sync(~0u, sees && ends_in(sm, a, q, seg)) != 0;
            if (tid < 32) sm.from[q] = lo, sm.seen[q] = max(end - lo, 0);
        }
        const int first = all_from / PAGE, end = (all_to + PAGE - 1) / PAGE;
        if (tid == 0)
            sm.first = first, sm.last = end - 1, sm.seen_end = all_to, sm.k_bytes = kv.k_bytes, sm.k_bits = kv.k_bits,
            sm.v_bits = kv.v_bits;
        if (tid < PAGES) {
            u64 page = tid >= first && tid < end ? page_block(kv, t.view, seg * 4 + tid) : 0;
            if (!page && tid > first && tid < end) page = page_block(kv, t.view, seg * 4 + first); // no query sees it
            sm.page[tid] = page ? (const uint8_t *)page + t.kv_head * (kv.k_bytes + kv.v_bytes) : 0;
        }
        __syncthreads();
        int m = 0;
        float l = 0;
        int_ring<DIM> ring(sm, a);
        {
            float s[OWN][32];
            if (kv.k_bits == 16) int_scores<16>(sm, ring, s);
            else int_scores<8>(sm, ring, s);
            if (!whole) hide(sm, s);
            weigh(sm, kv, s, m, l);
        }
        const int count = seg - t.seg0;
        const int_stack stack(a, dim);
        if (tid < TILE) meet_query(sm, a, stack, count, ends_in(sm, a, tid, seg), l, m);
        wgmma_reads_fence();
        __syncthreads();
        if (kv.v_bits == 16) add_values<16>(sm, a, ring, stack, count, ends, seg);
        else add_values<8>(sm, a, ring, stack, count, ends, seg);
        copy_wait<0>();
        if (!ends || a.items) continue;
        __syncthreads();
        turn_back<DIM>(sm, a, seg);
    }
}

// Any grid of at most n_tiles blocks. A block takes tile blockIdx.x, then the first tile that no other block has taken.
template <int DIM> __device__ __forceinline__ void prompt(const ek_cuda_attn_args &a)
{
    EK_DYNAMIC_SHARED(uint8_t, base);
    let_next_start();
    wait_for_previous();
    for (int i = blockIdx.x; i < a.n_tiles; i = ((int_shared *)base)->next)
        tile_of_prompt<DIM>(*(int_shared *)base, a, i);
}

#define PROMPT(DIM, NAME)                                                                                      \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) NAME(const __grid_constant__ ek_cuda_attn_args a) \
    {                                                                                                          \
        prompt<DIM>(a);                                                                                        \
    }
PROMPT(0, ek_attn_int_prompt)
PROMPT(256, ek_attn_int_prompt_256)
PROMPT(512, ek_attn_int_prompt_512)

static_assert(sizeof(int_shared) == EK_CUDA_INT_PROMPT_SHARED, "args.h says what a launch must ask for");
