// A warp's part of products of few rows (warp.cuh): the values of the groups of its chunks (warp_tasks.cuh), and the
// chains over them.
#pragma once

#include "cuda/kernels/product/warp_tasks.cuh"

namespace ek
{

// COLS 1, or EVEN: with one limb, a lane's row is column 2 t; otherwise its rows are 2 t and 2 t + 1, in groups of 64.
template <int BITS, int LIMBS, int A, bool EVEN, int COLS> struct warp_group : group_product<BITS, LIMBS, A> {
};

template <int BITS, int COLS> struct warp_group<BITS, 1, 64, true, COLS> {
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

template <int LIMBS, int ROWS> constexpr int WARP_OCTETS = LIMBS == 2 && ROWS == 8 ? 2 : 1;

// A pointer, or its number, which takes other registers.
template <bool NUMBER, class T> struct address {
    typedef const T *type;
};

template <class T> struct address<true, T> {
    typedef u64 type;
};

// F: the weights (format.cuh), ROWS: 4 or 8. SHARE: panels of every share, of which warps are a multiple; 0: any. ONCE:
// a block has one share.
template <class F, int LIMBS, int ROWS, int SHARE, bool ONCE>
struct warp_product : warp_tasks<F, WARP_OCTETS<LIMBS, ROWS>, SHARE, ONCE> {
    static constexpr int OCT = WARP_OCTETS<LIMBS, ROWS>; // times 8 columns
    typedef warp_tasks<F, OCT, SHARE, ONCE> tasks;
    using tasks::COPIES, tasks::TIGHT, tasks::AGAIN_LANE;
    using tasks::fetch, tasks::lane_again;
    using tasks::units, tasks::groups, tasks::chunks, tasks::lane, tasks::g, tasks::t, tasks::slots, tasks::slot,
        tasks::phase, tasks::ring, tasks::arrived;
    static constexpr int PER = ROWS / OCT,
                         COLS = PER / 4;   // rows of 8 columns, of a lane
    static constexpr int SUMS = 16 * ROWS; // of a leaf
    static constexpr bool LARGE = F::A == 64 && F::UNITS == 8, HALVES = LARGE && ROWS == 8;
    static constexpr int HALF = 4; // HALVES: units whose values are held at once
    static constexpr bool PACKED = TIGHT && ROWS == 8;
    // LARGE: units whose codes of rows are read a chunk ahead; more would not fit the registers
    static constexpr int UNITS_AHEAD = !COPIES && !TIGHT && (SHARE || ONCE) ? 3 : 2;
    // LARGE: units whose codes are read before the wait for the chunk; the others are read after two of its units
    static constexpr int UNITS_FIRST = (TIGHT && SHARE) || (COPIES && ONCE) ? 6 : F::UNITS;
    // Rows are read a chunk ahead, if there are registers for it; ANY: an absent row is replaced by any other
    static constexpr bool AHEAD = F::A == 64 ? OCT == 1
                                             : ROWS == 4 && !F::BIASED && (!(COPIES || TIGHT) || F::KIND != SCALES_F32),
                          ANY = LARGE || (F::A != 64 && (AHEAD || (COPIES && F::BIASED && ROWS == 4)));
    // In smaller groups two columns of 8 are processed one after the other, and scales of rows read twice, for the same
    // reason
    static constexpr int AT_ONCE = F::A == 64 ? OCT : 1;
    static constexpr bool AGAIN =
        F::A != 64 && ROWS == 8
            ? F::BIASED ? COPIES || LIMBS == 2 || F::KIND == SCALES_F32 : COPIES || (F::A == 16 && LIMBS == 2)
            : (COPIES || (TIGHT && (SHARE || OCT == 2 || (F::BIASED && F::KIND == SCALES_F32 && LIMBS == 1)))) &&
                  !HALVES && !(ROWS == 4 && F::BIASED && F::A == 32 && F::KIND != SCALES_F32);

    __device__ __forceinline__ int part_again() const
    {
        return TIGHT && ROWS == 4 ? lane_again() % 4 : t;
    }

    __device__ __forceinline__ int slot_now() const
    {
        return PACKED ? slot & 0xffff : slot;
    }

    __device__ __forceinline__ u32 phase_now() const
    {
        return PACKED ? (u32)slot >> 16 : phase;
    }

    __device__ __forceinline__ void next_slot()
    {
        if (!PACKED) {
            if (++slot == slots) slot = 0, phase ^= 1;
        } else {
            slot++;
            if ((slot & 0xffff) == slots) slot = (slot & 0x10000) ^ 0x10000;
        }
    }

    // A lane's reads of 8 columns for a chunk, or for half of one.
    struct operands {
        static constexpr int UNITS = HALVES ? HALF : F::UNITS, GROUPS = UNITS * F::SUB;
        uint4 b[UNITS];
        float4 x[COLS][GROUPS / 2]; // {sx, X} of two groups

        __device__ __forceinline__ float scale(int group, int i) const
        {
            return group % 2 ? x[i][group / 2].z : x[i][group / 2].x;
        }

        __device__ __forceinline__ float sum(int group, int i) const
        {
            return group % 2 ? x[i][group / 2].w : x[i][group / 2].y;
        }
    };

    // of the lane's column (LARGE: where the lane reads); absent row: 0, or with ANY any other
    typedef typename address<TIGHT, uint8_t>::type codes_at;
    typedef typename address<TIGHT, float4>::type groups_at;
    codes_at rec[OCT];
    groups_at act[OCT][COLS];

    static __device__ __forceinline__ void load_unit(uint4 &to, const uint8_t *from)
    {
        if (F::A == 64) to = *(const uint4 *)from;
        else if (F::A == 32) {
            const uint2 v = *(const uint2 *)from, w = *(const uint2 *)(from + 32);
            to = make_uint4(v.x, v.y, w.x, w.y);
        } else
            to = make_uint4(*(const u32 *)from, *(const u32 *)(from + 16), *(const u32 *)(from + 32),
                            *(const u32 *)(from + 48));
    }

    // {sx, X} of the groups from `first` on that operands hold.
    __device__ __forceinline__ void load_groups(operands &in, int o, int first) const
    {
#pragma unroll
        for (int i = 0; i < COLS; i++)
#pragma unroll
            for (int p = 0; p < operands::GROUPS / 2; p++) in.x[i][p] = ((const float4 *)act[o][i])[first / 2 + p];
    }

    // Codes of units FROM to TO after `first`; units beyond the last are multiplied too, and not added.
    template <int FROM, int TO> __device__ __forceinline__ void load_some(operands &in, int first) const
    {
        const uint8_t *from = (const uint8_t *)rec[0] + first * 64;
        const int last = units - 1 - first;
        if (last >= TO - 1) {
#pragma unroll
            for (int u = FROM; u < TO; u++) load_unit(in.b[u], from + u * 64);
        } else {
#pragma unroll
            for (int u = FROM; u < TO; u++) load_unit(in.b[u], from + min(u, last) * 64);
        }
    }

    // HALVES: for half a chunk, which has at least one unit or is not added.
    __device__ __forceinline__ void load_half(operands &in, int first) const
    {
        if (first < units) load_some<0, HALF>(in, first), load_groups(in, 0, first);
    }

    // LARGE: the codes of UNITS_AHEAD units; load_rest reads the rest. Conditions keep few loads in flight if registers
    // are scarce.
    __device__ __forceinline__ void load(operands &in, int o, int c) const
    {
        const int first = c * F::UNITS;
        if constexpr (LARGE) {
            load_some<0, UNITS_AHEAD>(in, first);
            return;
        }
        const uint8_t *const from = (const uint8_t *)rec[o] + first * 64 + part_again() * (F::A / 4);
        if (ANY && first + F::UNITS <= units) {
#pragma unroll
            for (int u = 0; u < F::UNITS; u++) load_unit(in.b[u], from + u * 64);
        } else {
#pragma unroll
            for (int u = 0; u < F::UNITS; u++) {
                in.b[u] = make_uint4(0, 0, 0, 0);
                if ((ANY || rec[o]) && first + u < units)
                    load_unit(in.b[u], (const uint8_t *)rec[o] + (first + u) * 64 + part_again() * (F::A / 4));
            }
        }
        load_groups(in, o, c * F::GROUPS);
    }

    __device__ __forceinline__ void load_rest(operands &in, int c) const
    {
        load_some<UNITS_AHEAD, UNITS_FIRST>(in, c * F::UNITS);
        load_groups(in, 0, c * F::GROUPS);
    }

    // The place of a lane's sums of a leaf.
    __device__ __forceinline__ float *sums_of(float *leaf) const
    {
        if (AGAIN_LANE) return leaf + lane_again() / 4 * PER + lane_again() % 4 * COLS;
        return leaf + (LARGE ? lane * COLS : g * PER + t * COLS);
    }

    // Values of group n of unit u, which `at` has, for columns of 8 from `o` on.
    template <class V, class S>
    __device__ __forceinline__ void multiply(const operands &in, const u32 (&code)[8], const uint8_t *scales, int unit,
                                             int sub, int group, float zero, V &value, S &sx) const
    {
        float s[2], b[2];
        F::read(scales, zero, s, b);
        warp_group<F::BITS, LIMBS, F::A, LARGE, COLS> r;
        r.run(code, in.b[unit], sub);
#pragma unroll
        for (int i = 0; i < COLS; i++) {
            if (!AGAIN) sx[i] = in.scale(group, i);
#pragma unroll
            for (int h = 0; h < 2; h++) value[h][i] = group_value(s[h], b[h], r.i[h][i], in.sum(group, i), F::BIASED);
        }
    }

    // The chain over chunk c of a leaf, after its values. `leaf` has the chain so far and receives the result; summed:
    // signals that a part of the leaf, except the last, is complete, once per share.
    __device__ __forceinline__ void relay(operands (&in)[AT_ONCE], int c, float zero, float *leaf, u64 *summed,
                                          u32 summed_phase, int next_c)
    {
        const uint8_t *at = ring + slot_now() * F::CHUNK;
        float value[F::GROUPS][OCT][2][COLS], sx[F::GROUPS][OCT][COLS];
        const int some = min(F::GROUPS, groups - c * F::GROUPS), part = c % F::LEAF;
        if (AT_ONCE > 1) // one column of 8 has room to be read ahead
#pragma unroll
            for (int o = 0; o < AT_ONCE; o++) load(in[o], o, c);
        if constexpr (LARGE) load_rest(in[0], c);
        arrival_wait(arrived + slot_now(), phase_now());
#pragma unroll
        for (int first = 0; first < OCT; first += AT_ONCE) {
            if (AT_ONCE == 1 && !AHEAD) load(in[0], first, c);
#pragma unroll
            for (int u = 0; u < F::UNITS; u++) {
                u32 code[8];
                if constexpr (UNITS_FIRST < F::UNITS)
                    if (u == 2) load_some<UNITS_FIRST, F::UNITS>(in[0], c * F::UNITS);
                read_codes<F::BITS>(at + u * F::CODE + lane * 16, code);
#pragma unroll
                for (int sub = 0; sub < F::SUB; sub++) {
                    const int n = u * F::SUB + sub;
                    const uint8_t *scales = at + F::CODES + n * F::SCALE + (LARGE ? lane / 4 : g) * F::LANE;
#pragma unroll
                    for (int o = first; o < first + AT_ONCE; o++)
                        multiply(in[o - first], code, scales, u, sub, n, zero, value[n][o], sx[n][o]);
                }
            }
        }
        __syncwarp(); // all have read the slot
        if (AHEAD && next_c >= 0) load(in[0], 0, next_c);
        float *mine = sums_of(leaf);
        if (part) arrival_wait(summed + part - 1, summed_phase);
        if (AGAIN)
#pragma unroll
            for (int o = 0; o < OCT; o++)
#pragma unroll
                for (int i = 0; i < COLS; i++)
#pragma unroll
                    for (int n = 0; n < F::GROUPS; n += 2) {
                        const float4 x = ((const float4 *)act[o][i])[c * (F::GROUPS / 2) + n / 2];
                        sx[n][o][i] = x.x, sx[n + 1][o][i] = x.z;
                    }
#pragma unroll
        for (int o = 0; o < OCT; o++)
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int i = 0; i < COLS; i++) {
                    float *place = mine + (o * 16 + h * 8) * PER + i, sum = part ? *place : 0;
                    if (AHEAD && F::A == 32 && some == F::GROUPS) {
#pragma unroll
                        for (int n = 0; n < F::GROUPS; n++) sum = fma_(value[n][o][h][i], sx[n][o][i], sum);
                    } else {
#pragma unroll
                        for (int n = 0; n < F::GROUPS; n++)
                            if (n < some) sum = fma_(value[n][o][h][i], sx[n][o][i], sum);
                    }
                    *place = sum;
                }
        end(c, part, summed);
    }

    __device__ __forceinline__ void end(int c, int part, u64 *summed)
    {
        if (part != F::LEAF - 1 && c + 1 < chunks) arrival_tell(summed + part);
        fetch(slot_now());
        next_slot();
    }

    // HALVES: like relay, half a chunk at a time.
    __device__ __forceinline__ void relay_halves(operands &in, int c, float zero, float *leaf, u64 *summed,
                                                 u32 summed_phase, int next_c)
    {
        const uint8_t *at = ring + slot_now() * F::CHUNK;
        const int some = min(F::UNITS, units - c * F::UNITS), part = c % F::LEAF;
        float *mine = sums_of(leaf);
        float2 sum[2];
        arrival_wait(arrived + slot_now(), phase_now());
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float value[HALF][2][COLS], sx[HALF][COLS];
#pragma unroll
            for (int u = 0; u < HALF; u++) {
                u32 code[8];
                const int v = half * HALF + u;
                read_codes<F::BITS>(at + v * F::CODE + lane * 16, code);
                multiply(in, code, at + F::CODES + v * F::SCALE + lane / 4 * F::LANE, u, 0, u, zero, value[u], sx[u]);
            }
            if (half == 0) {
                load_half(in, c * F::UNITS + HALF);
                if (part) arrival_wait(summed + part - 1, summed_phase);
#pragma unroll
                for (int h = 0; h < 2; h++) sum[h] = part ? *(float2 *)(mine + h * 8 * PER) : make_float2(0, 0);
            } else {
                __syncwarp(); // all have read the slot
                if (next_c >= 0) load_half(in, next_c * F::UNITS);
            }
#pragma unroll
            for (int u = 0; u < HALF; u++)
                if (half * HALF + u < some)
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        sum[h].x = fma_(value[u][h][0], sx[u][0], sum[h].x);
                        sum[h].y = fma_(value[u][h][COLS - 1], sx[u][COLS - 1], sum[h].y);
                    }
        }
#pragma unroll
        for (int h = 0; h < 2; h++) *(float2 *)(mine + h * 8 * PER) = sum[h];
        end(c, part, summed);
    }
};

} // namespace ek
