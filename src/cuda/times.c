#include "cuda/chip.h"

/* The same for all chips. Measured by `device choice`, `device planes` and `device floats`; for a gate, the faster way
 * in whole steps of 1, 4 and 8 rows. */
#define COMMON                                                                                                    \
    .small = {.group_32 = 1.45, .group_16 = 2.4}, .units = {.weight = {0.82e-6, 0.52e-6}},                        \
    .tile = {.alone = 0.72, .shared = {0.63, 0.51}},                                                              \
    .floats = {.launch = 3, .few = 0.00051, .alone = 0.045, .shared = 0.05}, .parts = {.sum = 4, .bytes = 2.5e6}, \
    .warp_64 = {.launch = 2,                                                                                      \
                .weight_l1 = 0.24e-6,                                                                             \
                .weight_l2_4 = 0.2e-6,                                                                            \
                .weight_l2_8 = 0.34e-6,                                                                           \
                .gate_launch = 0.4,                                                                               \
                .gate_chunk = 0.9,                                                                                \
                .gate_row = 0.066,                                                                                \
                .gates_launch = 4.5,                                                                              \
                .gates_weight = 0.28e-6,                                                                          \
                .heads_launch = 2.5,                                                                              \
                .heads_weight = 0.24e-6},                                                                         \
    .plain = {.narrow = 16, .wide = 16, .matrices = 1},                                                           \
    .warp_own = {.launch = 3, .weight_16 = 0.5e-6, .weight_8 = 0.36e-6, .weight_4 = 0.28e-6, .eight = {1.6, 2}},
#define MID(...) .mid = {.launch = 1, .half_32 = 1.5, .sum = 1.5, .gate = 1, .gate_oct = 0.7, __VA_ARGS__}

const ek_cuda_times ek_cuda_us = {
    COMMON MID(.alone = 0.2, .alone_oct = 0.05, .each = 0.04, .each_oct = 0.07),
    .wide = {.launch = 8,
             .full = 1.22,
             .last = 0.3,
             .last_tile = 0.31,
             .full_short = 0.9,
             .last_short = 0.25,
             .last_tile_short = 0.165,
             .half_32 = 1.5,
             .l2 = 0.7},
};

/* For chips without wgmma, where narrow tiles read their rows into registers. These are guesses until such a device is
 * timed. */
const ek_cuda_times ek_cuda_us_mma = {
    COMMON MID(.alone = 0.25, .alone_oct = 0.08, .each = 0.06, .each_oct = 0.11),
};

const char *const ek_cuda_family_name[EK_CUDA_FAMILIES] = {
    "units", "tile", "warp-64", "warp-own", "mid", "floats-few", "floats-tiles", "narrow", "wide", "matrices"};

static void scale(double *const *us, double by)
{
    for (; *us; us++) **us *= by;
}

void ek_cuda_times_scale(ek_cuda_times *t, ek_cuda_family family, double by)
{
#define ALL(...)                 \
    (double *const[])            \
    {                            \
        __VA_ARGS__, (double *)0 \
    }
    switch (family) {
    case EK_CUDA_UNITS: scale(ALL(&t->units.weight[0], &t->units.weight[1]), by); break;
    case EK_CUDA_TILE: scale(ALL(&t->tile.alone, &t->tile.shared[0], &t->tile.shared[1]), by); break;
    case EK_CUDA_WARP_64:
        scale(ALL(&t->warp_64.launch, &t->warp_64.weight_l1, &t->warp_64.weight_l2_4, &t->warp_64.weight_l2_8,
                  &t->warp_64.gate_launch, &t->warp_64.gate_chunk, &t->warp_64.gate_row, &t->warp_64.gates_launch,
                  &t->warp_64.gates_weight, &t->warp_64.heads_launch, &t->warp_64.heads_weight),
              by);
        break;
    case EK_CUDA_WARP_OWN:
        scale(ALL(&t->warp_own.launch, &t->warp_own.weight_16, &t->warp_own.weight_8, &t->warp_own.weight_4), by);
        break;
    case EK_CUDA_MID:
        scale(ALL(&t->mid.launch, &t->mid.alone, &t->mid.alone_oct, &t->mid.each, &t->mid.each_oct, &t->mid.sum,
                  &t->mid.gate, &t->mid.gate_oct),
              by);
        break;
    case EK_CUDA_FLOATS_FEW: scale(ALL(&t->floats.few), by); break;
    case EK_CUDA_FLOATS_TILES: scale(ALL(&t->floats.launch, &t->floats.alone, &t->floats.shared), by); break;
    case EK_CUDA_TILES_NARROW: t->plain.narrow *= by; break;
    case EK_CUDA_TILES_WIDE: t->plain.wide *= by; break;
    case EK_CUDA_BY_MATRICES: t->plain.matrices *= by; break;
    case EK_CUDA_FAMILIES: break;
    }
#undef ALL
}
