// Products of Form F for few rows (contract: ops/linear/linear.h): weights in the CPU's panels, a chain of 256 fma per
// leaf. A warp has a leaf of some panels, a lane 2 or 4 of their outputs for all rows of a tile. The warp reads through
// its own slots of shared memory: pieces of some inputs of its panels and rows, several in flight.
#pragma once

#include <cuda_fp16.h>

#include "cuda/few.h"
#include "cuda/kernels/product/product_fragment.cuh"
#include "cuda/model_args.h"

namespace ek
{

constexpr int BLOCK = 256;

enum { FLOAT, HALF, BRAIN }; // EK_W_F32, EK_W_F16, EK_W_BF16

template <int F> __device__ __forceinline__ int64_t panel_bytes(int k)
{
    return ((int64_t)k * 16 * (F == FLOAT ? 4 : 2) + 63) / 64 * 64;
}

template <int F> __device__ __forceinline__ const uint8_t *panel_at(const ek_cuda_linear_args &a, int number)
{
    return (const uint8_t *)a.codes + number * panel_bytes<F>(a.x.k);
}

// Two weights in a word.
template <int F> __device__ __forceinline__ float2 two(u32 u)
{
    if (F == BRAIN) return make_float2(bits(u << 16), bits(u & 0xffff0000u));
    return make_float2(__half2float(__ushort_as_half((unsigned short)u)),
                       __half2float(__ushort_as_half((unsigned short)(u >> 16))));
}

template <int F, int ROWS> struct few {
    static constexpr int OUTPUTS = EK_CUDA_FEW_OUTPUTS(ROWS), PANELS = OUTPUTS / 16;
    static constexpr int MINE = OUTPUTS / 32, ALL = ROWS * OUTPUTS;     // outputs of a lane; sums of a warp
    static constexpr int BYTES = F == FLOAT ? 4 : 2, LINE = 16 * BYTES; // of an input of a panel
    static constexpr int STEP = EK_CUDA_FEW_STEP(ROWS), SLOT = EK_CUDA_FEW_SLOT(ROWS, BYTES);
    static constexpr int PIECES = STEP * LINE / 16, COPIES = PANELS * PIECES / 32; // of a panel, by 16 bytes; of a lane
    static_assert(32 % ROWS == 0, "a lane copies elements of one row");

    const ek_cuda_linear_args &a;
    uint8_t *ring; // the warp's
    int slots, warps, lane, warp;
    int line[4];                 // place of the lane's weights of an input, by its index in four
    const uint8_t *from[COPIES]; // the lane's source: weights of an input,
    int to[COPIES], input;       // to: the target; input: the input's number in the slot
    const float *row;            // the row from which the lane copies some elements
    float sum[ROWS][MINE];

    __device__ __forceinline__ few(const ek_cuda_linear_args &args, uint8_t *memory, int panel0)
        : a(args), slots(args.slots), warps(blockDim.x / 32), lane(threadIdx.x % 32), warp(threadIdx.x / 32)
    {
        ring = memory + warp * slots * SLOT;
        const int mine = lane * MINE / 16, part = lane % (LINE / 16) * 16, end = (a.n - 1) / 16 - panel0;
#pragma unroll
        for (int i = 0; i < 4; i++) line[i] = line_of(mine, i) + lane * MINE % 16 * BYTES;
        input = lane % PIECES / (LINE / 16);
#pragma unroll
        for (int i = 0; i < COPIES; i++) {
            const int panel = (i * 32 + lane) / PIECES;
            from[i] = panel_at<F>(a, panel0 + min(panel, end)) + part; // after the last panel, the last one again
            to[i] = line_of(panel, input + further(i)) + part;
        }
    }

    // The place of input i of a panel in a slot: inputs are exchanged in fours, so that lanes of four panels read one
    // input from different banks.
    static __device__ __forceinline__ int line_of(int panel, int i)
    {
        return (panel * STEP + (i ^ (panel & (LINE == 32 ? 3 : 1)))) * LINE;
    }

    // The number of inputs between the lane's first copy and its i-th, if a panel's inputs take several copies.
    static __device__ __forceinline__ constexpr int further(int i)
    {
        return i * 32 % PIECES / (LINE / 16);
    }

    // Copies the piece of weights from input k0 on. Inputs after the last are unused, and the last one replaces them.
    __device__ __forceinline__ void copy_weights(int slot, int k0)
    {
        uint8_t *const base = ring + slot * SLOT;
#pragma unroll
        for (int i = 0; i < COPIES; i++)
            copy_async<16>(base + to[i], from[i] + (int64_t)min(k0 + input + further(i), a.x.k - 1) * LINE);
    }

    // Copies the rows' elements there, those of an input adjacent.
    __device__ __forceinline__ void copy_rows(int slot, int k0)
    {
        float *const base = (float *)(ring + slot * SLOT + EK_CUDA_FEW_PIECE(BYTES));
#pragma unroll
        for (int at = lane; at < ROWS * STEP; at += 32) copy_async<4>(base + at, row + min(k0 + at / ROWS, a.x.k - 1));
    }

    // A lane's operands of one step: an input of all rows, its packed weights.
    struct __align__(16) operands
    {
        float x[ROWS];
        u32 w[MINE * BYTES / 4];

        __device__ __forceinline__ void read(const float *rows, const uint8_t *weights)
        {
            words<ROWS>((u32 *)x, rows), words<MINE * BYTES / 4>(w, weights);
        }

        template <int N> static __device__ __forceinline__ void words(u32 * v, const void *at)
        {
            if constexpr (N == 1) v[0] = *(const u32 *)at;
            else if constexpr (N == 2) *(uint2 *)v = *(const uint2 *)at;
            else
#pragma unroll
                for (int i = 0; i < N; i += 4) *(uint4 *)(v + i) = *(const uint4 *)((const u32 *)at + i);
        }
    };

    __device__ __forceinline__ void add(const operands &in)
    {
        float w[MINE];
#pragma unroll
        for (int o = 0; o < MINE; o += 2) {
            const float2 v = F == FLOAT ? make_float2(bits(in.w[o * BYTES / 4]), bits(in.w[(o + 1) * BYTES / 4]))
                                        : two<F>(in.w[o / 2]);
            w[o] = v.x, w[o + 1] = v.y;
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int o = 0; o < MINE; o++) sum[r][o] = fma_(in.x[r], w[o], sum[r][o]);
    }

    // Inputs [0, n) of a slot; the next is read while one is added.
    __device__ __forceinline__ void add_piece(int slot, int n)
    {
        const uint8_t *const w = ring + slot * SLOT;
        const float *const x = (const float *)(w + EK_CUDA_FEW_PIECE(BYTES));
        if (n >= STEP) {
            operands in[2];
            in[0].read(x, w + line[0]);
#pragma unroll
            for (int i = 0; i < STEP; i++) {
                if (i + 1 < STEP)
                    in[(i + 1) % 2].read(x + (i + 1) * ROWS, w + (i + 1) / 4 * 4 * LINE + line[(i + 1) % 4]);
                add(in[i % 2]);
            }
            return;
        }
#pragma unroll 1
        for (int i = 0; i < n; i++) {
            const int at = i % 4 == 0 ? line[0] : i % 4 == 1 ? line[1] : i % 4 == 2 ? line[2] : line[3];
            operands in;
            in.read(x + i * ROWS, w + i / 4 * 4 * LINE + at);
            add(in);
        }
    }

    // Waits for the oldest slot.
    __device__ __forceinline__ void wait()
    {
        if (slots == 4) copy_wait<2>();
        else if (slots == 3) copy_wait<1>();
        else if (slots == 6) copy_wait<4>();
        else copy_wait<EK_CUDA_FEW_MAX_SLOTS - 2>();
    }

    // The slot that the warp reads after that of input k0: of its leaf, or of its next leaf.
    __device__ __forceinline__ int behind(int k0) const
    {
        k0 += STEP;
        return k0 % BLOCK ? k0 : k0 + (warps - 1) * BLOCK;
    }

    // Leaves [first, last), first a multiple of the warps, of the tile's rows; put(row, output, y) receives their sum.
    // ready: called before the first row is read.
    template <class Ready, class Put>
    __device__ __forceinline__ void run(float *sums, int first, int last, Ready ready, Put put)
    {
        const int end = min(a.x.k, last * BLOCK), ahead = slots - 1;
        float *const stack = sums + warps * ALL;
        int copied = (first + warp) * BLOCK, at = copied;
#pragma unroll 1
        for (int s = 0; s < ahead; s++, copied = behind(copied))
            if (copied < end) copy_weights(s, copied);
        ready();
        copied = at;
#pragma unroll 1
        for (int s = 0; s < ahead; s++, copied = behind(copied)) {
            if (copied < end) copy_rows(s, copied);
            copy_commit();
        }
        int now = 0, next = ahead;
        for (int leaf0 = first; leaf0 < last; leaf0 += warps) {
            const int stop = min(end, (leaf0 + warp + 1) * BLOCK);
            const bool any = (leaf0 + warp) * BLOCK < end;
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int o = 0; o < MINE; o++) sum[r][o] = 0;
#pragma unroll 1
            for (at = (leaf0 + warp) * BLOCK; at < stop; at += STEP) {
                wait();
                __syncwarp(); // all lanes have their copies of this slot, and have read the slot before
                if (copied < end) copy_weights(next, copied), copy_rows(next, copied);
                copy_commit();
                add_piece(now, stop - at);
                copied = behind(copied);
                now = now + 1 < slots ? now + 1 : 0, next = next + 1 < slots ? next + 1 : 0;
            }
            if (any)
#pragma unroll
                for (int r = 0; r < ROWS; r++)
#pragma unroll
                    for (int o = 0; o < MINE; o += 2)
                        *(float2 *)(sums + warp * ALL + r * OUTPUTS + lane * MINE + o) = make_float2(sum[r][o],
                                                                                                     sum[r][o + 1]);
            __syncthreads();
            // the warps' leaves are a node of T. It meets the nodes to its left that it completes; at the end, it meets
            // all of them
            const int number = (leaf0 - first) / warps, leaves = min(warps, last - leaf0);
            const bool ends = leaf0 + warps >= last;
            for (int i = threadIdx.x; i < ALL; i += blockDim.x) {
                float y = tree_sum([&](int l) { return sums[l * ALL + i]; }, leaves);
                int depth = __popc((unsigned)number);
                for (int left = number; ends ? depth > 0 : left & 1; left >>= 1) y = stack[--depth * ALL + i] + y;
                if (ends) put(i / OUTPUTS, i % OUTPUTS, y);
                else stack[depth * ALL + i] = y;
            }
            if (!ends) __syncthreads(); // the leaves were read
        }
    }
};

// Rows [row0, row0 + ROWS) up to a.rows of outputs [16 panel0, ...). record(r) is the address of row r of x. With parts
// (a.split), a part's node of T goes to separate rows.
template <int F, int ROWS, class R>
__device__ __forceinline__ void product(const ek_cuda_linear_args &a, int panel0, int row0, int part, R record)
{
    EK_DYNAMIC_SHARED(uint8_t, memory);
    const int leaves = (a.x.k + BLOCK - 1) / BLOCK, each = a.split ? a.split * 64 / BLOCK : leaves;
    few<F, ROWS> f(a, memory, panel0);
    f.run((float *)(memory + f.warps * f.slots * f.SLOT), part * each, min(leaves, (part + 1) * each),
          [&] {
              wait_for_previous(); // a second call, if the caller has waited, costs nothing
              f.row = record(min(row0 + f.lane % ROWS, a.rows - 1));
          },
          [&](int r, int o, float y) {
              const int out = panel0 * 16 + o;
              if (row0 + r < a.rows && out < a.n) ((float *)a.y)[(int64_t)(part * a.rows + row0 + r) * a.ldy + out] = y;
          });
}

} // namespace ek
