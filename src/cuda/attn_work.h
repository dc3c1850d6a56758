/* The work list of a call of attention on the device: tiles of queries, and one work item per tile and segment. The
 * division affects only speed; no bit depends on it (ops/attn/attn.h). Nothing is allocated. */
#ifndef EK_CUDA_ATTN_WORK_H
#define EK_CUDA_ATTN_WORK_H

#include <stdbool.h>

#include "cuda/args.h"
#include "cuda/chip.h"
#include "ops/attn/attn.h"

typedef struct ek_cuda_attn_work {
    ek_cuda_attn_tile *tiles; /* ek_cuda_attn_max_tiles entries */
    ek_cuda_attn_item *items; /* max_items entries; NULL: no items are needed (attn_prompt) */
    int max_tiles, max_items;
    int n_tiles, n_items; /* n_items is also the number of leaves */
    int max_segments;     /* maximum per tile */
} ek_cuda_attn_work;

/* The maximum number of tiles of n_rows rows. */
int ek_cuda_attn_max_tiles(int n_rows, int n_heads, int n_kv_heads, int tile);

/* Appends rows [first, end) to w, divided into tiles of up to `tile` queries per KV head. Adjacent rows of one view
 * that begin in one segment share tiles; tiles stay in order. ETOOLARGE if w has no room; w is unchanged then. */
ek_err ek_cuda_attn_add(ek_cuda_attn_work *w, const ek_attn_row *rows, int first, int end, int n_heads, int n_kv_heads,
                        int tile);

/* Writes the items in the form of ek_attn_half_N, for rows whose views have `ld_pages` entries each in `pages`. */
void ek_cuda_attn_starts(ek_cuda_attn_start *out, const ek_cuda_attn_work *w, const ek_attn_row *rows,
                         const int32_t *pages, int64_t ld_pages);

/* Whether ek_attn_half_N computes these (both formats f16). It finishes its queries and joins its leaves itself, which
 * is faster for tiles with at most EK_CUDA_ATTN_JOINED leaves. */
bool ek_cuda_attn_half_fits(int head_dim, ek_kv_format k, ek_kv_format v);
/* Whether ek_attn_int_DIM computes these (both formats in integers); it does the same for any number of leaves. */
bool ek_cuda_attn_int_fits(int head_dim, ek_kv_format k, ek_kv_format v);
/* Whether ek_attn_int_own_DIM computes the n_items segments of tiles of two queries; and ek_attn_int_two_DIM. */
bool ek_cuda_attn_int_owns(ek_kv_format k, ek_kv_format v, int n_items, const ek_cuda_chip *chip);
bool ek_cuda_attn_int_is_many(ek_kv_format k, ek_kv_format v, int n_items, const ek_cuda_chip *chip);
/* The kernel of leaves for a tile, its threads and dynamic shared memory. whole: ek_attn_half_N, or for attention in
 * integers ek_attn_int_DIM, ek_attn_int_own_DIM or ek_attn_int_two_DIM, which must fit. Otherwise ek_attn_segment_N (2,
 * 4 or 8) or ek_attn_int; then ek_heads finishes the queries, and ek_attn_join or ek_attn_int_join joins the leaves. */
typedef struct ek_cuda_attn_segment {
    const char *name;
    unsigned threads;
    size_t shared;
    int slots; /* ek_attn_half_N: pieces of its ring, more if n_items leave a multiprocessor to each block */
    int tile;  /* for prompts: queries */
} ek_cuda_attn_segment;
ek_cuda_attn_segment ek_cuda_attn_segment_plan(int tile, int head_dim, ek_kv_format k, ek_kv_format v, bool whole,
                                               int n_items, const ek_cuda_chip *chip);

/* Queries per tile of ek_attn_int_many, or of ek_attn_int_coop if the chip has matrices; 0: no such kernel for the
 * chip, the formats or the head. And the bytes of a tile's codes. */
int ek_cuda_attn_many_tile(int head_dim, ek_kv_format k, ek_kv_format v, const ek_cuda_chip *chip);
size_t ek_cuda_attn_code_bytes(int tile, int head_dim);
/* Whether a tile of this many queries is one of them. */
bool ek_cuda_attn_is_many(int tile, ek_kv_format v, const ek_cuda_chip *chip);
/* Whether ek_attn_int_1, _2 or _4 computes such tiles, on a plain chip: with ended they join the leaves themselves. */
bool ek_cuda_attn_few_joins(int tile, ek_kv_format v, const ek_cuda_chip *chip);

/* Whether ek_attn_deep_DIM computes these: it computes the leaves of ek_attn_segment_8 if many segments are seen. A
 * tile is then EK_CUDA_ATTN_DEEP_TILE queries of one row. */
bool ek_cuda_attn_deep_fits(int ratio, int head_dim, ek_kv_format k, ek_kv_format v, const ek_cuda_chip *chip);
ek_cuda_attn_segment ek_cuda_attn_deep_plan(int head_dim);

/* Levels of a stack of T for tiles of up to max_segments segments. */
int ek_cuda_attn_levels(int max_segments);

/* The kernel for prompts with keys in this format, its threads, shared memory and tile; slots: blocks per
 * multiprocessor. name NULL: the chip has none, and runs of any length are divided into tiles of few queries. */
ek_cuda_attn_segment ek_cuda_attn_prompt_plan(ek_kv_format k_format, int head_dim, const ek_cuda_chip *chip);
/* Floats of a block's stack. */
size_t ek_cuda_attn_stack_floats(int levels, int head_dim);

/* Parts of 2^part segments of prompts' tiles, in integers: a block of threads computes a part, and ek_attn_int_join
 * joins the nodes of a tile, which begin with its leaf0. The functions return the number of parts; the floats for them,
 * EK_CUDA_PROMPT_TILE queries of head_dim + 2 each; and write them, parts of the same keys adjacent, with every tile's
 * leaf0. */
int ek_cuda_attn_parts(const ek_cuda_attn_tile *tiles, int n_tiles, int part);
size_t ek_cuda_attn_node_floats(int head_dim);
void ek_cuda_attn_cut(ek_cuda_attn_tile *parts, ek_cuda_attn_tile *tiles, int n_tiles, int part);

/* The kernel that joins leaves: grid (tiles, tile, z). */
typedef struct ek_cuda_attn_joiner {
    const char *name;
    unsigned z, threads;
} ek_cuda_attn_joiner;
ek_cuda_attn_joiner ek_cuda_attn_join_plan(ek_kv_format v_format, int head_dim);

/* Fills the fields of kv that follow from the formats and the head's dims. */
void ek_cuda_kv_formats(ek_cuda_kv *kv, ek_kv_format k, ek_kv_format v, int head_dim);

#endif
