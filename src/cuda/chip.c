#include "cuda/chip.h"

#include <stdio.h>

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

/* CUDA C++ Programming Guide, "Compute Capabilities": shared memory of a multiprocessor; a block may have 1 KB less.
 * For 12.x clusters are not used, because their speed was never measured there. */
static const struct {
    int capability, shared_kb;
    bool wgmma, bulk, clusters, overlap;
} known[] = {
    {EK_CUDA_PLAIN, 48, false, false, false, false},
    {EK_CUDA_PLAIN_MATRICES, 48, false, false, false, false},
    {80, 164, false, false, false, false},
    {86, 100, false, false, false, false},
    {87, 164, false, false, false, false},
    {88, 100, false, false, false, false},
    {89, 100, false, false, false, false},
    {90, 228, true, true, true, true},
    {100, 228, false, true, true, true},
    {120, 100, false, true, false, true},
};

ek_cuda_chip ek_cuda_chip_like(int capability, int multiprocessors)
{
    enum { CUDA = 2 }; /* the first attribute that belongs to CUDA */
    size_t at = capability == EK_CUDA_PLAIN ? 0 : capability == EK_CUDA_PLAIN_MATRICES ? 1 : CUDA;
    for (size_t i = CUDA + 1; i < sizeof known / sizeof *known; i++)
        if (known[i].capability <= capability) at = i;
    const size_t shared = (size_t)known[at].shared_kb << 10;
    return (ek_cuda_chip){.features = known[at].capability,
                          .multiprocessors = multiprocessors,
                          .shared = shared,
                          .block_shared = shared - 1024,
                          .wgmma = known[at].wgmma,
                          .bulk = known[at].bulk,
                          .clusters = known[at].clusters,
                          .overlap = known[at].overlap,
                          .plain = at < CUDA,
                          .matrices = known[at].capability == EK_CUDA_PLAIN_MATRICES,
                          .us = known[at].wgmma ? &ek_cuda_us : &ek_cuda_us_mma,
                          .timed = known[at].wgmma};
}

/* --- machine code */

enum { MAX_CODES = 16 };

/* Whether machine code for `code` runs on a device of that capability. */
static bool runs(int code, int capability)
{
    return code == 0 || (code / 10 == capability / 10 && code <= capability);
}

bool ek_cuda_code_pick(ek_cuda_code *out, const ek_cuda_module *modules, int capability, int features)
{
    bool found = false;
    for (const ek_cuda_module *m = modules; m->name; m++) {
        const bool keeps = features ? runs(m->features, features) : m->features == m->code;
        if (!runs(m->code, capability) || !keeps) continue;
        const bool better = !found || m->code > out->code || (m->code == out->code && m->features > out->features);
        if (better) *out = (ek_cuda_code){m->code, m->features};
        found = true;
    }
    return found;
}

bool ek_cuda_code_exists(int capability)
{
    const int major = capability / 10;
    return major == 8 || capability == 90 || major == 10 || major == 12;
}

void ek_cuda_code_text(char *out, size_t size, const ek_cuda_module *modules)
{
    int code[MAX_CODES], n = 0;
    for (const ek_cuda_module *m = modules; m->name; m++) {
        int at = 0;
        while (at < n && code[at] < m->code) at++;
        if (m->features != m->code || (at < n && code[at] == m->code) || n == MAX_CODES) continue;
        for (int i = n++; i > at; i--) code[i] = code[i - 1];
        code[at] = m->code;
    }
    size_t used = 0;
    snprintf(out, size, "none");
    for (int i = 0; i < n && used < size; i++) {
        const int major = code[i] / 10, minor = code[i] % 10;
        if (i && code[i - 1] / 10 == major) continue; /* of one major number only the lowest is named */
        bool last = true;
        for (int k = i + 1; k < n; k++) last &= code[k] / 10 == major;
        char later[32] = "";
        if (major != 9)
            snprintf(later, sizeof later, " to %d.9", major); /* code for 9.0a runs on no other capability */
        used += (size_t)snprintf(out + used, size - used, "%s%d.%d%s",
                                 !used  ? ""
                                 : last ? " and "
                                        : ", ",
                                 major, minor, later);
    }
}
