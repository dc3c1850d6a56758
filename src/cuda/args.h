/* The arguments of kernels: plain structures with the same layout in C and CUDA. Pointers are device addresses.
 *
 * A kernel takes one structure by value and nothing else, so that a launch is (kernel, grid, &args). Each kernel
 * computes its operator's contract bit for bit (named at each section; docs/CUDA.md). */
#ifndef EK_CUDA_ARGS_H
#define EK_CUDA_ARGS_H

#include <stdint.h>

typedef uint64_t ek_cuda_ptr; /* a device address; 0: none */

/* --- rows (ops/rows/rows.h). Row r of x starts at x + r * ldx elements. One block of threads per row if a row is
 * reduced; otherwise blocks of 256 threads over all elements (grid.x) of a row (grid.y). --- */

typedef struct ek_cuda_rows_args {
    ek_cuda_ptr y, x, w; /* w: weights of a norm, up of gelu_mul, b of add_scale; a norm may have none (0) */
    int64_t ldy, ldx, ldw;
    float a; /* eps, factor or cap */
    int32_t n;
} ek_cuda_rows_args;

/* Rotates n_heads heads of a row; cos and sin are rows of `rotated` floats for the row's position. */
typedef struct ek_cuda_rope_args {
    ek_cuda_ptr x, cos, sin;
    int64_t ldx, ld_table;
    int32_t n_heads, head_dim, half, rotated;
} ek_cuda_rope_args;

/* out[r]: argmax as int32, or a row sum as f32. key: one zeroed uint64 per row, for argmax. */
typedef struct ek_cuda_reduce_args {
    ek_cuda_ptr out, x, key;
    int64_t ldx;
    float a; /* exp_sum: the maximum */
    int32_t n;
} ek_cuda_reduce_args;

/* y[i] = f(x[i]), where f is exp, tanh, ln or gelu; and the split of the exponent, which also writes n. For tests of
 * math. */
typedef struct ek_cuda_math_args {
    ek_cuda_ptr y, n_out, x;
    int64_t n;
    int32_t which; /* 0 split, 1 exp, 2 tanh, 3 ln, 4 gelu */
} ek_cuda_math_args;

/* --- products (ops/linear/linear.h). Weights have the layout of cuda/product/layout.h. A quantised row is a record
 * like that of ek_acts, without the parts that only the CPU needs:
 *     h        k bytes, rounded up to 64
 *     l        the same, at `low`
 *     groups   {sx, X} as two floats; at groups[0] for one limb, at groups[1] for two */

enum { EK_CUDA_MAX_LEAVES = 255 };

typedef struct ek_cuda_acts {
    ek_cuda_ptr q;
    int64_t ldq, low, groups[2]; /* bytes */
    int32_t k, a_group;
} ek_cuda_acts;

/* grid (ceil(groups / 8), rows), 256 threads: a warp per group. */
typedef struct ek_cuda_quantize_args {
    ek_cuda_acts to;
    ek_cuda_ptr x; /* f32 */
    int64_t ldx;
} ek_cuda_quantize_args;

typedef struct ek_cuda_linear_args {
    ek_cuda_acts x;            /* Form Q */
    ek_cuda_ptr f;             /* Form F: f32, ldf elements per row */
    ek_cuda_ptr codes, scales; /* Form F: codes are the CPU's panels */
    ek_cuda_ptr y, stack;      /* stack: ek_product_tile's nodes of T: 32 KB per block and level */
    ek_cuda_ptr operand;       /* ek_product_wide: the operand written by ek_arrange */
    int64_t ldf, ldy;
    int32_t n, rows;
    int32_t group_shift;                          /* log2 of the weights that share a scale */
    int32_t zero, biased, f32_scales, f16_scales; /* scales are bf16 unless one of these is set */
    int32_t pass;                                 /* units of 64 inputs between two exchanges; a multiple of 16 */
    int32_t levels;                               /* of a stack */
    /* ek_product_*_tile: units per part, a power of two of leaves; 0: no parts. y then has `rows` rows of ldy per part:
     * nodes of T, which ek_product_join adds. */
    int32_t split;
    int32_t share, slots; /* ek_product_warp_*: panels per share, and chunks in flight per warp */
} ek_cuda_linear_args;

/* Constants for launches of ek_product_*_wide (kernels/product/wide_product.cuh): threads and panels of a block, blocks
 * per multiprocessor, its columns, units of 64 inputs per slot, slots, bytes of two units of activations. */
enum {
    EK_CUDA_WIDE_GROUPS = 1,
    EK_CUDA_WIDE_TALL = 2,
    EK_CUDA_WIDE_PANELS = EK_CUDA_WIDE_GROUPS * EK_CUDA_WIDE_TALL * 4
};
enum { EK_CUDA_WIDE_BLOCKS = 3, EK_CUDA_WIDE_SLOTS = 2, EK_CUDA_WIDE_CONTROL = 512 };
enum {
    EK_CUDA_WIDE_COLUMNS = 64,
    EK_CUDA_WIDE_PAIR = EK_CUDA_WIDE_COLUMNS * 144
}; /* bytes for one limb; for two, slightly more than needed */
#define EK_CUDA_WIDE_UNITS(bits) ((bits) == 4 ? 4 : 2)
#define EK_CUDA_WIDE_SHARED(bits)                                            \
    (EK_CUDA_WIDE_SLOTS * EK_CUDA_WIDE_UNITS(bits) *                         \
         (EK_CUDA_WIDE_PAIR / 2 + EK_CUDA_WIDE_PANELS * ((bits)*128 + 64)) + \
     EK_CUDA_WIDE_CONTROL)

/* Constants for ek_product_mid_* (kernels/product/mid_product.cuh): units per slot, threads, panels, slots, bytes of a
 * slot and of a node of T of a block with oct x 8 columns: 1, 2 or 4. */
enum { EK_CUDA_MID_CHUNK = 2, EK_CUDA_MID_THREADS = 128, EK_CUDA_MID_PANELS = 8, EK_CUDA_MID_MAX_OCT = 4 };
#define EK_CUDA_MID_SLOTS(oct)       ((oct) == 1 ? 7 : 4)
#define EK_CUDA_MID_SLOT(oct, limbs) (EK_CUDA_MID_CHUNK * (EK_CUDA_MID_PANELS * 576 + (oct)*8 * (64 + 8 / (limbs))))
#define EK_CUDA_MID_NODE(oct, limbs) (EK_CUDA_MID_PANELS * 16 * (oct)*8 / (limbs)*4)

enum { EK_CUDA_WARP_GROUPS = 8 }; /* ek_product_warp_*: groups per chunk */

/* ek_product_join: y = T over parts. grid (ceil(n / 256), rows), 256 threads. */
typedef struct ek_cuda_join_args {
    ek_cuda_ptr y, parts; /* parts: [n_parts][rows][n] */
    int64_t ldy;
    int32_t n, rows, n_parts;
} ek_cuda_join_args;

/* --- keys and values (ops/kv/kv.h). Pages hold the bytes of ops/kv/kv_codec.h. A page table is an array of
 * int32 page numbers, as in ek_kv_view; view v's table starts at pages + v * ld_pages entries, -1: no page. */

typedef struct ek_cuda_kv {
    ek_cuda_ptr pages;
    ek_cuda_ptr base; /* the layer's block in page 0 */
    int64_t stride;   /* bytes from a page to the next */
    int64_t ld_pages;
    int64_t k_bytes, v_bytes; /* bytes of one KV head in a page */
    int32_t k_format, v_format, head_dim, n_kv_heads;
    int32_t k_bits, v_bits, k_shift, v_shift; /* bits of codes; log2 of the dims that share a scale */
} ek_cuda_kv;

typedef struct ek_cuda_place { /* the place of a row's token */
    int32_t view, pos;
} ek_cuda_place;

/* The steps from a head to a query or key (ops/rows/rows.h): its norm with weights, then its rotation by a row of cos
 * and sin. */
typedef struct ek_cuda_head {
    ek_cuda_ptr norm, cos, sin; /* norm 0: the head is final */
    int64_t ld_table;
    float eps;
    int32_t rotated;
} ek_cuda_head;

/* ek_kv_store: grid (n_kv_heads, rows, 2), 128 threads. z = 0: keys, finished by `head`; 1: values, normed without
 * weights if there is a head.norm. k and v are only read and may be the same. ek_kv_store_rows_DIM, 256 or 512: for
 * prompts in f16, without a start and with a head.norm: grid (n_kv_heads, ceil(rows / EK_CUDA_STORE_ROWS), 2),
 * EK_CUDA_STORE_THREADS. ek_kv_store_codes_DIM: the same in i12 and i8, with or without a start. */
enum { EK_CUDA_STORE_ROWS = 32, EK_CUDA_STORE_THREADS = 256 };

typedef struct ek_cuda_store_args {
    ek_cuda_kv kv, start; /* start: for entries [0, n_start) of the tables */
    int64_t n_start;
    ek_cuda_ptr place; /* ek_cuda_place per row */
    ek_cuda_ptr k, v;  /* f32, n_kv_heads x head_dim per row */
    int64_t ldk, ldv;
    ek_cuda_head head;
    int32_t rows; /* ek_kv_store_rows, ek_kv_store_codes */
} ek_cuda_store_args;

/* --- attention (ops/attn/attn.h). A tile is up to `tile` consecutive queries (row by row, head by head) of one view
 * that read one KV head and begin in the same segment; `tile` is 2, 4 or 8 for attn_leaf and 64 for attn_prompt. --- */

typedef struct ek_cuda_attn_row {
    int32_t lo, end;
} ek_cuda_attn_row;

typedef struct ek_cuda_attn_tile {
    int32_t row, head; /* the first query: row, head within the KV head's group */
    int32_t n_q, kv_head;
    int32_t view;
    int32_t seg0, n_seg; /* the segments that any of the queries touches */
    int32_t leaf0;       /* number of the first leaf in scratch memory; unused by attn_prompt */
} ek_cuda_attn_tile;

/* One work item of attn_leaf: a segment of a tile. */
typedef struct ek_cuda_attn_item {
    int32_t tile, seg; /* tile -1: no work */
} ek_cuda_attn_item;

/* A work item of attn_half, with all data that a block needs to begin. A load that waits for another one would delay
 * every layer. */
typedef struct ek_cuda_attn_start {
    ek_cuda_attn_tile t;
    int32_t tile, seg; /* tile -1: no work */
    int32_t lo, end;   /* visible keys of the tile's first row */
    int32_t page[4];   /* entries of the view's table for the segment */
} ek_cuda_attn_start;

typedef struct ek_cuda_attn_args {
    ek_cuda_kv kv, start; /* start: for entries [0, n_start) of the tables */
    int64_t n_start;      /* whole segments */
    ek_cuda_ptr rows;     /* ek_cuda_attn_row */
    ek_cuda_ptr tiles;    /* ek_cuda_attn_tile */
    /* ek_cuda_attn_item, one per block of attn_leaf; for attn_half ek_cuda_attn_start. attn_int_prompt: 0; or, if tiles
     * are parts of 2^n segments, the stacks, and leaf_o, leaf_l and leaf_m have a node per part. */
    ek_cuda_ptr items;
    ek_cuda_ptr q, o; /* n_heads x head_dim per row */
    int64_t ldq, ldo;
    /* leaves: o [leaf][tile][head_dim], l [leaf][tile], m [leaf][tile]. attn_prompt: stacks of T per block of threads,
     * o [block][level][64][head_dim]; l and m unused. */
    ek_cuda_ptr leaf_o, leaf_l, leaf_m;
    int32_t ratio; /* query heads per KV head */
    int32_t n_tiles;
    int32_t tile;    /* queries of a tile */
    int32_t levels;  /* attn_prompt: levels of a stack */
    int32_t slots;   /* attn_half: pieces of its ring, which fits the launch's shared memory; attn_int_join: a leaf is a
                        node of 2^slots segments */
    ek_cuda_acts to; /* records of o, if o is also quantised; q 0: o is not. head_dim is then whole groups */
    ek_cuda_head head; /* attn_half and attn_int_DIM: how rows of q become queries */
    /* attn_half, attn_int_DIM and attn_deep: with `single`, every view has one row in the step, and the row's last
     * visible key is its own. For attn_half and attn_int_DIM, k and v are then the new keys and values in the form of
     * ek_kv_store, and the kernel stores them itself; 0: they are already in their pages. */
    ek_cuda_ptr k, v, k_norm;
    int64_t ldk;
    int32_t single;
    int32_t starts; /* attn_int_DIM: items are ek_cuda_attn_start */
    /* attn_half: int32 per tile, zero before and after. The last block of a tile joins its leaves, at most
     * EK_CUDA_ATTN_JOINED; 0: attn_join does it in a separate launch. attn_int_DIM: int32 per leaf; any number of
     * leaves. attn_prompt: one int32, the number of requested tiles, zero before and after. */
    ek_cuda_ptr ended;
} ek_cuda_attn_args;

enum { EK_CUDA_ATTN_JOINED = 8, EK_CUDA_ATTN_PIECE = 8192 };
/* Pieces of a ring, for few, some and many blocks. */
enum { EK_CUDA_ATTN_FEW_SLOTS = 24, EK_CUDA_ATTN_SLOTS = 12, EK_CUDA_ATTN_MANY_SLOTS = 8 };
/* ek_attn_deep_DIM: queries per tile; maximum pieces of its ring; shared memory of queries and ring. A multiprocessor
 * has room for four such blocks and a block of attn_join. */
enum { EK_CUDA_ATTN_DEEP_TILE = 8, EK_CUDA_ATTN_DEEP_SLOTS = 16, EK_CUDA_ATTN_DEEP_SHARED = 55296 };
enum { EK_CUDA_PROMPT_TILE = 64, EK_CUDA_PROMPT_LEVELS = 12, EK_CUDA_PROMPT_SHARED = 206576 };
enum { EK_CUDA_PROMPT_SMALL_TILE = 32, EK_CUDA_PROMPT_SMALL_SHARED = 79280 }; /* ek_attn_prompt_small_* */
/* ek_attn_int_many, ek_attn_int_coop (vulkan/shaders/attn_int_many.glsl): queries per tile; a.k has their codes,
 * written by ek_attn_int_queries, grid (tiles, tile / 8). */
enum { EK_CUDA_ATTN_MANY_TILE = 16, EK_CUDA_ATTN_COOP_TILE = 32 };
/* ek_attn_int and ek_attn_int_prompt: maximum queries per tile of few; for prompts the threads, the shared memory, and
 * leaf_o: stacks as in attn_prompt, with head_dim rounded up to 64 and 2 more. */
enum { EK_CUDA_ATTN_INT_TILE = 8, EK_CUDA_INT_PROMPT_THREADS = 256, EK_CUDA_INT_PROMPT_SHARED = 203104 };

/* --- sampling (engine/sample/sampler.h). */

enum { EK_CUDA_UNDECIDED = -3, EK_CUDA_MAX_CANDIDATES = 1024, EK_CUDA_SORTERS = 8 };

typedef struct ek_cuda_bias { /* entries of one token are adjacent and in order */
    int32_t token;
    float bias;
} ek_cuda_bias;

typedef struct ek_cuda_count { /* a token of the history, listed once */
    int32_t token, replied;
} ek_cuda_count;

/* A row to sample; an array of them is in device memory. */
typedef struct ek_cuda_sample {
    ek_cuda_ptr logits; /* vocab_size floats; changed to z */
    ek_cuda_ptr bias, count;
    ek_cuda_ptr allowed; /* 64-bit words, a bit per token; 0: all are allowed */
    uint64_t seed;
    int32_t n_bias, n_count;
    float temperature, top_p, min_p, repetition, presence, frequency;
    int32_t top_k;
    int32_t pos; /* the position of the sampled token */
} ek_cuda_sample;

typedef struct ek_cuda_sample_args {
    ek_cuda_ptr rows;     /* ek_cuda_sample */
    ek_cuda_ptr suppress; /* int32 */
    ek_cuda_ptr best;     /* uint64 per row, zero before ek_sample_scale: the largest value and its token */
    ek_cuda_ptr draw;     /* 2 uint64 per row, zero before ek_sample_all */
    ek_cuda_ptr block;    /* f32 [row][ceil(vocab_size / 64)]: block maxima */
    ek_cuda_ptr leaf;     /* f32 [row][ceil(vocab_size / 256)]: sums of weights */
    ek_cuda_ptr token;    /* int32 per row, the result: -1: all masked; EK_CUDA_UNDECIDED: ek_sample_sort decides */
    ek_cuda_ptr sorted;   /* ek_sample_sort: 2 vocab_size uint64 per block */
    int32_t n_suppress, vocab_size, n_rows;
} ek_cuda_sample_args;

#endif
