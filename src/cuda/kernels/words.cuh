// Words that devices send each other, a number beside each (cuda/words_args.h).
#pragma once

#include "cuda/words_args.h"
#include "cuda/kernels/row.cuh"

namespace ek
{

// In front of wait_for_previous, too: the copy that brought the step's ended before the step's first kernel began. Past
// the cache, which may have the step before.
__device__ __forceinline__ u32 number_of(const ek_cuda_words &w)
{
    return (u32)load_word((const u64 *)w.step) * (u32)EK_CUDA_EXCHANGES + (u32)w.index;
}

__device__ __forceinline__ void send(const ek_cuda_words &w, int64_t at, u32 v, u32 number)
{
    for (int r = 0; r < w.ranks; r++)
        if (r != w.rank) store_word((u64 *)w.at[r] + at, (u64)number << 32 | v);
}

__device__ __forceinline__ u64 *landing(const ek_cuda_words &w, int64_t at)
{
    return (u64 *)w.at[w.rank] + at;
}

// The word there, of which a first reading is v. Where a device does not send it, or is said not to, any.
__device__ __forceinline__ u32 await(const ek_cuda_words &w, const u64 *from, u64 v, u32 number)
{
    constexpr int READINGS = 64; // between looks at the clock
    if ((u32)(v >> 32) == number) return (u32)v;
    u32 *const lost = &((ek_cuda_exchange_control *)w.control)->lost;
    const u64 begun = nanoseconds();
    for (;;) {
        for (int i = 0; i < READINGS; i++) {
            v = load_word(from);
            if ((u32)(v >> 32) == number) return (u32)v;
        }
        if (load_system(lost)) return (u32)v;
        const bool passed = (int)((u32)(v >> 32) - number) > 0; // who sends gave up and went on
        if (passed || nanoseconds() - begun > w.limit) store_system(lost, 1u);
    }
}

// Row r: what is here of it goes to all, and then the rest comes; false: that another launch does. sends: this block
// does so.
__device__ __forceinline__ bool gather(stage_row &row, const ek_cuda_words &w, const ek_cuda_words_rows &of,
                                       const float *own, int r, bool sends, u32 number)
{
    const int64_t place = of.place + (int64_t)r * of.n;
    u64 v[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int e = stage_row::first() + i * 16;
        row.v[i] = e >= of.first && e < of.first + of.here ? own[e] : 0;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int e = stage_row::first() + i * 16;
        if (sends && w.half != EK_CUDA_TAKE && e >= of.first && e < of.first + of.here)
            send(w, place + e, __float_as_uint(row.v[i]), number);
    }
    if (w.half == EK_CUDA_PUT) return false;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int e = stage_row::first() + i * 16;
        const bool comes = e < of.n && (e < of.first || e >= of.first + of.here);
        v[i] = comes ? load_word(landing(w, place + e)) : 0;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int e = stage_row::first() + i * 16;
        if (e < of.n && (e < of.first || e >= of.first + of.here))
            row.v[i] = __uint_as_float(await(w, landing(w, place + e), v[i], number));
    }
    return true;
}

} // namespace ek
