#include "cuda/attn/choose.h"

#include "ops/kv/kv_codec.h"

bool ek_cuda_attn_has_prompts(ek_kv_format k, const ek_cuda_chip *chip)
{
    return ek_cuda_attn_prompt_plan(k, chip).name;
}

/* A tile of prompts is one block, for all segments, so few tiles leave multiprocessors idle. Tiles of few queries have
 * a block per segment, which use all; a query and key takes them longer: ek_attn_deep_DIM by a third, other floats
 * three times, integers twice, or five times where keys and values do not stay in the second-level cache
 * (docs/log/2026-11-29-pieces.md). */
int ek_cuda_attn_idle_prompts(int ratio, int head_dim, ek_kv_format k, ek_kv_format v, int max_segments,
                              const ek_cuda_chip *chip)
{
    const int all = chip->multiprocessors;
    if (ek_kv_rotated(k)) return max_segments > EK_CUDA_ATTN_JOINED ? all / 5 : all * 4 / 9;
    return ek_cuda_attn_deep_fits(ratio, head_dim, k, v, chip) ? all * 3 / 4 : all / 3;
}

/* One or two rows: small tiles, for more blocks of threads. */
int ek_cuda_attn_few_tile(int ratio, int n_rows)
{
    int tile = 2;
    while (tile < 8 && tile < ratio && n_rows > 2) tile *= 2;
    return tile;
}

/* A block's time does not depend on its queries, up to 8: as many as a run has. With a multiprocessor for each block,
 * two, whose heads and rows take the least. */
int ek_cuda_attn_int_tile(int max_queries, ek_kv_format k, ek_kv_format v, int n_twos, const ek_cuda_chip *chip)
{
    int tile = 2;
    if (ek_cuda_attn_int_owns(k, v, n_twos, chip)) return tile;
    while (tile < EK_CUDA_ATTN_INT_TILE && tile < max_queries) tile *= 2;
    return tile;
}

/* The largest part of its time is a tile's own, so they are small as long as their blocks of threads all have a
 * multiprocessor, or, of two queries and more, half of one where a tile has one segment. Of 4 queries at most: of 8,
 * half as many blocks are slower for every batch and depth that was measured (docs/cuda/attention.md). */
int ek_cuda_attn_half_tile(int ratio, int n_kv_heads, int n_segments, int max, const ek_cuda_chip *chip)
{
    int tile = 1;
    while (tile < 4 && tile < ratio &&
           n_segments * n_kv_heads * ((ratio + tile - 1) / tile) >
               (tile > 1 && max == 1 ? 2 : 1) * chip->multiprocessors)
        tile *= 2;
    return tile;
}

/* It has few warps, and gains once multiprocessors have more than a block each. */
bool ek_cuda_attn_goes_deep(int ratio, int head_dim, ek_kv_format k, ek_kv_format v, int tile, int n_items,
                            const ek_cuda_chip *chip)
{
    return tile == EK_CUDA_ATTN_DEEP_TILE && n_items > chip->multiprocessors &&
           ek_cuda_attn_deep_fits(ratio, head_dim, k, v, chip);
}
