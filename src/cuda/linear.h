/* Products on the device: the layout of weights, the layout of rows of activations, and which kernel computes
 * a call. Made once per matrix from the CPU's packed panels (ops/linear_layout.h); formula: ops/linear.h.
 *
 * Form F: the CPU's panels as they are. Form Q: two arrays,
 *   codes   for each panel of 16 outputs the units of 64 inputs, one after the other. A unit has 16 (Q4) or
 *           32 (Q8) bytes for each of the 32 lanes of a warp, in the order of the fragments of two mma.sync
 *           m16n8k32: word i of step j of lane l holds output g + 8 (i & 1) and inputs
 *           k + 4 (i >> 1) + {0, 1, 2, 3}, where g = l / 4, t = l % 4 and k = 16 t + 8 j with activations in
 *           groups of 64, 32 j + 8 t in groups of 32; in groups of 16 (four m16n8k16) inputs 32 j + 16 (i >> 1) + 4 t
 *           + {0, 1, 2, 3}. Q8: c in a byte, the first steps of all lanes, then the
 *           second. Q4: c in two's complement, 4 words per lane: words 2 j and 2 j + 1 hold words 0 and 1 of step
 *           j in their low and words 2 and 3 in their high nibbles. Inputs past k are zeros.
 *   scales  for each panel and group of weights, for g = 0 .. 7: s and b of output g, then of g + 8; bf16 or
 *           f32 as packed, without b where there are no biases. Of planes: cuda/planes.h. */
#ifndef EK_CUDA_LINEAR_H
#define EK_CUDA_LINEAR_H

#include "cuda/args.h"
#include "cuda/driver.h"
#include "ops/linear.h"

typedef struct ek_cuda_linear {
    ek_wform form;
    int n, k, n_panels, units; /* units of 64 inputs; Form F: 0 */
    int group, a_group, bits;  /* bits as stored on the device: 4 or 8 */
    int limbs, zero;
    bool biased, f32_scales, f16_scales; /* scales: neither: bf16 */
    size_t code_bytes, scale_bytes;      /* of all panels, each a multiple of 64 */
    size_t bytes;                        /* the scales begin behind the codes */
} ek_cuda_linear;

/* The device's layout of w. EUNSUPPORTED: k above 65,280 (Form F) or 261,120 (Form Q). */
ek_err ek_cuda_linear_plan(ek_cuda_linear *out, const ek_linear *w);
/* Writes panels [p0, p1) of w to `to`, which has room for l->bytes; panels in any order, by any threads. */
void ek_cuda_linear_pack(const ek_cuda_linear *l, const ek_linear *w, uint8_t *to, int p0, int p1);

/* Where input kk of a unit of output o lies in the unit; 4 bits: in a byte's half. */
typedef struct ek_cuda_place_of_code {
    int byte, shift;
} ek_cuda_place_of_code;
ek_cuda_place_of_code ek_cuda_linear_place(const ek_cuda_linear *l, int o, int kk);
/* Bytes of s, or of s and b, of one output and group. */
size_t ek_cuda_linear_scale(const ek_cuda_linear *l);

/* Where a quantised row lies: fills all but q. Returns the bytes of a row, a multiple of 64. */
size_t ek_cuda_acts_plan(ek_cuda_acts *a, int k, int a_group);

enum { EK_CUDA_NAME = 64 }; /* bytes of a kernel's name */

/* A launch: the kernel's name, its grid, and the fields of args that the call decides (pass, levels). */
typedef struct ek_cuda_product {
    char name[EK_CUDA_NAME];
    ek_cuda_grid grid;
    size_t stack; /* bytes of scratch memory for args.stack */
    int pass, levels;
    int turn, stages;     /* ek_product_leaf_*, ek_products_leaf_* */
    size_t image;         /* ek_product*_wide: bytes of scratch for args.image, */
    ek_cuda_grid arrange; /* which ek_arrange_l<limbs> writes first */
    int split, parts; /* parts above 1: args.split, and y is scratch memory of parts x rows x n, which ek_product_join
                         adds */
} ek_cuda_product;

/* How to compute `rows` rows on a device of that many multiprocessors. No bit depends on it. room: bytes of scratch
 * memory for parts; 0: no parts. */
ek_cuda_product ek_cuda_product_plan(const ek_cuda_linear *l, int rows, int multiprocessors, size_t room);

/* Form Q, by one of its kernels: for measuring which wins. */
typedef enum ek_cuda_by {
    EK_CUDA_BY_FEW,
    EK_CUDA_BY_TILES,
    EK_CUDA_BY_LEAVES,
    EK_CUDA_BY_WIDE,
    EK_CUDA_BY_PLANES,
    EK_CUDA_BY_MID
} ek_cuda_by;
ek_cuda_product ek_cuda_product_plan_by(const ek_cuda_linear *l, int rows, int multiprocessors, size_t room,
                                        ek_cuda_by by);

/* Products by leaves (kernels/product_leaf.cuh), of a matrix, of experts (jobs above 0), or with a gate
 * (cuda/model_args.h), for which n is whole groups of 64. Fits: bf16 scales and biases, groups of 64. Wins: faster than
 * tiles for that many rows. */
typedef enum ek_cuda_gate { EK_CUDA_GATE_NONE, EK_CUDA_GATE_ROW, EK_CUDA_GATE_MATRIX } ek_cuda_gate;
bool ek_cuda_leaf_fits(const ek_cuda_linear *l);
bool ek_cuda_leaf_wins(const ek_cuda_linear *l, int rows, int multiprocessors);
double ek_cuda_leaf_us(const ek_cuda_linear *l, int rows);
double ek_cuda_leaf_gate_us(const ek_cuda_linear *l, int rows, int multiprocessors); /* of two matrices */
ek_cuda_product ek_cuda_leaf_plan(const ek_cuda_linear *l, int rows, int jobs, ek_cuda_gate gate, int multiprocessors);

/* Products by kernels/product_plane.cuh, the same for weights with their file's own scales: those that fit; and of two
 * matrices alike in a launch, without a gate (ek_cuda_leaf_args.y2). */
bool ek_cuda_plane_fits(const ek_cuda_linear *l);
/* What names of kernels say of bits, scales and groups: of ek_cuda_leaf_fits q4 or q8, else as
 * kernels/product_plane.cuh lists them. */
typedef struct ek_cuda_kind {
    char name[16];
} ek_cuda_kind;
ek_cuda_kind ek_cuda_kind_of(const ek_cuda_linear *l);
bool ek_cuda_plane_wins(const ek_cuda_linear *l, int rows, int multiprocessors); /* as ek_cuda_leaf_wins */
double ek_cuda_plane_us(const ek_cuda_linear *l, int rows);
/* Renames the plan of a product by tiles to a kernel of l's own scales, where there is one. */
void ek_cuda_plane_tile(ek_cuda_product *p, const ek_cuda_linear *l);
ek_cuda_product ek_cuda_plane_plan(const ek_cuda_linear *l, int rows, int jobs, ek_cuda_gate gate, int multiprocessors);
ek_cuda_product ek_cuda_plane_pair(const ek_cuda_linear *l, int rows, int multiprocessors);

/* Of both, the one that takes l: whether it computes the rows of a job, or a call with its gate as the input of `next`.
 */
bool ek_cuda_job_fits(const ek_cuda_linear *l, int rows);
bool ek_cuda_gate_fits(const ek_cuda_linear *l, int rows, int jobs, const ek_cuda_linear *next, int multiprocessors);
ek_cuda_product ek_cuda_few_plan(const ek_cuda_linear *l, int rows, int jobs, ek_cuda_gate gate, int multiprocessors);

/* q, k and v (v NULL: values are keys) for the same rows in one launch: false where the kernels do not fit or
 * would not win. q.name is the kernel's; q's grid is the launch; blocks: of the product alone. k_tiles: of rows, of the
 * launches of experts below. */
typedef struct ek_cuda_heads {
    ek_cuda_product q, k;
    int q_blocks, k_blocks, k_tiles;
} ek_cuda_heads;
bool ek_cuda_heads_plan(ek_cuda_heads *out, const ek_cuda_linear *q, const ek_cuda_linear *k, const ek_cuda_linear *v,
                        int rows, int multiprocessors);
/* Of groups of 32 by leaves. */
bool ek_cuda_plane_heads_plan(ek_cuda_heads *out, const ek_cuda_linear *q, const ek_cuda_linear *k,
                              const ek_cuda_linear *v, int rows, int multiprocessors);

/* The two launches of a layer with experts that hold blocks of the dense MLP too (cuda/model_args.h): q is of the gate
 * of the dense MLP, or of experts, whose q_blocks are then of a job; k of the router, whose k_blocks are of a tile of
 * rows, or of the dense MLP's down; their tiles are k_tiles. False: no kernel does it. */
bool ek_cuda_experts_first_plan(ek_cuda_heads *out, const ek_cuda_linear *gate, const ek_cuda_linear *down,
                                const ek_cuda_linear *router, int rows);
bool ek_cuda_experts_second_plan(ek_cuda_heads *out, const ek_cuda_linear *gate, const ek_cuda_linear *down,
                                 const ek_cuda_linear *expert_down, int rows, int tile, int jobs, int multiprocessors);
/* Of groups of 32, with a router of floats. */
bool ek_cuda_plane_experts_first_plan(ek_cuda_heads *out, const ek_cuda_linear *gate, const ek_cuda_linear *down,
                                      const ek_cuda_linear *router, int rows);
bool ek_cuda_plane_experts_second_plan(ek_cuda_heads *out, const ek_cuda_linear *gate, const ek_cuda_linear *down,
                                       const ek_cuda_linear *expert_down, int rows, int tile, int jobs,
                                       int multiprocessors);

/* Products by wgmma (kernels/product_wide.cuh) of what ek_cuda_leaf_fits, and of f16 scales in groups of 32: of a
 * matrix, or of one or two matrices of experts in at most `jobs` jobs of up to `rows` rows (jobs above 0). split,
 * parts: not decided. */
bool ek_cuda_wide_fits(const ek_cuda_linear *l);
ek_cuda_product ek_cuda_wide_plan(const ek_cuda_linear *l, int rows, int jobs, int matrices, int multiprocessors);
const char *ek_cuda_arrange_name(const ek_cuda_linear *l);
/* With the gate of a second matrix alike, as the image of `next`. False: no kernel does it. */
bool ek_cuda_wide_gate_plan(ek_cuda_product *out, const ek_cuda_linear *l, const ek_cuda_linear *next, int rows,
                            int jobs, int multiprocessors);
/* q with one limb, k and v with two, all of 4 bits with scales alike, in one launch that deals all their tiles to its
 * blocks; q or v may be NULL. q.grid is the launch, q.name the kernel, q.stack for all. False: no kernel does
 * it. */
bool ek_cuda_wide_heads_plan(ek_cuda_heads *out, const ek_cuda_linear *q, const ek_cuda_linear *k,
                             const ek_cuda_linear *v, int rows, int multiprocessors);
/* Bytes of its image, 0 where it does not take l. */
size_t ek_cuda_wide_image(const ek_cuda_linear *l, int rows, int jobs);
/* Time in us of a matrix in parts of that many units, 0: whole. */
double ek_cuda_wide_us(const ek_cuda_linear *l, int rows, int units, int multiprocessors);

/* Products of 9 rows and more by wgmma in narrow tiles (kernels/product_mid.cuh), alone or, where n is whole groups of
 * 64, with the gate of a second matrix: in the parts that take the shortest time, `us`. Fits: 4 bits with bf16 scales
 * and biases in groups of 64, or with f16 scales in groups of 32. */
bool ek_cuda_mid_fits(const ek_cuda_linear *l);
bool ek_cuda_mid_may(const ek_cuda_linear *l, int rows); /* and may win, where rows are 8 and fewer */
ek_cuda_product ek_cuda_mid_plan(const ek_cuda_linear *l, int rows, ek_cuda_gate gate, int multiprocessors, size_t room,
                                 double *us);
/* In one part, by blocks of oct x 8 columns. */
ek_cuda_product ek_cuda_mid_plan_by(const ek_cuda_linear *l, int rows, int oct, ek_cuda_gate gate);
/* A product with its gate for that many rows, or jobs of experts, as the input of `next`: false where both matrices and
 * ek_gate would be faster, or no kernel does it. */
bool ek_cuda_gated_plan(ek_cuda_product *out, const ek_cuda_linear *l, int rows, int jobs, ek_cuda_gate gate,
                        const ek_cuda_linear *next, int multiprocessors);
/* By blocks of oct x 8 columns; v: whether values are not keys. */
ek_cuda_heads ek_cuda_mid_heads_by(const ek_cuda_linear *q, const ek_cuda_linear *k, bool v, int rows, int oct);
/* q, k and v as for ek_cuda_heads_plan. */
bool ek_cuda_mid_heads_plan(ek_cuda_heads *out, const ek_cuda_linear *q, const ek_cuda_linear *k,
                            const ek_cuda_linear *v, int rows, int multiprocessors);

/* The same for ek_products_* (cuda/model_args.h): `matrices` (1 or 2) in a launch, for `rows` rows, or for experts in
 * at most `jobs` jobs of up to `rows` rows (jobs 0: no experts). name is empty where rows are too many: compute the
 * matrices one by one. */
ek_cuda_product ek_cuda_products_plan(const ek_cuda_linear *l, int rows, int jobs, int matrices, int multiprocessors);
/* Whether two matrices may share a launch. */
bool ek_cuda_linear_alike(const ek_cuda_linear *a, const ek_cuda_linear *b);

/* The fields of args that the matrix decides: codes, scales, n, group, ..., x.k. */
void ek_cuda_linear_args_of(ek_cuda_linear_args *args, const ek_cuda_linear *l, CUdeviceptr weights);

#endif
