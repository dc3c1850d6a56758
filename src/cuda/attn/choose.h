/* Which kernel of attention computes the rows of a step, and of how many queries its tiles are: by the chip's own
 * numbers. No bit depends on it. tests/cuda/attn_choices.txt has what an H100 gets. */
#ifndef EK_CUDA_ATTN_CHOOSE_H
#define EK_CUDA_ATTN_CHOOSE_H

#include "cuda/attn_work.h"

enum { EK_CUDA_PROMPT_QUERIES = 128 }; /* of a run, from which on ek_attn_prompt computes it */

/* Whether the chip has a kernel of prompts, ek_attn_prompt. */
bool ek_cuda_attn_has_prompts(ek_kv_format k, const ek_cuda_chip *chip);
/* Parts of 2^n segments into which n_tiles tiles of prompts are cut, up to `at_most` of them, where there are `floats`
 * for the stacks of all blocks and the nodes: n, or -1, not at all. */
int ek_cuda_attn_part(const ek_cuda_attn_tile *tiles, int n_tiles, int at_most, size_t floats, ek_kv_format k,
                      int head_dim, const ek_cuda_chip *chip);
/* Tiles of prompts in a launch up to which tiles of few queries are faster, where a row sees up to max_segments. */
int ek_cuda_attn_idle_prompts(int ratio, int head_dim, ek_kv_format k, ek_kv_format v, int max_segments,
                              const ek_cuda_chip *chip);
/* Queries per tile of few queries, in a step of n_rows rows of few. */
int ek_cuda_attn_few_tile(int ratio, int n_rows);
/* Queries per tile of attention in integers, where the longest run has max_queries and tiles of two would have n_twos
 * segments. */
int ek_cuda_attn_int_tile(int max_queries, int head_dim, ek_kv_format k, ek_kv_format v, int n_twos,
                          const ek_cuda_chip *chip);
/* The same for few rows on a device that is not CUDA's: n_segments that all n_rows rows see, tiles that there is room
 * for; 0: they are not few. */
int ek_cuda_attn_plain_tile(int ratio, int n_rows, int n_kv_heads, int n_segments, int max_tiles);
/* The same of ek_attn_half: n_segments that all rows see, max of them one row. */
int ek_cuda_attn_half_tile(int ratio, int n_kv_heads, int n_segments, int max, const ek_cuda_chip *chip);
/* Whether ek_attn_deep_DIM computes n_items segments of tiles. */
bool ek_cuda_attn_goes_deep(int ratio, int head_dim, ek_kv_format k, ek_kv_format v, int tile, int n_items,
                            const ek_cuda_chip *chip);

#endif
