// Products of Form F for many rows (contract: ops/linear/linear.h): a block computes 64 rows by 128 outputs, a thread
// 16 by 8, which is 6 reads of 16 bytes from shared memory for 128 multiply-adds: whatever is read is written to the
// registers of 32 lanes, at 128 bytes a cycle for the four warps that multiply meanwhile. Pieces of 16 inputs go
// through shared memory, rows as they lie; chains of 256 inputs stay in registers, nodes of T lie in scratch memory.
#include "cuda/kernels/product/product_f.cuh"
#include "cuda/many.h"

using namespace ek;

namespace
{

constexpr int THREADS = EK_CUDA_MANY_THREADS, ROWS = EK_CUDA_MANY_ROWS, OUTPUTS = EK_CUDA_MANY_OUTPUTS, PIECE = 16;
constexpr int DOWN = 16, ACROSS = 8, FOURS = DOWN * ACROSS / 4; // of a thread: rows, outputs, pieces of its sums
// Four floats more: the threads that write the weights of an input then write to different banks, and those with other
// rows read from others.
constexpr int LDW = OUTPUTS + 4, PAD = 4;

struct shared {
    float x[2][ROWS * PIECE + ROWS / DOWN * PAD], w[2][PIECE][LDW];
    uint4 stored[OUTPUTS * PIECE / 8 / THREADS][THREADS]; // of weights of two bytes
};

// Where a row of a piece lies.
__device__ __forceinline__ int place_of(int row)
{
    return row * PIECE + row / DOWN * PAD;
}

// The weights of a piece on their way: a thread widens what it has copied itself, four times 8 of an input. Floats are
// copied to their place.
template <int F> struct weights {
    static constexpr int PANELS = OUTPUTS / 16 / (THREADS / 32); // of a warp

    // Inputs past the last are not used, outputs past the last not written: their neighbours stand in for them.
    static __device__ __forceinline__ void copy(shared &sm, int to, const ek_cuda_linear_args &a, int panel0, int k0)
    {
        const int tid = thread_again(), lane = tid % 32, warp = tid / 32, end = (a.n - 1) / 16 - panel0;
        const uint4 *const first = (const uint4 *)panel_at<F>(a, panel0);
        const u32 step = (u32)(panel_bytes<F>(a.x.k) / 16); // a matrix is less than 64 GB
        if constexpr (F == FLOAT) {
#pragma unroll
            for (int i = 0; i < 2 * PANELS; i++) {
                const int p = warp * PANELS + i / 2, k = lane % 8 + i % 2 * 8, quarter = lane / 8;
                copy_async<16>(&sm.w[to][k][p * 16 + quarter * 4],
                               first + (min(p, end) * step + min(k0 + k, a.x.k - 1) * 4 + quarter));
            }
        } else {
            const uint4 *const from = first + (min(k0 + lane % 16, a.x.k - 1) * 2 + lane / 16);
#pragma unroll
            for (int i = 0; i < PANELS; i++)
                copy_async<16>(&sm.stored[i][tid], from + min(warp * PANELS + i, end) * step);
        }
    }

    static __device__ __forceinline__ float2 two(u32 u)
    {
        if (F == BRAIN) return make_float2(bits(u << 16), bits(u & 0xffff0000u));
        return make_float2(__half2float(__ushort_as_half((unsigned short)u)),
                           __half2float(__ushort_as_half((unsigned short)(u >> 16))));
    }

    // Behind the wait for the thread's copies.
    static __device__ __forceinline__ void widen(shared &sm, int to)
    {
        const int tid = thread_again(), lane = tid % 32, warp = tid / 32;
#pragma unroll
        for (int i = 0; i < (F == FLOAT ? 0 : PANELS); i++) {
            float *at = &sm.w[to][lane % 16][(warp * PANELS + i) * 16 + lane / 16 * 8];
            const uint4 v = sm.stored[i][tid];
            const float2 b0 = two(v.x), b1 = two(v.y), b2 = two(v.z), b3 = two(v.w);
            *(float4 *)at = make_float4(b0.x, b0.y, b1.x, b1.y);
            *(float4 *)(at + 4) = make_float4(b2.x, b2.y, b3.x, b3.y);
        }
    }
};

// What a thread computes: 16 rows from row() on, which are the same in half a warp, by 8 outputs, four from output() on
// and four 64 further.
struct sums {
    float v[DOWN][ACROSS];

    static __device__ __forceinline__ int row()
    {
        return threadIdx.x / 16 * DOWN;
    }

    static __device__ __forceinline__ int output()
    {
        return threadIdx.x % 16 * 4;
    }

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int r = 0; r < DOWN; r++)
#pragma unroll
            for (int o = 0; o < ACROSS; o++) v[r][o] = 0;
    }

    // Four rows of four inputs.
    struct __align__(16) square
    {
        float x[4][4];

        __device__ __forceinline__ void read(const float *from)
        {
#pragma unroll
            for (int r = 0; r < 4; r++) *(float4 *)x[r] = *(const float4 *)(from + r * PIECE);
        }
    };

    // An input's weights for the outputs.
    struct __align__(16) weight
    {
        float w[ACROSS];

        __device__ __forceinline__ void read(const float *from)
        {
            *(float4 *)w = *(const float4 *)from, *(float4 *)(w + 4) = *(const float4 *)(from + 64);
        }
    };

    // Outputs go to and fro: the row's operand, and the output's at the turn, stay where the instruction before had
    // them.
    template <int R> __device__ __forceinline__ void add(int first, const float (&x)[R], const weight &w)
    {
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int turn = 0; turn < ACROSS; turn++) {
                const int o = r & 1 ? ACROSS - 1 - turn : turn;
                v[first + r][o] = fma_(x[r], w.w[o], v[first + r][o]);
            }
    }

    // Four inputs at a time, four rows at a time: the next rows are read while four are added, an input's weights as
    // soon as those of four inputs before have been used for the last time. Behind the last the first are read again,
    // which costs less than a branch around it.
    __device__ __forceinline__ void add_piece(const shared &sm, int now)
    {
        const float *rows = sm.x[now] + place_of(row()), *outputs = &sm.w[now][0][output()];
        square x[2];
        weight w[4];
        x[0].read(rows);
#pragma unroll
        for (int i = 0; i < 4; i++) w[i].read(outputs + i * LDW);
#pragma unroll 1
        for (int k = 0; k < PIECE; k += 8) {
#pragma unroll
            for (int step = 0; step < 8; step++) {
                const int next = (k + (step + 1) / 4 * 4) % PIECE;
                x[(step + 1) % 2].read(rows + (step + 1) % 4 * 4 * PIECE + next);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const square &now4 = x[step % 2];
                    const float column[4] = {now4.x[0][i], now4.x[1][i], now4.x[2][i], now4.x[3][i]};
                    add(step % 4 * 4, column, w[i]);
                    if (step % 4 == 3) w[i].read(outputs + (next + i) * LDW);
                }
            }
        }
    }

    // One input.
    __device__ __forceinline__ void add_one(const shared &sm, int now, int i)
    {
        const float *rows = sm.x[now] + place_of(row()) + i;
        float x[DOWN];
        weight w;
        w.read(&sm.w[now][i][output()]);
#pragma unroll
        for (int r = 0; r < DOWN; r++) x[r] = rows[r * PIECE];
        add(0, x, w);
    }

    // Behind leaf `number`: its sum meets the nodes to its left that it completes (of the last leaf, all of them), and
    // becomes one.
    __device__ __forceinline__ void end_leaf(const ek_cuda_linear_args &a, int number, bool last)
    {
        float4 *const stack = (float4 *)a.stack + (int64_t)blockIdx.x * a.levels * FOURS * THREADS + threadIdx.x;
        int depth = __popc((unsigned)number);
        for (int left = number; last ? depth > 0 : left & 1; left >>= 1) {
            const float4 *from = stack + --depth * FOURS * THREADS;
#pragma unroll
            for (int i = 0; i < FOURS; i++) {
                const float4 f = from[i * THREADS];
                float *s = &v[i / 2][i % 2 * 4];
                s[0] = f.x + s[0], s[1] = f.y + s[1], s[2] = f.z + s[2], s[3] = f.w + s[3];
            }
        }
        if (last) return;
        float4 *to = stack + depth * FOURS * THREADS;
#pragma unroll
        for (int i = 0; i < FOURS; i++) {
            const float *s = &v[i / 2][i % 2 * 4];
            to[i * THREADS] = make_float4(s[0], s[1], s[2], s[3]);
        }
        clear();
    }

    __device__ __forceinline__ void write(const ek_cuda_linear_args &a, int row0, int rows, int output0) const
    {
        const bool fours = a.ldy % 4 == 0 && a.y % 16 == 0 && a.n % 4 == 0;
#pragma unroll
        for (int i = 0; i < FOURS; i++) {
            const int r = row0 + row() + i / 2, out = output0 + output() + i % 2 * 64;
            const float *s = &v[i / 2][i % 2 * 4];
            float *to = (float *)a.y + r * a.ldy + out;
            if (r >= rows || out >= a.n) continue;
            if (fours) *(float4 *)to = make_float4(s[0], s[1], s[2], s[3]);
            else
#pragma unroll
                for (int o = 0; o < 4; o++)
                    if (out + o < a.n) to[o] = s[o];
        }
    }
};

// Any grid; a.stack: a.levels nodes of 64 x 128 floats for each block. In parts (a.split) a tile is of some leaves, and
// its node of T goes to rows of its own.
template <int F> __device__ __forceinline__ void many(const ek_cuda_linear_args &a)
{
    EK_DYNAMIC_SHARED(shared, base);
    shared &sm = *base;
    const int k = a.x.k, step = a.split ? a.split * 64 : k, parts = (k + step - 1) / step;
    const bool fours = k % 4 == 0 && a.ldf % 4 == 0 && a.f % 16 == 0;
    const int row_tiles = (a.rows + ROWS - 1) / ROWS, tiles = row_tiles * ((a.n + OUTPUTS - 1) / OUTPUTS) * parts;
    let_next_start();
    wait_for_previous();
    for (int number = blockIdx.x; number < tiles; number += gridDim.x) {
        const int part = number % parts, tile = number / parts, k0 = part * step, end = min(k, k0 + step);
        const int row0 = tile % row_tiles * ROWS, output0 = tile / row_tiles * OUTPUTS;
        const int pieces = (end - k0 + PIECE - 1) / PIECE;
        // Rows and inputs past the last are not used: the last stand in for them.
        auto copy_rows = [&](int to, int first) {
            const int tid = thread_again();
            if (fours) {
                const float *const from = (const float *)a.f + min(first + tid % 4 * 4, k - 4);
#pragma unroll
                for (int r = tid / 4, i = 0; i < ROWS * 4 / THREADS; i++, r += THREADS / 4)
                    copy_async<16>(&sm.x[to][place_of(r) + tid % 4 * 4], from + min(row0 + r, a.rows - 1) * a.ldf);
            } else {
                const float *const from = (const float *)a.f + min(first + tid % PIECE, k - 1);
#pragma unroll 1
                for (int r = tid / PIECE; r < ROWS; r += THREADS / PIECE)
                    copy_async<4>(&sm.x[to][place_of(r) + tid % PIECE], from + min(row0 + r, a.rows - 1) * a.ldf);
            }
        };
        sums s;
        s.clear();
        __syncthreads(); // the tile before is read
        copy_rows(0, k0);
        weights<F>::copy(sm, 0, a, output0 / 16, k0);
        copy_commit();
        copy_wait<0>();
        weights<F>::widen(sm, 0);
        __syncthreads();
#pragma unroll 1
        for (int i = 0; i < pieces; i++) {
            const int now = i & 1;
            const bool more = i + 1 < pieces;
            if (more) {
                copy_rows(now ^ 1, k0 + (i + 1) * PIECE);
                weights<F>::copy(sm, now ^ 1, a, output0 / 16, k0 + (i + 1) * PIECE);
            }
            copy_commit();
            if (more || k % PIECE == 0) {
                s.add_piece(sm, now);
            } else {
#pragma unroll 1
                for (int j = 0; j < k % PIECE; j++) s.add_one(sm, now, j);
            }
            copy_wait<0>();
            if (more) weights<F>::widen(sm, now ^ 1);
            __syncthreads();
            if (!more || i % (BLOCK / PIECE) == BLOCK / PIECE - 1) s.end_leaf(a, i / (BLOCK / PIECE), !more);
        }
        s.write(a, part * a.rows + row0, (part + 1) * a.rows, output0);
    }
}

} // namespace

#define MANY(NAME, F)                                                           \
    extern "C" __global__ void __launch_bounds__(THREADS, EK_CUDA_MANY_BLOCKS)  \
        ek_product_##NAME##_many(const __grid_constant__ ek_cuda_linear_args a) \
    {                                                                           \
        many<F>(a);                                                             \
    }
MANY(f32, FLOAT)
MANY(f16, HALF)
MANY(bf16, BRAIN)

static_assert(sizeof(shared) == EK_CUDA_MANY_SHARED, "product/many.h says what a launch must ask for");
