#include "cuda/attn/choose.h"

#include "ops/kv/kv.h"
#include "ops/kv/kv_codec.h"

bool ek_cuda_attn_has_prompts(ek_kv_format k, const ek_cuda_chip *chip)
{
    return ek_cuda_attn_prompt_plan(k, EK_MAX_HEAD_DIM, chip).name;
}

/* Costs in segments of a block: about two for a tile's or a part's queries and results, one for the join, which is
 * another launch (docs/log/2026-11-29-parts.md). */
int ek_cuda_attn_part(const ek_cuda_attn_tile *tiles, int n_tiles, int at_most, size_t floats, ek_kv_format k,
                      int head_dim, const ek_cuda_chip *chip)
{
    const int blocks = chip->multiprocessors;
    int best = -1, max = 0;
    if (!ek_kv_rotated(k)) return -1;
    for (int i = 0; i < n_tiles; i++) max = tiles[i].n_seg > max ? tiles[i].n_seg : max;
    int least = (n_tiles + blocks - 1) / blocks * (max + 2);
    for (int part = 0; 1 << part < max; part++) {
        const int n = ek_cuda_attn_parts(tiles, n_tiles, part),
                  time = (n + blocks - 1) / blocks * ((1 << part) + 2) + 1;
        const size_t stacks = (size_t)blocks * ek_cuda_attn_stack_floats(ek_cuda_attn_levels(1 << part), head_dim);
        if (n > at_most || stacks + (size_t)n * ek_cuda_attn_node_floats(head_dim) > floats || time >= least) continue;
        least = time, best = part;
    }
    return best;
}

/* A tile of prompts is one block for all segments, so few tiles leave multiprocessors idle. Tiles of few queries have a
 * block per segment and use all multiprocessors, but they need more time per query and key: a third more in
 * ek_attn_deep_DIM, three times as much in other floats (docs/log/2026-11-29-pieces.md). Tiles of prompts in integers
 * are cut into parts, so they are better once a row sees more than a few segments. */
int ek_cuda_attn_idle_prompts(int ratio, int head_dim, ek_kv_format k, ek_kv_format v, int max_segments,
                              const ek_cuda_chip *chip)
{
    const int all = chip->multiprocessors;
    if (ek_kv_rotated(k)) return max_segments > EK_CUDA_ATTN_JOINED ? all / 40 : all / 5;
    return ek_cuda_attn_deep_fits(ratio, head_dim, k, v, chip) ? all * 3 / 4 : all / 3;
}

/* One or two rows: small tiles, for more blocks of threads. */
int ek_cuda_attn_few_tile(int ratio, int n_rows)
{
    int tile = 2;
    while (tile < 8 && tile < ratio && n_rows > 2) tile *= 2;
    return tile;
}

/* A block's time is the same for up to 8 queries, so a tile has as many as a run. If there is a multiprocessor for each
 * block, a tile has two queries, whose heads and rows take the least time. */
int ek_cuda_attn_int_tile(int max_queries, int head_dim, ek_kv_format k, ek_kv_format v, int n_twos,
                          const ek_cuda_chip *chip)
{
    enum { MANY = 64 }; /* number of queries from which on tiles of many are faster */
    const int many = ek_cuda_attn_many_tile(head_dim, k, v, chip);
    int tile = 2;
    if (many && max_queries >= MANY) return many;
    if (ek_cuda_attn_int_owns(k, v, n_twos, chip)) return tile;
    while (tile < EK_CUDA_ATTN_INT_TILE && tile < max_queries) tile *= 2;
    return tile;
}

/* A block's time grows with its queries, so a tile has one query while there are not too many blocks. */
int ek_cuda_attn_plain_tile(int ratio, int n_rows, int n_kv_heads, int n_segments, int max_tiles)
{
    enum { BLOCKS = 256 };
    for (int tile = 1; tile <= EK_CUDA_ATTN_INT_TILE; tile *= 2) {
        const int each = n_kv_heads * ((ratio + tile - 1) / tile);
        if (n_segments * each <= BLOCKS && n_rows * each <= max_tiles) return tile;
    }
    return 0;
}

/* Most of a tile's time does not depend on its queries. So tiles are small while each of their blocks has a
 * multiprocessor, or, with two or more queries and one segment per tile, half of one. A tile has at most 4 queries:
 * with 8, half as many blocks were slower for every measured batch and depth (docs/cuda/attention.md). */
int ek_cuda_attn_half_tile(int ratio, int n_kv_heads, int n_segments, int max, const ek_cuda_chip *chip)
{
    int tile = 1;
    while (tile < 4 && tile < ratio &&
           n_segments * n_kv_heads * ((ratio + tile - 1) / tile) >
               (tile > 1 && max == 1 ? 2 : 1) * chip->multiprocessors)
        tile *= 2;
    return tile;
}

/* The kernel has few warps, so it gains once multiprocessors have more than one block each. */
bool ek_cuda_attn_goes_deep(int ratio, int head_dim, ek_kv_format k, ek_kv_format v, int tile, int n_items,
                            const ek_cuda_chip *chip)
{
    return tile == EK_CUDA_ATTN_DEEP_TILE && n_items > chip->multiprocessors &&
           ek_cuda_attn_deep_fits(ratio, head_dim, k, v, chip);
}
