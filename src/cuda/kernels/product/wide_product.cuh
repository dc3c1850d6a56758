// Products of Form Q for many rows by wgmma (contract: ops/linear/linear.h): with bf16 scales and biases and groups of
// 64, or with f16 scales and groups of 32 (A), each of which is a wgmma of its own.
//
// A block computes GROUPS x TALL x 64 outputs for COLUMNS columns (rows of activations, or with two limbs half as many
// rows). A warpgroup has TALL x 64 outputs: codes of weights go from shared memory to its registers; activations are
// there in ek_arrange's order. For each group of 64 inputs it computes CHUNK columns while it adds the floats of the
// previous CHUNK columns. Chains stay in registers; nodes of T are in scratch memory.
//
// Each warp copies its own codes and scales into a ring of its own, some units at once, and warp 0 the activations of
// all into another, across the tiles of a block. For q, k and v in one launch a block takes the tiles of one matrix
// after those of another; PART: the matrix's number. SHORT: for experts a tile with at most so many columns computes
// only these; one with up to half as many again leaves out the floats of the others. With a gate the TALL = 2 panels of
// a warp are of two matrices, and the block writes a group of 64 of the quantised rows in the next product's order
// (wide_gate.cuh).
#pragma once

#include "cuda/kernels/wide_gate.cuh"
#include "cuda/kernels/product/wide_unit.cuh"
#include "cuda/kernels/product/wide_floats.cuh"
#include "cuda/model_args.h"

namespace ek
{

template <int BITS, int LIMBS, int GROUPS, int TALL, int COLUMNS, int CHUNK, int UNITS, int SLOTS, bool GATE = false,
          int A = 64, int PART = 0, int SHORT = 0>
struct wide_product {
    static constexpr int CODE = BITS * 128, SCALE = 64, PANELS = GROUPS * (GATE ? 1 : TALL) * 4, WARPS = GROUPS * 4,
                         THREADS = GROUPS * 128;
    static constexpr int PER = LIMBS == 1 ? 2 : 1, ROWS = COLUMNS / LIMBS, OCTETS = COLUMNS / 8,
                         SUMS = TALL * OCTETS * 2 * PER;
    static constexpr int ACTS = COLUMNS * 128, SX = ROWS * 8;
    static constexpr int PAIR = (ACTS + 2 * SX + 1023) / 1024 * 1024; // of two units, as ek_arrange writes them
    static constexpr int OPERAND = UNITS / 2 * PAIR, WEIGHTS = TALL * UNITS * (CODE + SCALE),
                         SLOT_BYTES = OPERAND + WARPS * WEIGHTS;
    typedef wide_unit<BITS, LIMBS, TALL, COLUMNS, CHUNK, UNITS, SHORT> one_unit;
    static constexpr int LANE = (A == 64 ? 8 : 4) *
                                PER; // bytes from a lane's {sx, X}, or sx, of an octet to the next one's
    static_assert(A == 64 || (A == 32 && CHUNK == COLUMNS), "groups of 64 or 32");
    static_assert(!GATE || (GROUPS == 1 && TALL == 2 && LIMBS == 1 && COLUMNS == 64),
                  "a group of 64 outputs by 64 rows");

    // The next chunk that a warp copies: its own weights; for warp 0 also activations.
    struct feed {
        u64 codes[TALL], scales[TALL], acts;
        int number, left; // tile, units of it
    };

    // Data that is needed only between chunks is in shared memory, because registers are for sums.
    struct control {
        u64 weights[WARPS][SLOTS], acts[SLOTS], read[SLOTS]; // bytes have arrived; all threads have read them
        feed feeds[WARPS + 1];                               // the last: activations
        int number[WARPS], mine[WARPS];                      // a warp's tile, its units
        int p0[WARPS], operand[WARPS], row0[WARPS], end[WARPS], part[WARPS]; // its place
        int units, split, panels, columns, tiles; // split: units of each part except the last
        int parts, across;       // parts of a tile; across: tiles of a column of panels, or columns of panels of a job
        u32 by_parts, by_across; // the largest number of 32 bits over them
    };
    static constexpr int SHARED = SLOTS * SLOT_BYTES + (sizeof(control) + 15) / 16 * 16;

    const ek_cuda_linear_args &a;
    const ek_cuda_products_args *pick; // of experts, or with a gate
    uint8_t *ring;                     // activations of all slots, then each warp's slots of weights, then the control

    __device__ __forceinline__ control &of() const
    {
        return *(control *)(ring + SLOTS * SLOT_BYTES + PART * EK_CUDA_WIDE_CONTROL);
    }

    __device__ __forceinline__ uint8_t *weights_at(int warp, int slot) const
    {
        return ring + SLOTS * OPERAND + (warp * SLOTS + slot) * WEIGHTS;
    }

    struct place {
        u64 codes, scales;
        int p0, operand, row0, end, part; // panel and row tile; rows of x, or of y with jobs
    };

    __device__ __forceinline__ bool jobs() const
    {
        return GATE ? pick->jobs != 0 : pick != 0;
    }

    __device__ __forceinline__ place tile_at(int number) const
    {
        place at = {a.codes, a.scales, 0, 0, 0, a.rows, 0};
        int rest;
        const int tile = quotient(number, of().parts, of().by_parts, &at.part),
                  first = quotient(tile, of().across, of().by_across, &rest);
        if (jobs()) {
            const ek_cuda_job one = ((const ek_cuda_job *)pick->jobs)[first];
            at.codes = (!GATE && blockIdx.z ? pick->codes2 : a.codes) + one.expert * pick->expert_bytes;
            at.scales = (!GATE && blockIdx.z ? pick->scales2 : a.scales) + one.expert * pick->expert_bytes;
            at.p0 = rest * PANELS, at.operand = first, at.row0 = one.first, at.end = one.first + one.n;
        } else {
            at.p0 = first * PANELS, at.operand = rest, at.row0 = at.operand * ROWS;
        }
        return at;
    }

    __device__ __forceinline__ int units_of(int part) const
    {
        return min(of().split, of().units - part * of().split);
    }

    static __device__ __forceinline__ int panel_of(int warp, int m)
    {
        return GATE ? warp : warp / 4 * TALL * 4 + m * 4 + warp % 4;
    }

    __device__ __forceinline__ void begin(feed &f, int number, int warp) const
    {
        f.number = number;
        if (number >= of().tiles) return;
        const place at = tile_at(number);
        const int units = of().units, first = at.part * of().split;
        f.left = units_of(at.part);
        f.acts = a.operand + ((int64_t)at.operand * ((units + 1) / 2) + first / 2) * PAIR;
#pragma unroll
        for (int m = 0; m < TALL; m++) {
            const int64_t unit = (int64_t)min(at.p0 + panel_of(warp, m), of().panels - 1) * units + first;
            f.codes[m] = at.codes + unit * CODE, f.scales[m] = at.scales + unit * SCALE;
            if (GATE && m) f.codes[m] += pick->codes2 - a.codes, f.scales[m] += pick->scales2 - a.scales;
        }
    }

    // Copies the next chunk into a slot; by one thread.
    __device__ __forceinline__ void feed_weights(int warp, int slot) const
    {
        feed &f = of().feeds[warp];
        if (f.number >= of().tiles) return;
        const int some = min(UNITS, f.left);
        uint8_t *to = weights_at(warp, slot);
        u64 *arrived = &of().weights[warp][slot];
        arrival_expect(arrived, TALL * some * (CODE + SCALE));
#pragma unroll
        for (int m = 0; m < TALL; m++) {
            copy_piece(to + m * UNITS * CODE, (const void *)f.codes[m], some * CODE, arrived);
            copy_piece(to + TALL * UNITS * CODE + m * UNITS * SCALE, (const void *)f.scales[m], some * SCALE, arrived);
            f.codes[m] += UNITS * CODE, f.scales[m] += UNITS * SCALE;
        }
        if ((f.left -= some) == 0) begin(f, f.number + gridDim.x, warp);
    }

    __device__ __forceinline__ void feed_acts(int slot) const
    {
        feed &f = of().feeds[WARPS];
        if (f.number >= of().tiles) return;
        const int some = min(UNITS, f.left), bytes = (some + 1) / 2 * PAIR;
        arrival_expect(&of().acts[slot], bytes);
        copy_piece(ring + slot * OPERAND, (const void *)f.acts, bytes, &of().acts[slot]);
        f.acts += OPERAND;
        if ((f.left -= some) == 0) begin(f, f.number + gridDim.x, 0);
    }

    // A block's nodes lie as with one limb, although with two they are half as large. In one launch of q, k and v,
    // another block may compute a matrix with the other number of limbs.
    __device__ __forceinline__ float4 *node(int level) const
    {
        const int block = blockIdx.z * gridDim.x + blockIdx.x;
        return (float4 *)a.stack + ((int64_t)block * a.levels + level) * (SUMS * LIMBS / 4) * THREADS + thread_again();
    }

    __device__ __forceinline__ void store(const float (&sum)[SUMS]) const
    {
        const int lane = thread_again() % 32, warp = thread_again() / 32, row = of().row0[warp] + lane % 4 * PER;
        const int panel = of().p0[warp] + panel_of(warp, 0), out = panel * 16 + lane / 4;
        float *y = (float *)(pick && blockIdx.z ? pick->y2 : a.y) + ((int64_t)of().part[warp] * a.rows + row) * a.ldy +
                   out;
        const bool all = of().end[warp] - of().row0[warp] >= ROWS && panel * 16 + (TALL - 1) * 64 + 16 <= a.n;
        if (all) wide_store<true, LIMBS, TALL, OCTETS>(sum, y, a.ldy, 0, 0);
        else wide_store<false, LIMBS, TALL, OCTETS>(sum, y, a.ldy, of().end[warp] - row, a.n - out);
    }

    // y2: the operand of the next product. The slot's activations have been read.
    __device__ __forceinline__ void gate(const float (&sum)[SUMS], int slot) const
    {
        const int warp = thread_again() / 32, unit = of().p0[warp] / PANELS, pairs = (of().columns + 1) / 2;
        if constexpr (GATE)
            gate_tile<A>(sum, (float *)(ring + slot * OPERAND),
                         (uint8_t *)pick->y2 + ((int64_t)of().operand[warp] * pairs + unit / 2) * PAIR, unit % 2);
        wgmma_reads_fence();
        __syncthreads(); // before the slot is filled
    }

    __device__ __forceinline__ void open(int first) const
    {
        const int warp = threadIdx.x / 32;
        control &is = of();
        if (threadIdx.x == 0) {
            is.units = a.x.k / 64, is.panels = (a.n + 15) / 16, is.columns = (is.panels + PANELS - 1) / PANELS;
            const int row_tiles = (a.rows + ROWS - 1) / ROWS;
            is.across = jobs() ? is.columns : row_tiles;
            is.split = !jobs() && a.split ? a.split : is.units, is.parts = (is.units + is.split - 1) / is.split;
            is.by_parts = ~0u / (u32)is.parts, is.by_across = ~0u / (u32)is.across;
            for (int i = 0; i < SLOTS; i++) arrival_open(&is.acts[i]), arrival_open(&is.read[i], THREADS);
        }
        if (threadIdx.x % 32 == 0)
            for (int i = 0; i < SLOTS; i++) arrival_open(&is.weights[warp][i]);
        arrival_fence();
        let_next_start();
        wait_for_previous();
        if (threadIdx.x == 0)
            is.tiles = jobs() ? *(const int *)pick->n_jobs * is.columns : is.across * is.columns * is.parts;
        __syncthreads();
        if (threadIdx.x % 32) return;
        begin(is.feeds[warp], first, warp);
        if (warp == 0) begin(is.feeds[WARPS], first, 0);
        for (int i = 0; i < SLOTS; i++) {
            feed_weights(warp, i);
            if (warp == 0) feed_acts(i);
        }
    }

    __device__ __forceinline__ int number() const
    {
        return of().number[thread_again() / 32];
    }

    __device__ __forceinline__ int mine() const
    {
        return of().mine[thread_again() / 32];
    }

    __device__ __forceinline__ int columns() const
    {
        const int warp = thread_again() / 32;
        return (of().end[warp] - of().row0[warp]) * LIMBS;
    }

    // Takes the warp's next tile.
    __device__ __forceinline__ void take(int next) const
    {
        const int warp = thread_again() / 32;
        __syncwarp(); // all lanes have read the tile before
        if (thread_again() % 32 == 0) {
            of().number[warp] = next;
            if (next < of().tiles) {
                const place at = tile_at(next);
                of().mine[warp] = units_of(at.part);
                of().p0[warp] = at.p0, of().operand[warp] = at.operand, of().row0[warp] = at.row0,
                of().end[warp] = at.end, of().part[warp] = at.part;
            }
        }
        __syncwarp();
    }

    // After a chunk, one thread of each warp, after its warp: refills its own slot; for activations this slot if one
    // warpgroup reads them in step, otherwise the previous one, which all will have read.
    __device__ __forceinline__ void refill(int slot, u32 phase, bool first) const
    {
        const int warp = thread_again() / 32;
        feed_weights(warp, slot);
        if (warp || (GROUPS > 1 && first)) return;
        if (GROUPS > 1) phase ^= slot == 0, slot = slot ? slot - 1 : SLOTS - 1;
        arrival_wait(&of().read[slot], phase);
        feed_acts(slot);
    }

    // The block's tiles: `first` and every gridDim.x-th after it. Returns the distance of the next one after the last
    // tile.
    __device__ __forceinline__ int run(int first) const
    {
        open(first);
        float sum[SUMS];
        int slot = 0;
        u32 phase = 0;
        for (take(first); number() < of().tiles; take(number() + gridDim.x)) {
            typename one_unit::accumulators d[COLUMNS / CHUNK > 1 ? 2 : 1];
            for (int i = 0; i < (COLUMNS / CHUNK > 1 ? 2 : 1); i++)
                for (int m = 0; m < TALL; m++)
                    for (int j = 0; j < CHUNK / 2; j++) d[i][m][j] = 0;
            wide_clear(sum);
#pragma unroll 1
            for (int u = 0; u < mine();) {
                const int lane = thread_again() % 32, warp = thread_again() / 32, end = min(u + UNITS, mine());
                const uint8_t *codes = weights_at(warp, slot) + lane * 16,
                              *scales = weights_at(warp, slot) + TALL * UNITS * CODE + lane / 4 * (A / 8);
                const uint8_t *acts = ring + slot * OPERAND;
                arrival_wait(&of().weights[warp][slot], phase);
                arrival_wait(&of().acts[slot], phase);
                bool all = true;
                if constexpr (SHORT != 0) {
                    all = columns() > SHORT * 3 / 2;
                    if (columns() <= SHORT) {
                        int few[TALL][SHORT / 2];
#pragma unroll 1
                        for (; u < end; u++) {
                            const uint8_t *b = acts + (u & 1) * 64, *x = acts + ACTS + (u & 1) * SX + lane % 4 * LANE;
                            if constexpr (A == 64)
                                one_unit::template add_64<true>(a.zero, sum, d, codes, scales, b, x, all);
                            else one_unit::add_32(sum, few, codes, scales, b, x, true);
                            codes += CODE, scales += SCALE;
                            if (u & 1) acts += PAIR;
                        }
                    }
                }
#pragma unroll 1
                for (; u < end; u++) {
                    const uint8_t *b = acts + (u & 1) * 64, *x = acts + ACTS + (u & 1) * SX + lane % 4 * LANE;
                    if constexpr (A == 64) one_unit::template add_64<false>(a.zero, sum, d, codes, scales, b, x, all);
                    else one_unit::add_32(sum, d[0], codes, scales, b, x, all);
                    codes += CODE, scales += SCALE;
                    if (u & 1) acts += PAIR;
                }
                // every lane arrives: racecheck does not see that __syncwarp orders a warp's reads before one lane's
                // arrival
                arrival_tell(&of().read[slot]);
                __syncwarp();
                if (GATE && u == mine()) break; // the gate needs the slot once more
                if (thread_again() % 32 == 0) refill(slot, phase, u <= UNITS && number() == first);
                if (++slot == SLOTS) slot = 0, phase ^= 1;
                if (u % 16 == 0 && u < mine()) { // a leaf that is not the last
                    int level = 0;
                    for (int count = u / 16 - 1; count >> level & 1; level++) wide_add<THREADS>(sum, node(level));
                    wide_put<THREADS>(sum, node(level));
                    wide_clear(sum);
                }
            }
            const int before = (mine() - 1) / 16; // leaves in the stack
            for (int level = 0; before >> level; level++)
                if (before >> level & 1) wide_add<THREADS>(sum, node(level));
            if constexpr (GATE) {
                gate(sum, slot);
                if (thread_again() % 32 == 0) refill(slot, phase, false);
                if (++slot == SLOTS) slot = 0, phase ^= 1;
            } else {
                store(sum);
            }
        }
        return number() - of().tiles;
    }
};

} // namespace ek
