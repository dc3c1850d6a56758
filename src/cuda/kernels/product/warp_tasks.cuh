// The assignment of panels' chunks to warps in products of few rows (warp.cuh), share by share, and their copies into a
// warp's ring of slots, ahead of the computation in warp_chunk.cuh.
#pragma once

#include "cuda/kernels/product/format.cuh"

namespace ek
{

// F: the weights (format.cuh), OCT: times 8 columns. SHARE, ONCE: as in warp_chunk.cuh.
template <class F, int OCT, int SHARE, bool ONCE> struct warp_tasks {
    // A warp that copies by itself has fewer registers for other values
    static constexpr bool COPIES = !EK_HAS_BULK;
    // For 10.0 and 12.0 the same code takes more registers than for 9.0a, so values are recomputed where possible
    static constexpr bool TIGHT = !COPIES && !EK_HAS_WGMMA, AGAIN_LANE = TIGHT && (F::A == 64 ? OCT == 1 : F::BIASED);

    const ek_cuda_warp_args &p; // read at each use, instead of kept in registers
    u64 skip;                   // of an expert
    int units, groups, chunks, leaves, panels, share, shares,
        half;   // half: panels of a share that the first matrix has
    int blocks; // blocks among which the shares are divided
    // the warp's ring, and the slot that it reads next; warp_product::PACKED: the phase is its bit 16
    int lane, g, t, w, warps, slots, slot;
    u32 phase;
    uint8_t *ring;
    u64 *arrived;

    // The tasks of a warp, share by share: chunk c of the share's panel j.
    struct cursor {
        int share, j, c, panels, step_j, step_c;
    };
    // The next task to copy: in smaller groups by its number, c * panels + j, because registers are scarcer than
    // divisions. TIGHT: also the steps of the added tasks.
    static constexpr bool NUMBERED = F::A != 64 || (TIGHT && !SHARE && !ONCE);
    cursor next;
    int next_share, next_task;

    __device__ __forceinline__ int panels_of(int share_number) const
    {
        return SHARE ? SHARE : min(share, panels - share_number * share);
    }

    // The first share from this one on with a task for the warp.
    __device__ __forceinline__ int share_from(int share_number) const
    {
        while (share_number < shares && w >= panels_of(share_number) * chunks) share_number += blocks;
        return share_number;
    }

    __device__ __forceinline__ void begin(cursor &at, int share_number) const
    {
        if (NUMBERED) share_number = share_from(share_number);
        for (;; share_number += blocks) {
            at.share = share_number;
            if (share_number >= shares) return;
            at.panels = panels_of(share_number);
            at.c = w / at.panels, at.j = w - at.c * at.panels;
            if (NUMBERED || at.c < chunks) break;
            if (ONCE) {
                at.share = shares;
                return;
            }
        }
        at.step_c = warps / at.panels, at.step_j = warps - at.step_c * at.panels;
    }

    __device__ __forceinline__ int panel_of(const cursor &at) const
    {
        if constexpr (SHARE > 0) return w % SHARE;
        return at.j;
    }

    // False: the share has no more tasks for this warp.
    __device__ __forceinline__ bool step(cursor &at) const
    {
        if constexpr (SHARE > 0) {
            at.c += warps / SHARE;
        } else if (NUMBERED && TIGHT) {
            at.c = small_quotient(at.c * at.panels + at.j + warps, at.panels, &at.j);
        } else {
            at.c += at.step_c, at.j += at.step_j;
            if (at.j >= at.panels) at.j -= at.panels, at.c++;
        }
        return at.c < chunks;
    }

    __device__ __forceinline__ void copy_from(const cursor &at)
    {
        if (NUMBERED) next_share = at.share, next_task = w;
        else next = at;
    }

    // Copies the next chunk of this warp into a slot.
    __device__ __forceinline__ void fetch(int to)
    {
        if constexpr (NUMBERED) {
            if (next_share >= shares) return;
            const int n = panels_of(next_share);
            if (copies_here(lane_again())) {
                int j;
                const int c = small_quotient(next_task, n, &j);
                copy_chunk(next_share, c, j, to);
            }
            next_task += warps;
            if (next_task >= n * chunks) next_share = share_from(next_share + blocks), next_task = w;
        } else {
            if (next.share >= shares) return;
            const int c = next.c;
            if (copies_here(lane_again())) copy_chunk(next.share, c, panel_of(next), to);
            if (step(next)) return;
            if (ONCE) next.share = shares;
            else begin(next, next.share + blocks);
        }
    }

    __device__ __forceinline__ void copy_chunk(int share_number, int c, int j, int to) const
    {
        const int unit = c * F::UNITS, group = c * F::GROUPS;
        const bool second = j >= half, other = second || (F::A != 64 && blockIdx.z);
        const int64_t panel = share_number * half + j - (second ? half : 0);
        const u32 n_codes = min(F::UNITS, units - unit) * F::CODE, n_scales = min(F::GROUPS, groups - group) * F::SCALE;
        const u64 codes = (other ? p.codes2 : p.a.codes) + skip, scales = (other ? p.scales2 : p.a.scales) + skip;
        uint8_t *at = ring + to * F::CHUNK;
        arrival_expect(arrived + to, n_codes + n_scales);
        copy<F::A == 64>(at, codes + (panel * units + unit) * F::CODE, n_codes, to);
        copy<F::A == 64>(at + F::CODES, scales + (panel * groups + group) * F::SCALE, n_scales, to);
        arrival_of_copies(arrived + to);
    }

    template <bool FOR_ONE> __device__ __forceinline__ void copy(uint8_t *at, u64 from, u32 bytes, int to) const
    {
        if (FOR_ONE) copy_piece_once(at, (const uint8_t *)from, bytes, arrived + to);
        else copy_piece(at, (const uint8_t *)from, bytes, arrived + to);
    }

    __device__ __forceinline__ int lane_again() const
    {
        return AGAIN_LANE ? thread_again() % 32 : lane;
    }
};

} // namespace ek
