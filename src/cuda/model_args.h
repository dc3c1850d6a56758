/* The arguments of a forward pass's kernels besides those of cuda/args.h, under the same rules. */
#ifndef EK_CUDA_MODEL_ARGS_H
#define EK_CUDA_MODEL_ARGS_H

#include "cuda/args.h"

enum { EK_CUDA_MAX_EXPERTS = 1024, EK_CUDA_MAX_TOP_K = 64, EK_CUDA_STAGE_WIDTH = 8192 };

/* ek_pack_q: from the CPU's panels (ops/linear/linear_layout.h) to the device's layout (cuda/product/layout.h). grid
 * (units, panels), 32 threads: a unit of a panel, and its scales with the first unit of each group. Panels [0, n) of
 * `from` become panels [first, first + n) of the matrix. */
typedef struct ek_cuda_pack_args {
    ek_cuda_ptr from, codes, scales;
    int64_t panel_bytes, group_bytes; /* bytes in the CPU's layout */
    int32_t first, k, units, group, a_group, bits;
    int32_t scale_bytes; /* bytes of one scale: 2 or 4 */
    int32_t biased;
} ek_cuda_pack_args;

/* ek_pack_planes: the same from planes (ops/linear/planes.h, cuda/product/layout.h). */
enum {
    EK_CUDA_SCALE_PLAIN,
    EK_CUDA_SCALE_E8M0,
    EK_CUDA_SCALE_I8,
    EK_CUDA_SCALE_U8,
    EK_CUDA_SCALE_U4,
    EK_CUDA_SCALE_E4M3
};

typedef struct ek_cuda_pack_planes_args {
    ek_cuda_ptr from, codes, scales;
    int64_t panel_bytes, block_bytes; /* bytes in the CPU's layout */
    int32_t codes_at;                 /* in a block */
    int32_t first, k, units, block, group;
    int32_t from_bits, bits; /* bits of a code there and here */
    int32_t zero, biased, rule, has_book;
    int8_t book[16];
} ek_cuda_pack_planes_args;

/* ek_embed: h[r] = elements of row id[r] of a matrix (ops/linear/linear.h, ek_linear_row), times factor. Id -1: the row
 * stays unchanged. Below -1: the row of token[EK_CUDA_DRAWN - id], which the previous step drew, or row 0 if it drew
 * none. grid (ceil(n / 256), rows), 256 threads. */
enum { EK_CUDA_DRAWN = -2 };
typedef struct ek_cuda_embed_args {
    ek_cuda_ptr h, id, codes, scales, token;
    int64_t ldh;
    float factor;
    int32_t first, n; /* elements [first, first + n) of a row */
    int32_t rows;     /* of the matrix */
    int32_t k, form;  /* 0, 1, 2: f32, f16, bf16; 3: Form Q; 4, only in ek_embed: computed from the seed in `codes`
                         (model/embed.c) */
    int32_t bits, a_group, group_shift, zero, biased, f32_scales, f16_scales;
} ek_cuda_embed_args;

/* ek_rope_tables: cos and sin of the rows' positions (ops/rows/rows.h, ek_rope_row). grid (ceil(rotated / 64), rows),
 * 64 threads. */
typedef struct ek_cuda_rope_tables_args {
    ek_cuda_ptr cos, sin, frequency, place; /* ek_cuda_place per row */
    int64_t ld;
    int32_t rotated;
} ek_cuda_rope_tables_args;

/* ek_heads: norms and rotates queries in place. grid (n_heads, rows), 128 threads. ek_heads_rows_DIM (256 or 512), for
 * prompts: grid (rows), EK_CUDA_HEADS_THREADS. */
enum { EK_CUDA_HEADS_THREADS = 128 };

typedef struct ek_cuda_heads_args {
    ek_cuda_ptr q;
    int64_t ldq;
    ek_cuda_head head;
    int32_t head_dim;
} ek_cuda_heads_args;

/* ek_stage: the work between two linear layers, for a row by a block of 32 threads per 256 elements; n up to
 * EK_CUDA_STAGE_WIDTH.
 *   h = h + norm(y, y_norm), if there is a y
 *   h = h * *scalar, if there is a scalar
 *   x = norm(h, x_norm), or h without x_norm
 *   x = x * factor, with has_factor; then quantised
 * ek_experts_end, ek_experts_end_wide (the first up to EK_CUDA_EXPERTS_WIDTH): after experts, where first y = norm(y,
 * norm_1) + norm(sum, norm_2); sum = the pairs' outputs, weighted, in ascending expert id. */
enum { EK_CUDA_EXPERTS_WIDTH = 4096 };

typedef struct ek_cuda_stage_args {
    ek_cuda_ptr h, y, y_norm;
    ek_cuda_ptr pair_out, row_pair, weight, norm_1, norm_2; /* of ek_experts_end */
    ek_cuda_ptr scalar, x_norm;
    ek_cuda_ptr x;   /* may be 0 */
    ek_cuda_acts to; /* to.q 0: not quantised */
    int64_t ld;      /* elements from row to row of h, y, x and pair_out */
    float eps, factor;
    int32_t n, top_k, has_factor;
    int32_t known;      /* for ek_experts_end: row_pair and weight are written before the previous launch ends */
    ek_cuda_ptr h_from; /* for ek_experts_end: the old h; 0: h itself */
} ek_cuda_stage_args;

/* ek_experts_inputs: h_out = h + norm(y, y_norm), and the inputs of its readers, quantised in groups of 64: norm(h_out,
 * norm[0]) for the dense MLP, norm[1] times factor for the router, norm[2] for the experts. grid (3, rows), 32 threads
 * per 256 elements. ek_experts_inputs_any: in groups of 64, 32 or 16, and the router's row also as floats (q 0: only as
 * floats). */
typedef struct ek_cuda_inputs_args {
    ek_cuda_ptr h, h_out, y, y_norm;
    ek_cuda_ptr norm[3];
    ek_cuda_acts to[3];
    ek_cuda_ptr router; /* for ek_experts_inputs_any: floats; 0: none */
    int64_t ld;         /* elements from row to row of h, h_out, y and router */
    float eps, factor;
    int32_t n;
} ek_cuda_inputs_args;

/* ek_layer_end_*: the end of a layer with per-layer inputs, after down, for a row by a cluster of blocks with equal
 * numbers of panels of both matrices (kernels/rows/layer_end.cu). grid (blocks, rows).
 *   h = h + norm(y, y_norm)
 *   g = gelu(product with gate, quantised h) * u
 *   h = (h + norm(product with proj, quantised g, post_norm)) * *scalar
 *   x = norm(h, x_norm), then quantised */
enum { EK_CUDA_LAYER_END_THREADS = 384 };

typedef struct ek_cuda_layer_end_args {
    ek_cuda_ptr h, y, y_norm, u;
    ek_cuda_ptr gate, gate_scales, proj, proj_scales;
    ek_cuda_ptr post_norm, scalar, x_norm, x;
    ek_cuda_acts to;         /* q 0: not quantised */
    ek_cuda_acts row, gated; /* the inputs of both matrices; q: their offset in shared memory */
    int64_t ld, ldu;         /* elements from row to row of h, y and x */
    float eps;
    int32_t n, size;                         /* elements of h and of g */
    int32_t gate_panels, proj_panels;        /* per block */
    int32_t proj_shift;                      /* log2 of the threads per output of proj */
    int32_t zero;                            /* of codes */
    int32_t value, g, sum, gate_at, proj_at; /* offsets there of group values, g, the second product, weights */
} ek_cuda_layer_end_args;

/* ek_gate: gelu(g) * u, to y (may be 0) and quantised (to.q may be 0). grid (ceil(n / group / 8), rows), 256 threads: a
 * warp per group, of 64 if nothing is quantised. */
typedef struct ek_cuda_gate_args {
    ek_cuda_ptr g, u, y;
    int64_t ldg, ldu, ldy;
    ek_cuda_acts to;
    int32_t n;
} ek_cuda_gate_args;

/* ek_per_layer: ctx = (norm(ctx * ctx_scale, w) + temp * temp_scale) * sum_scale for each layer's `size` elements.
 * grid (layers, rows), 128 threads. */
typedef struct ek_cuda_per_layer_args {
    ek_cuda_ptr ctx, temp, w;
    int64_t ld_ctx, ld_temp;
    float eps, ctx_scale, temp_scale, sum_scale;
    int32_t size;
} ek_cuda_per_layer_args;

/* ek_gather: y[r] = x[index[r]], or x[r] without index. grid (ceil(n / 1024), rows), 256 threads. */
typedef struct ek_cuda_gather_args {
    ek_cuda_ptr y, x, index;
    int64_t ldy, ldx;
    int32_t n;
} ek_cuda_gather_args;

/* ek_route: a row's experts and their weights, in ascending id, from the router's outputs (docs/NUMERICS.md 8). grid
 * (rows), 256 threads. */
typedef struct ek_cuda_route_args {
    ek_cuda_ptr route, expert_scale, expert, weight; /* expert, weight: [rows][top_k] */
    int64_t ld;
    int32_t n_experts, top_k;
} ek_cuda_route_args;

/* A pair is one (row, chosen expert). A job is up to `tile` pairs of one expert, which are adjacent after sorting by
 * expert. */
typedef struct ek_cuda_job {
    int32_t expert, first, n, unused;
} ek_cuda_job;

/* ek_group: sorts pairs by expert and divides them into jobs, for prompts the longest first. One block of 1024 threads.
 * ek_group_ordered: an expert's pairs are in ascending order, so that other devices have the same order. */
typedef struct ek_cuda_group_args {
    ek_cuda_ptr expert;             /* of each pair */
    ek_cuda_ptr pair_row, row_pair; /* sorted pair -> row; pair -> sorted pair */
    ek_cuda_ptr jobs, n_jobs;
    int32_t n_experts, top_k, n_pairs, tile;
} ek_cuda_group_args;

/* The work of ek_route and ek_group for few rows, by a block of ek_experts_first. */
enum { EK_CUDA_CHOOSE_EXPERTS = 128, EK_CUDA_CHOOSE_PAIRS = 64, EK_CUDA_CHOOSE_ROWS = 8 };

typedef struct ek_cuda_choose_args {
    ek_cuda_ptr route, expert_scale, weight, pair_row, row_pair, jobs, n_jobs;
    ek_cuda_ptr ended; /* int32, zero between launches: number of ended router blocks */
    int64_t ld;        /* of route */
    int32_t n_experts, top_k, rows, tile, router_blocks;
} ek_cuda_choose_args;

/* ek_products_*: the products of product.cu for two matrices of one form that read the same rows (blocks z = 0, 1), and
 * for experts, where block y is a job. ek_products_q4_l1_wide_gate: gelu of the first matrix's products times the
 * second's, quantised: y2 is their operand for a product by wgmma with one limb, and a.y is unused. */
typedef struct ek_cuda_products_args {
    ek_cuda_linear_args a;           /* for blocks z = 0, and for expert 0 */
    ek_cuda_ptr codes2, scales2, y2; /* for blocks z = 1, or for the gate's second matrix */
    ek_cuda_ptr jobs, n_jobs;        /* 0: no experts */
    ek_cuda_ptr index;               /* sorted pair -> row of x; 0: identity. y has a row per sorted pair */
    int64_t expert_bytes;            /* bytes from one expert's matrix to the next */
} ek_cuda_products_args;

/* ek_arrange_l1, _l2: writes quantised rows in the order of products by wgmma (kernels/product/wide_product.cuh). grid
 * (ceil(EK_CUDA_WIDE_COLUMNS * units / 64), tiles of rows or jobs), 256 threads. */
typedef struct ek_cuda_arrange_args {
    ek_cuda_acts x;
    ek_cuda_ptr operand;
    ek_cuda_ptr jobs, n_jobs; /* 0: no experts */
    ek_cuda_ptr index;        /* sorted pair -> row of x; 0: identity */
    int32_t rows;
} ek_cuda_arrange_args;

/* ek_products_warp_*, and with a gate and codes2 ek_product_mid_gate_*: the products of kernels/product/warp.cuh for
 * experts as above (jobs), or with a gate. With a gate, a row's element i is gelu(product i) times product i of a
 * second matrix (codes2), or times element i of u. A block's share is 64 elements, a group of `to`; the block quantises
 * them and writes nothing else. grid (any, tiles of rows or jobs). *_s4: a share is 16 elements, and the EK_CUDA_SPREAD
 * blocks of a cluster have a group; grid (n / 16, tiles); l1 with codes2, l2 with u. */
typedef struct ek_cuda_warp_args {
    ek_cuda_linear_args a;       /* with a gate, y is unused */
    ek_cuda_ptr codes2, scales2; /* for the gate's second matrix; 0: u */
    ek_cuda_ptr u;               /* f32 */
    ek_cuda_ptr jobs, n_jobs;    /* 0: no experts */
    ek_cuda_ptr index;           /* sorted pair -> row of x; 0: identity */
    ek_cuda_acts to;             /* in groups of 64; ek_products_warp_*: of any size; q 0: no gate */
    int64_t ldu, expert_bytes;
    ek_cuda_ptr y2; /* ek_products_warp_*: blocks z = 1 compute codes2 to y2, without a gate */
    /* For launches that start before the previous ones have ended. known: jobs are written before the previous launch
     * ends. holds: the next launch starts only after the previous one has ended, so it may read that one's results. */
    int32_t known, holds;
} ek_cuda_warp_args;

/* number of blocks of a cluster that share a group of 64 after a gate, with 16 elements each; bytes of the cluster's
 * shared memory */
enum { EK_CUDA_SPREAD = 4, EK_CUDA_SPREAD_SHARED = 16 + 8 / EK_CUDA_SPREAD * 256 };

/* ek_experts_first_*: blocks [0, choose.router_blocks) compute the router's product; then, in clusters, gate_blocks the
 * dense MLP's gate and up; then the first block of a cluster finds the experts. route_panels: blocks per tile of rows.
 *
 * ek_experts_second_*: down_blocks for each of down_tiles tiles of rows compute the dense MLP's down; then gate_blocks
 * per job the experts' gate and up; tiles and jobs have up to 8 rows (o1) or 4 (r4), and a block has one share of one.
 *
 * *_q4h_32_*: no clusters; up to 4 rows (r4) or 8; the router in f32, where a block has a panel of one row. */
typedef struct ek_cuda_experts_first_args {
    ek_cuda_warp_args gate;
    ek_cuda_linear_args router;
    ek_cuda_choose_args choose;
    int32_t gate_blocks, route_panels;
} ek_cuda_experts_first_args;

typedef struct ek_cuda_experts_second_args {
    ek_cuda_warp_args part[2]; /* down; the experts' matrices */
    int32_t down_blocks, down_tiles, gate_blocks;
} ek_cuda_experts_second_args;

/* ek_product_warp_heads_*, ek_product_mid_heads_*: the products of kernels/product/warp.cuh for q, and for k and v,
 * which have one shape, in one launch: blocks [0, q_blocks) for q, then k_blocks for k, and as many for v if there is
 * one. grid (blocks, tiles of rows). */
typedef struct ek_cuda_warp_heads_args {
    ek_cuda_linear_args q, k;
    ek_cuda_ptr v_codes, v_scales, v;
    int32_t q_blocks, k_blocks;
} ek_cuda_warp_heads_args;

/* A drafter's step after its layers (kernels/sample/draft.cu). ek_draft_centroids: grid (rows), 1024 threads.
 * ek_draft_ordered: grid (any, rows), 256 threads. ek_draft_next: one block of 1024 threads. */
typedef struct ek_cuda_draft_args {
    ek_cuda_ptr score, chosen; /* f32 [rows][n_centroids]; int32 [rows][top_k] */
    ek_cuda_ptr ordering;      /* int32: the tokens of centroid c at [c per, (c + 1) per) */
    ek_cuda_ptr y;             /* f32 [rows][head.k] */
    ek_cuda_ptr best;          /* 2 uint64 per row: the best key, as in ek_argmax; zero before and after a step */
    ek_cuda_ptr id, draft, n;  /* int32: the next token to feed; [rows][max] drafted tokens; their number */
    ek_cuda_embed_args head;   /* the head's matrix; h, id, ldh, factor, first and n are unused */
    int32_t n_centroids, top_k, vocab_size, rows, max;
} ek_cuda_draft_args;

/* ek_soft_cap_check: x = cap * tanh(x / cap), with cap; bad[row] = 1 if the row then holds NaN or infinity. grid (any,
 * rows), 256 threads. */
typedef struct ek_cuda_cap_args {
    ek_cuda_ptr x, bad; /* bad: int32, zero before */
    ek_cuda_ptr digest; /* 0, or uint64 per row, zero before: the row's ek_logits_digest is added */
    int64_t ld;
    float cap; /* 0: none */
    int32_t n;
} ek_cuda_cap_args;

#endif
