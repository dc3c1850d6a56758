// A warp's part of products by leaves (kernels/product_leaf.cuh): the chunks it takes, their copies, the values of
// their groups and the chains over them.
#pragma once

#include "cuda/kernels/product/product.cuh"

namespace ek
{

constexpr int LEAF_UNITS = 16, SCALES = 64; // bytes of scales of a unit

template <int BITS, int LIMBS, bool FEW, int COLS = 1> struct leaf_group : group_product<BITS, LIMBS, 64> {
};

// Of one limb, where a lane's row is column 2 t, or its rows 2 t and 2 t + 1.
template <int BITS, int COLS> struct leaf_group<BITS, 1, true, COLS> {
    float i[2][COLS]; // (float)I

    __device__ __forceinline__ void run(const u32 (&a)[8], const uint4 &b, int)
    {
        constexpr float UNIT = BITS == 4 ? 0.0625f : 1;
        int d[4];
        mma_from(d, MAGIC, a, b.x, b.y), mma(d, a + 4, b.z, b.w);
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int c = 0; c < COLS; c++) i[h][c] = fma_(__int_as_float(d[h * 2 + c]), UNIT, -MAGIC_F * UNIT); // exact
    }
};

// UNITS: of a chunk, 4 or 8. TURN: panels of every turn, of which warps are a multiple; 0: any. ONCE: a block has one
// turn. EIGHT: 8 rows of one limb by chunks of 8 units.
template <int BITS, int LIMBS, int OCT, int UNITS, int TURN, bool ONCE, bool EIGHT> struct leaf_product {
    static constexpr bool FEW = UNITS == 8;
    static constexpr int HALF = 4; // EIGHT: units whose values are held at once
    static constexpr int AHEAD =
        TURN || ONCE ? 3 : 2; // FEW: units whose codes of rows are read a chunk ahead: more would not fit the registers
    static constexpr int CODE = BITS * 128, CHUNK = UNITS * (CODE + SCALES), CHUNKS = LEAF_UNITS / UNITS; // of a leaf
    static constexpr int PER = EIGHT ? 8 : FEW ? 4 : 8 / LIMBS, ROWS = OCT * PER;
    static constexpr int COLS = PER / 4, SUMS = 16 * ROWS; // rows of a lane; sums of a leaf

    // the matrices
    u64 codes, scales, codes2, scales2;
    int units, chunks, leaves, panels, turn, turns, half; // half: panels of a turn that the first matrix has
    int blocks;                                           // that share the turns
    // the warp's ring
    int lane, g, t, w, warps, stages, slot;
    u32 phase;
    uint8_t *ring;
    u64 *arrived;

    // The tasks of a warp, turn by turn: chunk c of panel j of the turn.
    struct cursor {
        int turn, j, c, panels, step_j, step_c;
    };
    cursor next; // to copy

    __device__ __forceinline__ void begin(cursor &at, int turn_number) const
    {
        for (;; turn_number += blocks) {
            at.turn = turn_number;
            if (turn_number >= turns) return;
            at.panels = TURN ? TURN : min(turn, panels - turn_number * turn);
            at.c = w / at.panels, at.j = w - at.c * at.panels;
            if (at.c < chunks) break;
            if (ONCE) {
                at.turn = turns;
                return;
            }
        }
        at.step_c = warps / at.panels, at.step_j = warps - at.step_c * at.panels;
    }

    __device__ __forceinline__ int panel_of(const cursor &at) const
    {
        if constexpr (TURN > 0) return w % TURN;
        return at.j;
    }

    // False: the turn has no more for this warp.
    __device__ __forceinline__ bool step(cursor &at) const
    {
        if constexpr (TURN > 0) {
            at.c += warps / TURN;
        } else {
            at.c += at.step_c, at.j += at.step_j;
            if (at.j >= at.panels) at.j -= at.panels, at.c++;
        }
        return at.c < chunks;
    }

    // Copies the next chunk of this warp into a slot.
    __device__ __forceinline__ void fetch(int to)
    {
        if (next.turn >= turns) return;
        const int c = next.c;
        if (lane == 0) {
            const int j = panel_of(next);
            const bool second = j >= half;
            const int some = min(UNITS, units - c * UNITS);
            const int64_t unit = (int64_t)(next.turn * half + j - (second ? half : 0)) * units + c * UNITS;
            uint8_t *at = ring + to * CHUNK;
            arrival_expect(arrived + to, some * (CODE + SCALES));
            copy_piece_once(at, (const uint8_t *)(second ? codes2 : codes) + unit * CODE, some * CODE, arrived + to);
            copy_piece_once(at + UNITS * CODE, (const uint8_t *)(second ? scales2 : scales) + unit * SCALES,
                            some * SCALES, arrived + to);
        }
        if (step(next)) return;
        if (ONCE) next.turn = turns;
        else begin(next, next.turn + blocks);
    }

    __device__ __forceinline__ void next_slot()
    {
        if (++slot == stages) slot = 0, phase ^= 1;
    }

    // What a lane reads of 8 columns for a chunk.
    struct operands {
        static constexpr int OF = EIGHT ? HALF : UNITS;
        uint4 b[OF];
        float4 x[COLS][OF / 2]; // {sx, X} of two groups
    };

    const uint8_t
        *rec[OCT]; // of the lane's column; no such row: 0, or FEW, where rows have every second one, any other
    const float4 *act[OCT][COLS];

    // {sx, X} of the units from `first` on that operands hold.
    __device__ __forceinline__ void load_groups(operands &in, int o, int first) const
    {
#pragma unroll
        for (int i = 0; i < COLS; i++)
#pragma unroll
            for (int p = 0; p < operands::OF / 2; p++) in.x[i][p] = act[o][i][first / 2 + p];
    }

    // FEW: codes of units FROM to TO behind `first`; what lies in place of those behind the last is multiplied too, and
    // not added.
    template <int FROM, int TO> __device__ __forceinline__ void load_some(operands &in, int first) const
    {
        const uint8_t *from = rec[0] + first * 64;
        const int last = units - 1 - first;
        if (last >= TO - 1) {
#pragma unroll
            for (int u = FROM; u < TO; u++) in.b[u] = *(const uint4 *)(from + u * 64);
        } else {
#pragma unroll
            for (int u = FROM; u < TO; u++) in.b[u] = *(const uint4 *)(from + min(u, last) * 64);
        }
    }

    // A chunk ahead; FEW: of AHEAD units the codes, and the rest by load_rest.
    __device__ __forceinline__ void load(operands &in, int o, int c) const
    {
        if constexpr (FEW) {
            load_some<0, AHEAD>(in, c * UNITS);
        } else {
#pragma unroll
            for (int u = 0; u < UNITS; u++) {
                in.b[u] = make_uint4(0, 0, 0, 0);
                if (rec[o] && c * UNITS + u < units) in.b[u] = *(const uint4 *)(rec[o] + (c * UNITS + u) * 64 + t * 16);
            }
            load_groups(in, o, c * UNITS);
        }
    }

    __device__ __forceinline__ void load_rest(operands &in, int c) const
    {
        load_some<AHEAD, UNITS>(in, c * UNITS);
        load_groups(in, 0, c * UNITS);
    }

    static __device__ __forceinline__ float scale_of(const operands &in, int u, int i)
    {
        return u % 2 ? in.x[i][u / 2].z : in.x[i][u / 2].x;
    }

    static __device__ __forceinline__ float sum_of(const operands &in, int u, int i)
    {
        return u % 2 ? in.x[i][u / 2].w : in.x[i][u / 2].y;
    }

    // EIGHT: of half a chunk, which has at least one unit or is not added.
    __device__ __forceinline__ void load_half(operands &in, int first) const
    {
        if (first < units) load_some<0, HALF>(in, first), load_groups(in, 0, first);
    }

    // EIGHT: as relay, half a chunk at a time.
    __device__ __forceinline__ void relay_halves(operands &in, int c, float zero, float *sums, u64 *told,
                                                 u32 told_phase, int next_c)
    {
        const uint8_t *at = ring + slot * CHUNK;
        const int some = min(UNITS, units - c * UNITS), part = c % CHUNKS;
        float *mine = sums + lane * 2;
        float2 sum[2];
        arrival_wait(arrived + slot, phase);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float value[HALF][2][COLS], sx[HALF][COLS];
#pragma unroll
            for (int u = 0; u < HALF; u++) {
                u32 code[8];
                float s[2], b[2];
                const int v = half * HALF + u;
                read_codes<BITS>(at + v * CODE + lane * 16, code);
                unit_scales(at + UNITS * CODE + v * SCALES, zero, s, b);
                leaf_group<BITS, 1, true, 2> r;
                r.run(code, in.b[u], 0);
#pragma unroll
                for (int i = 0; i < COLS; i++) {
                    sx[u][i] = scale_of(in, u, i);
#pragma unroll
                    for (int h = 0; h < 2; h++)
                        value[u][h][i] = fma_(b[h], sum_of(in, u, i), __fmul_rn(s[h], r.i[h][i]));
                }
            }
            if (half == 0) {
                load_half(in, c * UNITS + HALF);
                if (part) arrival_wait(told + part - 1, told_phase);
#pragma unroll
                for (int h = 0; h < 2; h++) sum[h] = part ? *(float2 *)(mine + h * 8 * PER) : make_float2(0, 0);
            } else {
                __syncwarp(); // all have read the slot
                if (next_c >= 0) load_half(in, next_c * UNITS);
            }
#pragma unroll
            for (int u = 0; u < HALF; u++)
                if (half * HALF + u < some)
#pragma unroll
                    for (int h = 0; h < 2; h++)
                        sum[h].x = fma_(value[u][h][0], sx[u][0], sum[h].x),
                        sum[h].y = fma_(value[u][h][COLS - 1], sx[u][COLS - 1], sum[h].y);
        }
#pragma unroll
        for (int h = 0; h < 2; h++) *(float2 *)(mine + h * 8 * PER) = sum[h];
        if (part != CHUNKS - 1 && c + 1 < chunks) arrival_tell(told + part);
        fetch(slot);
        next_slot();
    }

    // s and b' = fma(zero, s, b) of outputs g and g + 8
    __device__ __forceinline__ void unit_scales(const uint8_t *at, float zero, float (&s)[2], float (&b)[2]) const
    {
        const uint2 v = *(const uint2 *)(at + (FEW ? lane / 4 : g) * 8);
        s[0] = bits(v.x << 16), b[0] = fma_(zero, s[0], bits(v.x & 0xffff0000u));
        s[1] = bits(v.y << 16), b[1] = fma_(zero, s[1], bits(v.y & 0xffff0000u));
    }

    // The chain over chunk c of a leaf, its values first. `sums` has the chain so far and takes the result; told:
    // that a part of the leaf but the last is there, once in each turn.
    __device__ __forceinline__ void relay(operands (&in)[OCT], int c, float zero, float *sums, u64 *told,
                                          u32 told_phase, int next_c)
    {
        const uint8_t *at = ring + slot * CHUNK;
        float value[UNITS][OCT][2][COLS], sx[UNITS][OCT][COLS];
        const int some = min(UNITS, units - c * UNITS), part = c % CHUNKS;
        if (OCT > 1) // one column of 8 has room to be read ahead
#pragma unroll
            for (int o = 0; o < OCT; o++) load(in[o], o, c);
        if constexpr (FEW) load_rest(in[0], c);
        arrival_wait(arrived + slot, phase);
#pragma unroll
        for (int u = 0; u < UNITS; u++) {
            u32 code[8];
            float s[2], b[2];
            read_codes<BITS>(at + u * CODE + lane * 16, code);
            unit_scales(at + UNITS * CODE + u * SCALES, zero, s, b);
#pragma unroll
            for (int o = 0; o < OCT; o++) {
                leaf_group<BITS, LIMBS, FEW> r;
                r.run(code, in[o].b[u], 0);
#pragma unroll
                for (int i = 0; i < COLS; i++) {
                    sx[u][o][i] = scale_of(in[o], u, i);
#pragma unroll
                    for (int h = 0; h < 2; h++)
                        value[u][o][h][i] = fma_(b[h], sum_of(in[o], u, i), __fmul_rn(s[h], r.i[h][i]));
                }
            }
        }
        __syncwarp(); // all have read the slot
        if (OCT == 1 && next_c >= 0) load(in[0], 0, next_c);
        float *mine = sums + (FEW ? lane : g * PER + t * COLS);
        if (part) arrival_wait(told + part - 1, told_phase);
#pragma unroll
        for (int o = 0; o < OCT; o++)
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int i = 0; i < COLS; i++) {
                    float *place = mine + (o * 16 + h * 8) * PER + i, sum = part ? *place : 0;
#pragma unroll
                    for (int u = 0; u < UNITS; u++)
                        if (u < some) sum = fma_(value[u][o][h][i], sx[u][o][i], sum);
                    *place = sum;
                }
        if (part != CHUNKS - 1 && c + 1 < chunks) arrival_tell(told + part);
        fetch(slot);
        next_slot();
    }
};

} // namespace ek
