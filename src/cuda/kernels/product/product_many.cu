// Products of Form F for many rows (contract: ops/linear/linear.h): a block computes 64 rows by 128 outputs, a thread
// 16 by 4. Pieces of 16 inputs pass through shared memory, with rows transposed so that a thread reads four of them at
// once; chains of 256 inputs stay in registers, nodes of T are in scratch memory.
#include "cuda/kernels/product/product_f.cuh"
#include "cuda/many.h"

using namespace ek;

namespace
{

constexpr int THREADS = EK_CUDA_MANY_THREADS, ROWS = EK_CUDA_MANY_ROWS, OUTPUTS = EK_CUDA_MANY_OUTPUTS, PIECE = 16;
constexpr int DOWN = 16, FOURS = DOWN; // of a thread: rows, and pieces of 16 bytes of its sums
// Four floats more: the threads that write a column, or the weights of an input, then write to different banks.
constexpr int LDX = ROWS + 4, LDW = OUTPUTS + 4;

struct shared {
    float x[2][PIECE][LDX], w[2][PIECE][LDW];
};

// A thread's weights of a piece between load and store: in their stored form, twice 8 of an input. Floats are copied
// directly.
template <int F> struct weights {
    uint4 v[2];

    // Inputs after the last are not used, and outputs after the last are not written. Their neighbours replace them.
    __device__ __forceinline__ void load(shared &sm, int to, const ek_cuda_linear_args &a, int panel0, int k0)
    {
        const int tid = thread_again(), lane = tid % 32, warp = tid / 32, end = (a.n - 1) / 16 - panel0;
        const uint8_t *const first = panel_at<F>(a, panel0);
        const u32 step = (u32)(panel_bytes<F>(a.x.k) / 16); // a matrix is less than 64 GB
        if constexpr (F == FLOAT) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int p = warp * 2 + i / 2, k = lane % 8 + i % 2 * 8, quarter = lane / 8;
                copy_async<16>(&sm.w[to][k][p * 16 + quarter * 4],
                               (const uint4 *)first + (min(p, end) * step + min(k0 + k, a.x.k - 1) * 4 + quarter));
            }
        } else {
#pragma unroll
            for (int i = 0; i < 2; i++)
                v[i] = __ldg((const uint4 *)first +
                             (min(warp * 2 + i, end) * step + min(k0 + lane % 16, a.x.k - 1) * 2 + lane / 16));
        }
    }

    __device__ __forceinline__ void put(shared &sm, int to) const
    {
        const int tid = thread_again(), lane = tid % 32, warp = tid / 32;
#pragma unroll
        for (int i = 0; i < (F == FLOAT ? 0 : 2); i++) {
            float *at = &sm.w[to][lane % 16][(warp * 2 + i) * 16 + lane / 16 * 8];
            const float2 b0 = two<F>(v[i].x), b1 = two<F>(v[i].y), b2 = two<F>(v[i].z), b3 = two<F>(v[i].w);
            *(float4 *)at = make_float4(b0.x, b0.y, b1.x, b1.y);
            *(float4 *)(at + 4) = make_float4(b2.x, b2.y, b3.x, b3.y);
        }
    }
};

// The part of a thread: 16 rows from row() on, which are the same in a warp, so that it reads each of them once, by 4
// outputs from output() on.
struct sums {
    float v[DOWN][4];

    static __device__ __forceinline__ int row()
    {
        return threadIdx.x / 32 * DOWN;
    }

    static __device__ __forceinline__ int output()
    {
        return threadIdx.x % 32 * 4;
    }

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int r = 0; r < DOWN; r++)
#pragma unroll
            for (int o = 0; o < 4; o++) v[r][o] = 0;
    }

    struct __align__(16) input
    {
        float x[DOWN], w[4];

        __device__ __forceinline__ void read(const shared &sm, int now, int i)
        {
#pragma unroll
            for (int r = 0; r < DOWN; r += 4) *(float4 *)(x + r) = *(const float4 *)&sm.x[now][i][row() + r];
            *(float4 *)w = *(const float4 *)&sm.w[now][i][output()];
        }
    };

    // Outputs alternate their direction. The row's operand, and at the turn the output's, then stay in the registers of
    // the instruction before.
    __device__ __forceinline__ void add(const input &in)
    {
#pragma unroll
        for (int r = 0; r < DOWN; r++)
#pragma unroll
            for (int turn = 0; turn < 4; turn++) {
                const int o = r & 1 ? 3 - turn : turn;
                v[r][o] = fma_(in.x[r], in.w[o], v[r][o]);
            }
    }

    // The next input is read while one is added.
    __device__ __forceinline__ void add_piece(const shared &sm, int now)
    {
        input in[2];
        in[0].read(sm, now, 0);
#pragma unroll
        for (int i = 0; i < PIECE; i++) {
            if (i + 1 < PIECE) in[(i + 1) % 2].read(sm, now, i + 1);
            add(in[i % 2]);
        }
    }

    // After leaf `number`: its sum meets the nodes to its left that it completes (for the last leaf, all of them), and
    // becomes one node.
    __device__ __forceinline__ void end_leaf(const ek_cuda_linear_args &a, int number, bool last)
    {
        float4 *const stack = (float4 *)a.stack + (int64_t)blockIdx.x * a.levels * FOURS * THREADS + threadIdx.x;
        int depth = __popc((unsigned)number);
        for (int left = number; last ? depth > 0 : left & 1; left >>= 1) {
            const float4 *from = stack + --depth * FOURS * THREADS;
#pragma unroll
            for (int i = 0; i < FOURS; i++) {
                const float4 f = from[i * THREADS];
                float *s = v[i];
                s[0] = f.x + s[0], s[1] = f.y + s[1], s[2] = f.z + s[2], s[3] = f.w + s[3];
            }
        }
        if (last) return;
        float4 *to = stack + depth * FOURS * THREADS;
#pragma unroll
        for (int i = 0; i < FOURS; i++) {
            const float *s = v[i];
            to[i * THREADS] = make_float4(s[0], s[1], s[2], s[3]);
        }
        clear();
    }

    __device__ __forceinline__ void write(const ek_cuda_linear_args &a, int row0, int rows, int output0) const
    {
        const bool fours = a.ldy % 4 == 0 && a.y % 16 == 0 && a.n % 4 == 0;
#pragma unroll
        for (int i = 0; i < DOWN; i++) {
            const int r = row0 + row() + i, out = output0 + output();
            const float *s = v[i];
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

// Any grid; a.stack: a.levels nodes of 64 x 128 floats for each block. In parts (a.split), a tile has some of the
// leaves, and its node of T goes to separate rows.
template <int F> __device__ __forceinline__ void many(const ek_cuda_linear_args &a)
{
    EK_DYNAMIC_SHARED(shared, base);
    shared &sm = *base;
    const int k = a.x.k, step = a.split ? a.split * 64 : k, parts = (k + step - 1) / step;
    const int row_tiles = (a.rows + ROWS - 1) / ROWS, tiles = row_tiles * ((a.n + OUTPUTS - 1) / OUTPUTS) * parts;
    let_next_start();
    wait_for_previous();
    for (int number = blockIdx.x; number < tiles; number += gridDim.x) {
        const int part = number % parts, tile = number / parts, k0 = part * step, end = min(k, k0 + step);
        const int row0 = tile % row_tiles * ROWS, output0 = tile / row_tiles * OUTPUTS;
        const int pieces = (end - k0 + PIECE - 1) / PIECE, rest = (end - k0) % PIECE;
        auto copy_rows = [&](int to, int first) { // a thread copies two inputs of four rows
            const int tid = thread_again(), in = tid % 8, row = tid / 8;
#pragma unroll
            for (int r = 0; r < ROWS; r += 16) {
                const float *from = (const float *)a.f + min(row0 + r + row, a.rows - 1) * a.ldf;
#pragma unroll
                for (int i = 0; i < PIECE; i += 8)
                    copy_async<4>(&sm.x[to][i + in][r + row], from + min(first + i + in, k - 1));
            }
        };
        sums s;
        weights<F> next;
        s.clear();
        __syncthreads(); // the tile before was read
        copy_rows(0, k0);
        next.load(sm, 0, a, output0 / 16, k0);
        copy_commit();
        next.put(sm, 0);
        copy_wait<0>();
        __syncthreads();
#pragma unroll 1
        for (int i = 0; i < pieces; i++) {
            const int now = i & 1;
            const bool more = i + 1 < pieces;
            if (more) {
                copy_rows(now ^ 1, k0 + (i + 1) * PIECE);
                next.load(sm, now ^ 1, a, output0 / 16, k0 + (i + 1) * PIECE);
            }
            copy_commit();
            if (more || rest == 0) {
                s.add_piece(sm, now);
            } else {
#pragma unroll 1
                for (int j = 0; j < rest; j++) {
                    sums::input in;
                    in.read(sm, now, j), s.add(in);
                }
            }
            if (more) next.put(sm, now ^ 1);
            copy_wait<0>();
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
