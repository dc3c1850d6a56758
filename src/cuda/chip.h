/* What the choice of kernels must know of a device: how large it is, and which instructions its machine code may have.
 * No bit depends on it. */
#ifndef EK_CUDA_CHIP_H
#define EK_CUDA_CHIP_H

#include <stdbool.h>
#include <stddef.h>

/* Fitted times of products, in us: all of them, for what compares them must read them side by side. Each family's
 * `_us` puts them together (product/choose.c); docs/cuda/products.md and gguf.md have the measurements. No bit depends
 * on a time.
 *
 * Fitted on two machines: units, tile and warp_64 on an H100, small, warp_own, mid and wide on an H200. */

typedef struct ek_cuda_times {
    /* units and tile with activations in groups of 32 or 16 take so many times as long */
    struct {
        double group_32, group_16;
    } small;
    /* a weight, for up to 16 rows and each limb: with one limb, with two */
    struct {
        double weight[2];
    } units;
    /* a tile's unit of 64 inputs, where a multiprocessor has one tile; for each of more, by limbs */
    struct {
        double alone, shared[2];
    } tile;
    /* Form F: a launch; of few rows what a cycle takes (product/floats.c); an
     * input of a tile of 64 rows and 128 outputs, alone on its multiprocessor, and for each of more */
    struct {
        double launch, few, alone, shared;
    } floats;
    /* what the sum of parts takes, and bytes that it reads or writes in a us */
    struct {
        double sum, bytes;
    } parts;
    /* a launch; a weight for 8 rows of one limb, 4 of two, 8 of two. gate: of both matrices, 8 rows and fewer: a
     * launch, a chunk of the warp that has most, and what each further row adds to it; more: a launch, a weight for 8
     * rows. heads: a launch with q, k and v, a weight for 8 rows, of two limbs twice */
    struct {
        double launch, weight_l1, weight_l2_4, weight_l2_8;
        double gate_launch, gate_chunk, gate_row, gates_launch, gates_weight;
        double heads_launch, heads_weight;
    } warp_64;
    /* a launch; a weight for each tile of rows in groups of 16, in bytes, in nibbles; how many times as long a tile of
     * 8 rows takes as one of 4 where registers are few, by limbs */
    struct {
        double launch, weight_16, weight_8, weight_4, eight[2];
    } warp_own;
    /* a launch; a block's unit by columns: a + b oct alone on its multiprocessor, or so much of a shared one; in groups
     * of 32 so many times as long; what parts and a gate add */
    struct {
        double launch, alone, alone_oct, each, each_oct, half_32, sum, gate, gate_oct;
    } mid;
    /* two launches; a unit where each multiprocessor has all its tiles, and in the last wave of tiles: a + b tiles of
     * one; the same of short tiles; groups of 32 and two limbs so many times as long */
    struct {
        double launch, full, last, last_tile, full_short, last_short, last_tile_short, half_32, l2;
    } wide;
} ek_cuda_times;

extern const ek_cuda_times ek_cuda_us, ek_cuda_us_mma;

/* Families whose times a card may measure for itself (gpu/tune.c); those by wgmma are fitted. */
typedef enum ek_cuda_family {
    EK_CUDA_UNITS,
    EK_CUDA_TILE,
    EK_CUDA_WARP_64,
    EK_CUDA_WARP_OWN,
    EK_CUDA_MID,
    EK_CUDA_FLOATS_FEW,
    EK_CUDA_FLOATS_TILES,
    EK_CUDA_FAMILIES
} ek_cuda_family;
extern const char *const ek_cuda_family_name[EK_CUDA_FAMILIES];

/* The family takes `by` times as long as *t said. */
void ek_cuda_times_scale(ek_cuda_times *t, ek_cuda_family family, double by);

/* How much longer units and tile take with activations in groups of that many. */
static inline double ek_cuda_small_groups(const ek_cuda_times *us, int a_group)
{
    return a_group == 64 ? 1 : a_group == 32 ? us->small.group_32 : us->small.group_16;
}

typedef struct ek_cuda_chip {
    int features; /* compute capability, ten times: that of the device, or less if it is to do without some */
    int multiprocessors;
    size_t shared; /* bytes of shared memory of a multiprocessor, of which a block takes 1024 more than it asks for */
    size_t block_shared;     /* and may ask for, at most */
    bool wgmma;              /* tensor cores that read shared memory (kernels/mma.cuh) */
    bool bulk;               /* copies of whole pieces to shared memory by one thread */
    bool clusters;           /* blocks that write into each other's shared memory */
    bool overlap;            /* a launch may begin before the one in front has ended */
    bool plain;              /* no CUDA device: only kernels that need nothing of one (vulkan/kernels.def) */
    bool matrices;           /* a plain one with products of matrices of bytes (vulkan/matrices.h) */
    const ek_cuda_times *us; /* by which families of products are compared (cuda/chip.h) */
    bool timed;              /* they were measured on such chips, else they are guesses */
} ek_cuda_chip;

enum { EK_CUDA_PLAIN = 1, EK_CUDA_PLAIN_MATRICES }; /* capabilities of devices that are not CUDA's */

/* With the features of a capability: the nearest of those that there are, and not above it. */
ek_cuda_chip ek_cuda_chip_like(int capability, int multiprocessors);

#endif
