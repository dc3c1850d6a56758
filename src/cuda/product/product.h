/* The families of product kernels: the matrices of each, its launch, and its time. */
#ifndef EK_CUDA_PRODUCT_PRODUCT_H
#define EK_CUDA_PRODUCT_PRODUCT_H

#include "cuda/product/launch.h"
#include "cuda/product/layout.h"

/* The choice of the family for a call; only this file compares families. Each family (floats, units, warp, tile, mid,
 * wide; below) states its conditions, its launch and its time (cuda/chip.h). No bit depends on a choice.
 * tests/cuda/choices.txt lists the choices for the published models. */

/* The launch for `rows` rows on a chip. room: scratch bytes for parts; 0: no parts. */
ek_cuda_product ek_cuda_product_plan(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip, size_t room);

/* A product with its gate for this number of rows, or of experts' jobs, as the input of `next`. False if both matrices
 * and ek_gate are faster, or no kernel does it. */
bool ek_cuda_gated_plan(ek_cuda_product *out, const ek_cuda_linear *l, int rows, int jobs, ek_cuda_gate gate,
                        const ek_cuda_linear *next, const ek_cuda_chip *chip);
/* Whether ek_cuda_wide_gate_plan's launch, followed by `next` on its operand, takes less time than the gate's other
 * way, followed by `next` as it would be planned alone. few: the other way is ek_cuda_gated_plan's launch; otherwise it
 * is both matrices and ek_gate. */
bool ek_cuda_wide_gate_wins(const ek_cuda_linear *l, const ek_cuda_linear *next, int rows, bool few,
                            const ek_cuda_chip *chip, size_t room);

/* q, k and v (v NULL: values are keys) for the same rows in one launch. False if no kernel fits or it is not faster. */
bool ek_cuda_heads_plan(ek_cuda_heads *out, const ek_cuda_linear *q, const ek_cuda_linear *k, const ek_cuda_linear *v,
                        int rows, const ek_cuda_chip *chip);
/* Whether ek_cuda_wide_heads_plan's launch (q NULL: of k and v) fits and is faster than products of their own. */
bool ek_cuda_wide_heads_win(const ek_cuda_linear *q, const ek_cuda_linear *k, const ek_cuda_linear *v, int rows,
                            const ek_cuda_chip *chip);

/* The same for ek_products_* (cuda/model_args.h): 1 or 2 `matrices` in a launch, for `rows` rows, or for experts in at
 * most `jobs` jobs of up to `rows` rows (jobs 0: no experts). name is empty for too many rows: compute the matrices one
 * by one. */
ek_cuda_product ek_cuda_products_plan(const ek_cuda_linear *l, int rows, int jobs, int matrices,
                                      const ek_cuda_chip *chip);
/* One matrix of experts in jobs of up to `rows` rows, by kernels of ek_cuda_warp_args. False if ek_cuda_products_plan
 * has the kernels. */
bool ek_cuda_jobs_plan(ek_cuda_product *out, const ek_cuda_linear *l, int rows, int jobs, const ek_cuda_chip *chip);
/* Two matrices of one shape by the kernels of ek_cuda_warp_args.y2. False if these do not fit or are not faster. */
bool ek_cuda_pair_plan(ek_cuda_product *out, const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip);

/* --- products of Form F: few rows by warps (kernels/product/product_f.cuh), many rows by tiles of 64 rows and 128
 * outputs (kernels/product/product_many.cu) --- */

/* Both with the fastest number of parts, whose time goes to *us; room: scratch bytes for the parts. */
ek_cuda_product ek_cuda_floats_plan_few(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip, size_t room,
                                        double *us);
ek_cuda_product ek_cuda_floats_plan_tiles(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip, size_t room,
                                          double *us);
/* The time without parts. */
double ek_cuda_floats_few_us(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip);
/* The time with parts of this many units of 64 inputs; 0: one part. */
double ek_cuda_floats_tiles_us(const ek_cuda_linear *l, int rows, int units, const ek_cuda_chip *chip);
/* Nodes of T that a block of product_many keeps for a matrix of k inputs. */
int ek_cuda_floats_levels(int k);
/* For `matrices` of one shape in a launch, or for experts in `jobs` jobs of up to 8 rows (0: none). */
ek_cuda_product ek_cuda_floats_plan_many(const ek_cuda_linear *l, int rows, int jobs, int matrices,
                                         const ek_cuda_chip *chip);

/* Products of any number of rows on a device that is not CUDA's (cuda/chip.h): one matrix per launch, nothing fused. */
ek_cuda_product ek_cuda_plain_plan(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip);
/* For experts: jobs of up to `rows` rows, one or two matrices. */
ek_cuda_product ek_cuda_plain_plan_jobs(const ek_cuda_linear *l, int rows, int jobs, int matrices);
/* With a gate, of one row or jobs of one: false for matrices that no kernel knows, and for groups of 16 behind them. */
bool ek_cuda_plain_gated_plan(ek_cuda_product *out, const ek_cuda_linear *l, int rows, int jobs, ek_cuda_gate gate,
                              const ek_cuda_linear *next);

/* --- products of 9 to some hundred rows by narrow tiles of wgmma (kernels/product/product_mid.cu), alone or with the
 * gate of a second matrix: wgmma formats of 4 bits. Blocks have oct x 8 columns; oct is 1, 2 or 4. --- */

bool ek_cuda_mid_fits(const ek_cuda_linear *l);
/* With the fastest columns and parts, whose time goes to *us. room: bytes for parts; 0: no parts. */
ek_cuda_product ek_cuda_mid_plan(const ek_cuda_linear *l, int rows, ek_cuda_gate gate, const ek_cuda_chip *chip,
                                 size_t room, double *us);
/* With the given columns. units: of a part. */
ek_cuda_product ek_cuda_mid_plan_at(const ek_cuda_linear *l, int rows, int oct, int units, ek_cuda_gate gate);

/* For experts in jobs of up to `rows` rows, by kernels of ek_cuda_warp_args; one limb. takes: whether there are kernels
 * for jobs of that many; rows: the jobs' for experts that have `each` rows, up to EK_CUDA_MID_JOB_ROWS (cuda/tiles.h).
 */
bool ek_cuda_mid_job_takes(int rows);
int ek_cuda_mid_job_rows(int each);
bool ek_cuda_mid_job_fits(const ek_cuda_linear *l, const ek_cuda_chip *chip);
ek_cuda_product ek_cuda_mid_plan_jobs(const ek_cuda_linear *l, int rows, int jobs, ek_cuda_gate gate);

/* q with one limb, k and v with two, in one launch. False if their shapes differ too much. */
bool ek_cuda_mid_heads_plan(ek_cuda_heads *out, const ek_cuda_linear *q, const ek_cuda_linear *k,
                            const ek_cuda_linear *v, int rows, const ek_cuda_chip *chip, double *us);
/* v: whether values differ from keys. */
ek_cuda_heads ek_cuda_mid_heads_plan_at(const ek_cuda_linear *q, const ek_cuda_linear *k, bool v, int rows, int oct);

/* --- products of Form Q by tiles of 128 outputs and 64 columns with mma.sync (kernels/product/product_tile.cu): many
 * rows, any format --- */

/* In one part; or, if us is given, in the fastest number of parts, whose time goes to *us. room: bytes for the
 * parts. */
ek_cuda_product ek_cuda_tile_plan(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip, size_t room, double *us);
/* For `matrices` of one shape, of experts in `jobs` jobs of up to a tile of rows: 64, or 32 with two limbs. */
ek_cuda_product ek_cuda_tile_plan_jobs(const ek_cuda_linear *l, int jobs, int matrices, const ek_cuda_chip *chip);
/* The time with parts of this many units; 0: one part. */
double ek_cuda_tile_us(const ek_cuda_linear *l, int rows, int units, const ek_cuda_chip *chip);

/* --- products of Form Q whose warps take units of 64 inputs in any format and exchange their sums
 * (kernels/product/product_few.cuh): few rows that family `warp` does not take, and two matrices or experts in a launch
 * --- */

enum { EK_CUDA_UNITS_ROWS = 16 }; /* maximum per tile */

/* matrices: number of matrices of one shape in a launch; 0: one, by the kernel for one. jobs: number of experts' jobs;
 * 0: none. */
ek_cuda_product ek_cuda_units_plan(const ek_cuda_linear *l, int rows, int jobs, int matrices, const ek_cuda_chip *chip);
/* The time of one matrix: all weights are read per 16 rows. */
double ek_cuda_units_us(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip);

/* --- products of few rows with mma.sync, whose warps take chunks of inputs and stream their weights
 * (kernels/product/warp.cuh): of a matrix, of experts (jobs above 0), or with a gate (cuda/model_args.h) ---
 *
 * Fits groups of 64 with bf16 scales and biases (warp_64.c), and groups of 32 and 16 with their file's own scales
 * (warp_own.c). */

bool ek_cuda_warp_fits(const ek_cuda_linear *l);
/* Whether experts' jobs of this many rows fit. */
bool ek_cuda_warp_job_fits(const ek_cuda_linear *l, int rows);
/* Whether a gate's products can be the input of `next`. */
bool ek_cuda_warp_gate_fits(const ek_cuda_linear *l, const ek_cuda_linear *next);
ek_cuda_product ek_cuda_warp_plan(const ek_cuda_linear *l, int rows, int jobs, ek_cuda_gate gate,
                                  const ek_cuda_chip *chip);
/* For two matrices of one shape (ek_cuda_warp_args.y2). False: no kernel does it. */
bool ek_cuda_warp_pair_plan(ek_cuda_product *out, const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip);
double ek_cuda_warp_us(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip);
double ek_cuda_warp_gate_us(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip); /* of two matrices */

/* q, k and v (v NULL: values are keys) for the same rows in one launch. False: no kernel does it. */
bool ek_cuda_warp_heads_plan(ek_cuda_heads *out, const ek_cuda_linear *q, const ek_cuda_linear *k,
                             const ek_cuda_linear *v, int rows, const ek_cuda_chip *chip);
double ek_cuda_warp_heads_us(const ek_cuda_linear *q, const ek_cuda_linear *k, const ek_cuda_linear *v, int rows,
                             const ek_cuda_chip *chip);

/* The two launches of a layer with experts that also hold blocks of the dense MLP (cuda/model_args.h). First: q is the
 * dense MLP's gate, k the router, whose k_blocks are per tile of rows. Second: q is the experts' gate, whose q_blocks
 * are per job, k the dense MLP's down, whose tiles are k_tiles. False: no kernel does it. */
bool ek_cuda_experts_first_plan(ek_cuda_heads *out, const ek_cuda_linear *gate, const ek_cuda_linear *down,
                                const ek_cuda_linear *router, int rows, const ek_cuda_chip *chip);
bool ek_cuda_experts_second_plan(ek_cuda_heads *out, const ek_cuda_linear *gate, const ek_cuda_linear *down,
                                 const ek_cuda_linear *expert_down, int rows, int tile, int jobs,
                                 const ek_cuda_chip *chip);

/* --- family `warp` for groups of 64 with bf16 scales and biases: the functions above for only these formats --- */

ek_cuda_product ek_cuda_warp_64_plan(const ek_cuda_linear *l, int rows, int jobs, ek_cuda_gate gate,
                                     const ek_cuda_chip *chip);
double ek_cuda_warp_64_us(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip);
double ek_cuda_warp_64_gate_us(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip);
bool ek_cuda_warp_64_heads_plan(ek_cuda_heads *out, const ek_cuda_linear *q, const ek_cuda_linear *k,
                                const ek_cuda_linear *v, int rows, const ek_cuda_chip *chip);
bool ek_cuda_warp_64_first_plan(ek_cuda_heads *out, const ek_cuda_linear *gate, const ek_cuda_linear *down,
                                const ek_cuda_linear *router, int rows, const ek_cuda_chip *chip);
bool ek_cuda_warp_64_second_plan(ek_cuda_heads *out, const ek_cuda_linear *gate, const ek_cuda_linear *down,
                                 const ek_cuda_linear *expert_down, int rows, int tile, int jobs,
                                 const ek_cuda_chip *chip);

/* --- family `warp` for groups of 32 and 16 with their file's own scales: the functions above for only these formats
 * --- */

/* Maximum rows of an experts' job. */
int ek_cuda_warp_own_job_rows(const ek_cuda_linear *l, int rows);
/* matrices: number of matrices of one shape in a launch, without a gate (ek_cuda_warp_args.y2). */
ek_cuda_product ek_cuda_warp_own_plan(const ek_cuda_linear *l, int rows, int jobs, int matrices, ek_cuda_gate gate,
                                      const ek_cuda_chip *chip);
double ek_cuda_warp_own_us(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip);
bool ek_cuda_warp_own_heads_plan(ek_cuda_heads *out, const ek_cuda_linear *q, const ek_cuda_linear *k,
                                 const ek_cuda_linear *v, int rows, const ek_cuda_chip *chip);
/* The first launch, with a router of floats. */
bool ek_cuda_warp_own_first_plan(ek_cuda_heads *out, const ek_cuda_linear *gate, const ek_cuda_linear *down,
                                 const ek_cuda_linear *router, int rows, const ek_cuda_chip *chip);
bool ek_cuda_warp_own_second_plan(ek_cuda_heads *out, const ek_cuda_linear *gate, const ek_cuda_linear *down,
                                  const ek_cuda_linear *expert_down, int rows, int tile, int jobs,
                                  const ek_cuda_chip *chip);

/* --- products of many rows by wgmma (kernels/product/wide_product.cuh): of a matrix, of one or two matrices of experts
 * in at most `jobs` jobs of up to `rows` rows (jobs above 0), with a gate, or of q, k and v. Their rows are first
 * written in wgmma's order. --- */

bool ek_cuda_wide_fits(const ek_cuda_linear *l, const ek_cuda_chip *chip);
/* Without split and parts. */
ek_cuda_product ek_cuda_wide_plan(const ek_cuda_linear *l, int rows, int jobs, int matrices, const ek_cuda_chip *chip);
/* For a matrix of 4 bits with f16 scales, by tiles of half as many outputs. */
bool ek_cuda_wide_short_fits(const ek_cuda_linear *l, const ek_cuda_chip *chip);
ek_cuda_product ek_cuda_wide_short_plan(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip);
/* For a matrix, by whole or short tiles, with the fastest number of parts, whose time goes to *us. */
ek_cuda_product ek_cuda_wide_plan_parts(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip, size_t room,
                                        double *us);
/* The time with parts of this many units; 0: one part. */
double ek_cuda_wide_us(const ek_cuda_linear *l, int rows, int units, const ek_cuda_chip *chip);

/* With the gate of a second matrix of the same shape, as the operand of `next`. False: no kernel does it. */
bool ek_cuda_wide_gate_plan(ek_cuda_product *out, const ek_cuda_linear *l, const ek_cuda_linear *next, int rows,
                            int jobs, const ek_cuda_chip *chip);
/* The time of such a launch without jobs. */
double ek_cuda_wide_gate_us(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip);
/* q with one limb, k and v with two, all with 4 bits and equal scales, in one launch, which deals all their tiles to
 * its blocks. q or v may be NULL. q.grid is the launch, q.name the kernel, q.stack is for all. False: no kernel does
 * it. */
bool ek_cuda_wide_heads_plan(ek_cuda_heads *out, const ek_cuda_linear *q, const ek_cuda_linear *k,
                             const ek_cuda_linear *v, int rows, const ek_cuda_chip *chip);
/* Its time with the arrangement of rows; endless: no kernel does it. */
double ek_cuda_wide_heads_us(const ek_cuda_linear *q, const ek_cuda_linear *k, const ek_cuda_linear *v, int rows,
                             const ek_cuda_chip *chip);

/* wide_operand: bytes of the operand; 0 if the family does not take l. arrange_name: the kernel that writes it. */
size_t ek_cuda_wide_operand(const ek_cuda_linear *l, int rows, int jobs, const ek_cuda_chip *chip);
const char *ek_cuda_arrange_name(const ek_cuda_linear *l);

/* If a product has few tiles and many inputs, multiprocessors have no work. Parts of 2^n leaves, which are nodes of T,
 * then go to separate blocks, if this is faster with the sum of the parts included. */

/* The time of a family's product in parts of `units` units. */
typedef double ek_cuda_part_us(const ek_cuda_linear *l, int rows, int units, const ek_cuda_chip *chip);

/* Divides p into parts. p is a product in one part with `tiles` tiles, takes *us, and has at most `blocks` blocks per
 * multiprocessor. room: bytes for the parts' rows. */
void ek_cuda_in_parts(ek_cuda_product *p, const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip, size_t room,
                      int tiles, int blocks, ek_cuda_part_us *part_us, double *us);

/* The pieces of a panel of a product by the family `warp`, and the memory of a block. */

enum {
    EK_CUDA_WARPS = 8,      /* warps of a block that shares its multiprocessor; a block alone has twice as many */
    EK_CUDA_WARP_BLOCKS = 2 /* of a multiprocessor */
};

/* The bytes of such a block in shared memory, a little less than half of it; and the part of them for a share's leaves:
 * 100 and 24 KB of the 228 of capability 9.0. */
static inline size_t ek_cuda_warp_room(const ek_cuda_chip *chip)
{
    return chip->shared / 2 - (14 << 10);
}

static inline int ek_cuda_warp_sums(const ek_cuda_chip *chip)
{
    return (int)(ek_cuda_warp_room(chip) / 25 * 6);
}

typedef struct ek_cuda_cut {
    int chunks, leaves, leaf_chunks; /* chunks and leaves of a panel; chunks of a leaf */
    int slots;                       /* maximum number of chunks in flight per warp */
    size_t chunk_bytes, leaf_bytes;  /* bytes of a chunk, and of the sums of a leaf */
} ek_cuda_cut;

/* Chunks of `groups` groups of weights, for tiles of per_tile rows. */
ek_cuda_cut ek_cuda_cut_of(const ek_cuda_linear *l, int groups, int per_tile, int slots);
/* The number of panels per share, for `panels` panels on `places` places, while the leaves of a share fit into
 * `sums`. */
int ek_cuda_cut_share(const ek_cuda_cut *c, int panels, int places, int sums);
/* Sets slots and shared memory of p's warps, with p's share and `shares` shares per block. A multiprocessor has 2
 * blocks, or 1, by `room`. If a block may not have the memory, it has fewer warps. */
void ek_cuda_cut_ring(ek_cuda_product *p, const ek_cuda_cut *c, int shares, int warps, size_t room,
                      const ek_cuda_chip *chip);
/* Rings of two products in one launch, a share per block: as many warps for both, and the larger of both memories. */
void ek_cuda_cut_rings(ek_cuda_heads *p, const ek_cuda_cut *q, const ek_cuda_cut *k, int warps, size_t room,
                       const ek_cuda_chip *chip);

#endif
