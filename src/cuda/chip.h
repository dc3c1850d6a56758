/* The properties of a device for the choice of kernels: its size, and the instructions that its machine code may use;
 * and the choice of that code. No bit depends on them. */
#ifndef EK_CUDA_CHIP_H
#define EK_CUDA_CHIP_H

#include <stdbool.h>
#include <stddef.h>

/* Fitted times of products, in us, all in one place so that families can be compared. Each family's `_us` combines them
 * (product/choose.c); docs/cuda/products.md and gguf.md have the measurements. No bit depends on a time.
 *
 * Fitted on two machines: units, tile and warp_64 on an H100; small, warp_own, mid and wide on an H200. */

typedef struct ek_cuda_times {
    /* factor of units and tile with activations in groups of 32 or 16 */
    struct {
        double group_32, group_16;
    } small;
    /* per weight, for up to 16 rows and each limb: with one limb, with two */
    struct {
        double weight[2];
    } units;
    /* per unit of 64 inputs of a tile, if a multiprocessor has one tile; per further tile; by limbs */
    struct {
        double alone, shared[2];
    } tile;
    /* Form F: a launch; for few rows, the weights of a cycle model (product/floats.c); per input of a tile of 64 rows
     * and 128 outputs: alone on its multiprocessor, and per further tile */
    struct {
        double launch, few, alone, shared;
    } floats;
    /* the sum of parts, and the bytes that it reads or writes per us */
    struct {
        double sum, bytes;
    } parts;
    /* a launch; per weight for 8 rows of one limb, 4 of two, 8 of two. gate, both matrices, up to 8 rows: a launch, a
     * chunk of the busiest warp, and the addition per further row; more rows: a launch, a weight per 8 rows. heads: a
     * launch with q, k and v, a weight per 8 rows, twice with two limbs */
    struct {
        double launch, weight_l1, weight_l2_4, weight_l2_8;
        double gate_launch, gate_chunk, gate_row, gates_launch, gates_weight;
        double heads_launch, heads_weight;
    } warp_64;
    /* a launch; per weight and tile of rows in groups of 16, in bytes, in nibbles; the ratio of a tile of 8 rows to one
     * of 4 if registers are scarce, by limbs */
    struct {
        double launch, weight_16, weight_8, weight_4, eight[2];
    } warp_own;
    /* a launch; per unit of a block by columns: a + b oct alone on its multiprocessor, or on a shared one; the factor
     * of groups of 32; the additions for parts and a gate */
    struct {
        double launch, alone, alone_oct, each, each_oct, half_32, sum, gate, gate_oct;
    } mid;
    /* two launches; per unit if each multiprocessor has all its tiles, and in the last wave of tiles: a + b tiles; the
     * same for short tiles; the factors of groups of 32 and of two limbs */
    struct {
        double launch, full, last, last_tile, full_short, last_short, last_tile_short, half_32, l2;
    } wide;
    /* A plain device: from how many rows on a product is computed in tiles of rows, for up to EK_CUDA_NARROW panels and
     * for more; the time of a tile by matrices divided by that of packed products, 1 if unmeasured */
    struct {
        double narrow, wide, matrices;
    } plain;
} ek_cuda_times;

extern const ek_cuda_times ek_cuda_us, ek_cuda_us_mma;

/* Families whose times the program may measure on a card (gpu/tune.c). Families by wgmma keep their fitted times. */
typedef enum ek_cuda_family {
    EK_CUDA_UNITS,
    EK_CUDA_TILE,
    EK_CUDA_WARP_64,
    EK_CUDA_WARP_OWN,
    EK_CUDA_MID,
    EK_CUDA_FLOATS_FEW,
    EK_CUDA_FLOATS_TILES,
    EK_CUDA_TILES_NARROW, /* a plain device measures only these three */
    EK_CUDA_TILES_WIDE,
    EK_CUDA_BY_MATRICES,
    EK_CUDA_FAMILIES
} ek_cuda_family;
extern const char *const ek_cuda_family_name[EK_CUDA_FAMILIES];

/* Multiplies the family's times in *t by `by`. */
void ek_cuda_times_scale(ek_cuda_times *t, ek_cuda_family family, double by);

/* The factor of units and tile with activations in groups of a_group. */
static inline double ek_cuda_small_groups(const ek_cuda_times *us, int a_group)
{
    return a_group == 64 ? 1 : a_group == 32 ? us->small.group_32 : us->small.group_16;
}

typedef struct ek_cuda_chip {
    int features; /* compute capability times ten: the device's, or less if some features must not be used */
    int multiprocessors;
    size_t shared;           /* bytes of shared memory per multiprocessor; a block takes 1024 more than it requests */
    size_t block_shared;     /* maximum that a block may request */
    bool wgmma;              /* tensor cores that read shared memory (kernels/mma.cuh) */
    bool bulk;               /* one thread copies whole pieces to shared memory */
    bool clusters;           /* blocks that write into each other's shared memory */
    bool overlap;            /* a launch may begin before the previous one has ended */
    bool plain;              /* not a CUDA device: only kernels without CUDA features (vulkan/kernels.def) */
    bool matrices;           /* a plain device with products of byte matrices (vulkan/spirv.h) */
    const ek_cuda_times *us; /* times for comparing families of products */
    bool timed;              /* the times were measured on such chips; otherwise they are guesses */
} ek_cuda_chip;

enum { EK_CUDA_NARROW = 128 };                      /* panels */
enum { EK_CUDA_PLAIN = 1, EK_CUDA_PLAIN_MATRICES }; /* capabilities of devices that are not CUDA's */

/* A chip with the features of a capability: of the nearest known one not above it. */
ek_cuda_chip ek_cuda_chip_like(int capability, int multiprocessors);

/* --- the machine code built into this program, and the choice of a device's code. Code of a capability runs on later
 * ones with the same first number (8.0 on 8.6) and on no other. No driver translates code anew, because that could
 * change bits (no PTX is built in). */

/* The modules of kernels that kernels.S embeds; none in a build without nvcc. */
typedef struct ek_cuda_module {
    const char *name;
    const void *fatbin;
    size_t bytes;
    int code;     /* the code's compute capability times ten: 80, 90; 0: any (tests) */
    int features; /* the capability whose instructions it uses; another one than code for tests of that one's kernels */
} ek_cuda_module;
extern const ek_cuda_module ek_cuda_modules[]; /* ends with name NULL */
extern const int ek_cuda_built_with;           /* version of the toolkit as 1000 major + 10 minor; 0: no kernels */

/* A device runs the modules with m->code == code and m->features == features. */
typedef struct ek_cuda_code {
    int code, features;
} ek_cuda_code;

/* Chooses the code for a device's capability; features: the capability to which it is limited, 0: none. False: there is
 * no code. */
bool ek_cuda_code_pick(ek_cuda_code *out, const ek_cuda_module *modules, int capability, int features);

/* Whether a build can have code for it (tools/make/cuda.mk, CUDA_ARCHS=all). */
bool ek_cuda_code_exists(int capability);

/* "8.0 to 8.9 and 9.0": the capabilities on which the modules run. */
void ek_cuda_code_text(char *out, size_t size, const ek_cuda_module *modules);

#endif
