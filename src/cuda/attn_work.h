/* The work list of a call of attention on the device: tiles of queries, and one work item per tile and
 * segment. Only speed decides the cut; no bit depends on it (ops/attn/attn.h). Nothing is allocated. */
#ifndef EK_CUDA_ATTN_WORK_H
#define EK_CUDA_ATTN_WORK_H

#include <stdbool.h>

#include "cuda/args.h"
#include "cuda/chip.h"
#include "ops/attn/attn.h"

typedef struct ek_cuda_attn_work {
    ek_cuda_attn_tile *tiles; /* room for ek_cuda_attn_max_tiles */
    ek_cuda_attn_item *items; /* room for max_items; NULL: no items are wanted (attn_prompt) */
    int max_tiles, max_items;
    int n_tiles, n_items; /* n_items is also the number of leaves */
    int max_segments;     /* of a tile */
} ek_cuda_attn_work;

/* Tiles that any n_rows rows can need. */
int ek_cuda_attn_max_tiles(int n_rows, int n_heads, int n_kv_heads, int tile);

/* Cuts rows [first, end), adjacent ones of one view that begin in one segment together, into tiles of up to `tile`
 * queries per KV head, behind what w holds already; tiles stay in order. ETOOLARGE if the room does not suffice, and w
 * is as before. */
ek_err ek_cuda_attn_add(ek_cuda_attn_work *w, const ek_attn_row *rows, int first, int end, int n_heads, int n_kv_heads,
                        int tile);

/* The items as ek_attn_half_N reads them, of rows whose views have `ld_pages` entries each in `pages`. */
void ek_cuda_attn_starts(ek_cuda_attn_start *out, const ek_cuda_attn_work *w, const ek_attn_row *rows,
                         const int32_t *pages, int64_t ld_pages);

/* Whether ek_attn_half_N takes these (both formats f16): it finishes its queries and joins its leaves itself, which is
 * faster where a tile has EK_CUDA_ATTN_JOINED leaves or fewer. */
bool ek_cuda_attn_half_fits(int head_dim, ek_kv_format k, ek_kv_format v);
/* Whether ek_attn_int_DIM takes these (both formats in integers): the same, of any number of leaves. */
bool ek_cuda_attn_int_fits(int head_dim, ek_kv_format k, ek_kv_format v);
/* Whether ek_attn_int_own_DIM computes n_items segments of tiles of two queries. */
bool ek_cuda_attn_int_owns(ek_kv_format k, ek_kv_format v, int n_items, const ek_cuda_chip *chip);
/* The kernel of leaves for a tile, its threads and dynamic shared memory. whole: ek_attn_half_N, or of attention in
 * integers ek_attn_int_DIM or ek_attn_int_own_DIM, which must fit; else ek_attn_segment_N (2, 4 or 8), or ek_attn_int,
 * whose queries ek_heads finishes and whose leaves ek_attn_join, or ek_attn_int_join, joins. */
typedef struct ek_cuda_attn_segment {
    const char *name;
    unsigned threads;
    size_t shared;
    int slots; /* ek_attn_half_N: pieces of its ring, more where n_items leave a multiprocessor to each block */
    int tile;  /* of prompts: queries */
} ek_cuda_attn_segment;
ek_cuda_attn_segment ek_cuda_attn_segment_plan(int tile, int head_dim, ek_kv_format k, ek_kv_format v, bool whole,
                                               int n_items, const ek_cuda_chip *chip);

/* Queries of a tile of ek_attn_int_many, or ek_attn_int_coop where the chip has matrices; 0: the chip, or the formats
 * or the head, have no such kernel. Bytes of a tile's codes. */
int ek_cuda_attn_many_tile(int head_dim, ek_kv_format k, ek_kv_format v, const ek_cuda_chip *chip);
size_t ek_cuda_attn_code_bytes(int tile, int head_dim);
/* Whether a tile of so many queries is one of these. */
bool ek_cuda_attn_is_many(int tile, ek_kv_format v, const ek_cuda_chip *chip);

/* Whether ek_attn_deep_DIM takes these: where many segments are seen, it computes the leaves of ek_attn_segment_8. A
 * tile is EK_CUDA_ATTN_DEEP_TILE queries of one row then. */
bool ek_cuda_attn_deep_fits(int ratio, int head_dim, ek_kv_format k, ek_kv_format v, const ek_cuda_chip *chip);
ek_cuda_attn_segment ek_cuda_attn_deep_plan(int head_dim);

/* Levels of a stack of T for tiles of up to max_segments segments. */
int ek_cuda_attn_levels(int max_segments);

/* The kernel of prompts for keys in this format, its threads, shared memory and tile; slots: blocks of a
 * multiprocessor. name NULL: the chip has none, and runs of any length are cut into tiles of few queries. */
ek_cuda_attn_segment ek_cuda_attn_prompt_plan(ek_kv_format k_format, int head_dim, const ek_cuda_chip *chip);
/* Floats of a block's stack. */
size_t ek_cuda_attn_stack_floats(int levels, int head_dim);

/* Parts of 2^part segments of tiles of prompts, in integers: a block of threads takes a part, and ek_attn_int_join
 * joins the nodes of a tile, which begin with its leaf0. How many there are; where they take EK_CUDA_PROMPT_TILE
 * queries of head_dim and 2 floats each; writes them, those of the same keys together, and every tile's leaf0. */
int ek_cuda_attn_parts(const ek_cuda_attn_tile *tiles, int n_tiles, int part);
size_t ek_cuda_attn_node_floats(int head_dim);
void ek_cuda_attn_cut(ek_cuda_attn_tile *parts, ek_cuda_attn_tile *tiles, int n_tiles, int part);

/* The kernel that joins leaves: grid (tiles, tile, z). */
typedef struct ek_cuda_attn_joiner {
    const char *name;
    unsigned z, threads;
} ek_cuda_attn_joiner;
ek_cuda_attn_joiner ek_cuda_attn_join_plan(ek_kv_format v_format, int head_dim);

/* Fills the fields of kv that the formats and the head's dims decide. */
void ek_cuda_kv_formats(ek_cuda_kv *kv, ek_kv_format k, ek_kv_format v, int head_dim);

#endif
