/* The choice of attention's kernel for the rows of a step, and of the queries per tile, by the chip's figures. No bit
 * depends on it. tests/cuda/attn_choices.txt lists an H100's choices. */
#ifndef EK_CUDA_ATTN_CHOOSE_H
#define EK_CUDA_ATTN_CHOOSE_H

#include "cuda/attn_work.h"

enum { EK_CUDA_PROMPT_QUERIES = 128 }; /* length of a run of queries from which on ek_attn_prompt computes it */

/* Whether the chip has a kernel of prompts, ek_attn_prompt. */
bool ek_cuda_attn_has_prompts(ek_kv_format k, const ek_cuda_chip *chip);
/* Divides n_tiles tiles of prompts into at most at_most parts of 2^n segments, if `floats` suffice for the stacks of
 * all blocks and the nodes. Returns n; -1: undivided. */
int ek_cuda_attn_part(const ek_cuda_attn_tile *tiles, int n_tiles, int at_most, size_t floats, ek_kv_format k,
                      int head_dim, const ek_cuda_chip *chip);
/* The number of prompts' tiles in a launch up to which tiles of few queries are faster, if a row sees up to
 * max_segments. */
int ek_cuda_attn_idle_prompts(int ratio, int head_dim, ek_kv_format k, ek_kv_format v, int max_segments,
                              const ek_cuda_chip *chip);
/* Queries per tile of few queries, in a step of n_rows rows of few. */
int ek_cuda_attn_few_tile(int ratio, int n_rows);
/* Queries per tile of attention in integers; max_queries: the longest run; n_twos: segments with tiles of two. */
int ek_cuda_attn_int_tile(int max_queries, int head_dim, ek_kv_format k, ek_kv_format v, int n_twos,
                          const ek_cuda_chip *chip);
/* The same for few rows on a device that is not CUDA's. n_segments: the segments that all n_rows rows see. max_tiles:
 * available tiles. 0: the rows are not few. */
int ek_cuda_attn_plain_tile(int ratio, int n_rows, int n_kv_heads, int n_segments, int max_tiles);
/* The same for ek_attn_half. n_segments: the segments of all rows; max: those of one row. */
int ek_cuda_attn_half_tile(int ratio, int n_kv_heads, int n_segments, int max, const ek_cuda_chip *chip);
/* Whether ek_attn_deep_DIM computes the n_items segments of tiles. */
bool ek_cuda_attn_goes_deep(int ratio, int head_dim, ek_kv_format k, ek_kv_format v, int tile, int n_items,
                            const ek_cuda_chip *chip);

#endif
