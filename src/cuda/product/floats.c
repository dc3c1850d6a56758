#include "cuda/product/product.h"

#include <stdio.h>

#include "cuda/few.h"
#include "cuda/many.h"

int ek_cuda_floats_levels(int k)
{
    return ek_cuda_nodes(ek_cuda_over(k, EK_KBLOCK));
}

static const char *name_of(const ek_cuda_linear *l)
{
    return l->form == EK_W_F32 ? "f32" : l->form == EK_W_F16 ? "f16" : "bf16";
}

/* Rows per tile of few rows; for several matrices or experts there is no tile of two. */
static int tile_of(int rows)
{
    return rows > 4 ? 8 : rows > 2 ? 4 : rows;
}

static int tile_of_several(int rows)
{
    return rows == 2 ? 4 : tile_of(rows);
}

/* The launch for few rows: leaves per block, its warps, slots per warp, shared memory; and the time of the whole
 * launch. */
typedef struct split {
    int leaves, warps, slots;
    size_t shared;
    double us;
} split;

/* Cycles per leaf if a multiprocessor has this many warps: the instructions of one warp or of all, or the wait for
 * slots. */
static double leaf_cycles(int tile, int slots, int warps)
{
    enum { LATENCY = 1800, SCHEDULERS = 4 };
    static const struct {
        double alone, shared; /* of an input */
    } of[] = {[1] = {17, 8}, [2] = {19, 10}, [4] = {105, 32}, [8] = {165, 75}};
    const double waits = LATENCY / (double)(EK_CUDA_FEW_STEP(tile) * (slots - 1));
    double each = of[tile].alone > waits ? of[tile].alone : waits;
    if (each < warps * of[tile].shared / SCHEDULERS) each = warps * of[tile].shared / SCHEDULERS;
    return EK_KBLOCK * each;
}

/* The launch with blocks of this many leaves and warps, `blocks` in all. */
static split try_split(const ek_cuda_linear *l, int tile, int leaves, int warps, int blocks, const ek_cuda_chip *chip)
{
    static const int slots[] = {EK_CUDA_FEW_MAX_SLOTS, 6, 4, 3};
    /* bytes per cycle that a multiprocessor reads while all read, and its maximum */
    static const double READ = 17.5, READ_ALONE = 21;
    enum { OWN = 1024, WARPS = 24, START = 1500 }; /* OWN: bytes of each block that the system uses */
    const int rounds = ek_cuda_over(leaves, warps), levels = ek_cuda_nodes(rounds), bytes = l->form == EK_W_F32 ? 4 : 2;
    const double block = (double)leaves * EK_KBLOCK * EK_CUDA_FEW_OUTPUTS(tile) * bytes;
    const double all = blocks * block / chip->multiprocessors / READ;
    const double limit = ek_cuda_over(blocks, chip->multiprocessors) * block / READ_ALONE;
    const double reads = all > limit ? all : limit;
    split best = {.us = 1e30};
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
        const size_t shared = (size_t)EK_CUDA_FEW_SHARED(tile, bytes, warps, slots[i], levels);
        int each = (int)((chip->block_shared + OWN) / (shared + OWN)); /* blocks per multiprocessor */
        each = each < WARPS / warps ? each : WARPS / warps;
        if (!each && (best.warps || i + 1 < sizeof slots / sizeof *slots)) continue;
        each = each ? each : 1; /* too much shared memory: the caller notices */
        const int wave = each * chip->multiprocessors, rest = blocks % wave;
        double cycles = blocks / wave * rounds * (leaf_cycles(tile, slots[i], each * warps) + START);
        if (rest)
            cycles += rounds * (leaf_cycles(tile, slots[i], ek_cuda_over(rest, chip->multiprocessors) * warps) + START);
        if (cycles < reads + START * ek_cuda_over(blocks, wave)) cycles = reads + START * ek_cuda_over(blocks, wave);
        const double us = chip->us->floats.launch + chip->us->floats.few * cycles;
        if (us < best.us) best = (split){leaves, warps, slots[i], shared, us};
    }
    return best;
}

/* The fastest launch for this number of output groups and tiles of rows. If the parts' rows have room, the inputs are
 * split into parts of a power of two of leaves. A block has as many warps as leaves, or a power of two. */
static split split_of(const ek_cuda_linear *l, int tile, int rows, int blocks, const ek_cuda_chip *chip, size_t room)
{
    static const double PART = 0.4; /* us per part for the launch that adds parts */
    const int all = ek_cuda_over(l->k, EK_KBLOCK);
    split best = {.us = 1e30};
    for (int leaves = all, next = 1 << 10; leaves >= EK_CUDA_FEW_WARPS / 2 || leaves == all; leaves = next, next /= 2) {
        if (leaves > all) continue;
        const int parts = ek_cuda_over(all, leaves);
        const size_t bytes = (size_t)rows * (size_t)l->n * sizeof(float) * (size_t)parts;
        if (parts > 1 && bytes > room) break;
        for (int warps = EK_CUDA_FEW_WARPS; warps > 1; warps /= 2) {
            const int mine = leaves < warps ? leaves : warps;
            split s = try_split(l, tile, leaves, mine, blocks * parts, chip);
            if (parts > 1) s.us += chip->us->parts.sum + PART * parts + 2 * (double)bytes / chip->us->parts.bytes;
            if (s.us < best.us) best = s;
        }
    }
    return best;
}

static int few_groups(const ek_cuda_linear *l, int tile, int rows)
{
    return ek_cuda_over(l->n, EK_CUDA_FEW_OUTPUTS(tile)) * ek_cuda_over(rows, tile);
}

ek_cuda_product ek_cuda_floats_plan_few(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip, size_t room,
                                        double *us)
{
    const int tile = tile_of(rows), blocks = few_groups(l, tile, rows);
    const split s = split_of(l, tile, rows, blocks, chip, room);
    const int parts = ek_cuda_over(ek_cuda_over(l->k, EK_KBLOCK), s.leaves);
    ek_cuda_product p = {.grid = {.x = (unsigned)(blocks * parts),
                                  .threads = (unsigned)s.warps * 32,
                                  .shared = s.shared,
                                  .overlap = true},
                         .slots = s.slots};
    if (parts > 1) p.parts = parts, p.split = s.leaves * (EK_KBLOCK / 64);
    *us = s.us;
    snprintf(p.name, sizeof p.name, "ek_product_%s_r%d", name_of(l), tile);
    return p;
}

static int tiles_of(const ek_cuda_linear *l, int rows)
{
    return ek_cuda_over(rows, EK_CUDA_MANY_ROWS) * ek_cuda_over(l->n, EK_CUDA_MANY_OUTPUTS);
}

double ek_cuda_floats_few_us(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip)
{
    const int tile = tile_of(rows);
    return split_of(l, tile, rows, few_groups(l, tile, rows), chip, 0).us;
}

double ek_cuda_floats_tiles_us(const ek_cuda_linear *l, int rows, int units, const ek_cuda_chip *chip)
{
    const int each = units ? units * 64 : l->k, parts = ek_cuda_over(l->k, each);
    const int waves = ek_cuda_over(tiles_of(l, rows) * parts, chip->multiprocessors);
    return chip->us->floats.launch + each * (waves == 1 ? chip->us->floats.alone : chip->us->floats.shared * waves);
}

ek_cuda_product ek_cuda_floats_plan_tiles(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip, size_t room,
                                          double *us)
{
    const int tiles = tiles_of(l, rows), max = EK_CUDA_MANY_BLOCKS * chip->multiprocessors;
    ek_cuda_product p = {.levels = ek_cuda_floats_levels(l->k),
                         .grid = {.x = (unsigned)(tiles < max ? tiles : max),
                                  .threads = EK_CUDA_MANY_THREADS,
                                  .shared = EK_CUDA_MANY_SHARED,
                                  .overlap = true}};
    p.stack = p.grid.x * (size_t)p.levels * EK_CUDA_MANY_ROWS * EK_CUDA_MANY_OUTPUTS * sizeof(float);
    snprintf(p.name, sizeof p.name, "ek_product_%s_many", name_of(l));
    *us = ek_cuda_floats_tiles_us(l, rows, 0, chip);
    ek_cuda_in_parts(&p, l, rows, chip, room, tiles, EK_CUDA_MANY_BLOCKS, ek_cuda_floats_tiles_us, us);
    return p;
}

ek_cuda_product ek_cuda_floats_plan_many(const ek_cuda_linear *l, int rows, int jobs, int matrices,
                                         const ek_cuda_chip *chip)
{
    const int tile = tile_of_several(rows), tiles = jobs ? jobs : ek_cuda_over(rows, tile);
    const int groups = ek_cuda_over(l->n, EK_CUDA_FEW_OUTPUTS(tile));
    const split s = split_of(l, tile, rows, groups * tiles * matrices, chip, 0);
    ek_cuda_product p = {.grid = {.x = (unsigned)groups,
                                  .y = (unsigned)tiles,
                                  .z = (unsigned)matrices,
                                  .threads = (unsigned)s.warps * 32,
                                  .shared = s.shared,
                                  .overlap = true},
                         .slots = s.slots};
    snprintf(p.name, sizeof p.name, "ek_products_%s_r%d", name_of(l), tile);
    return p;
}
