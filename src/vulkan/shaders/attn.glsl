// Code that the shaders of attention share (cuda/args.h): a tile's queries and the nodes of T.
#include "kv.glsl"

// ek_cuda_head
struct head_rule {
    uint64_t norm, cos, sin;
    int64_t ld_table;
    float eps;
    int rotated;
};

layout(set = 0, binding = 0, scalar) uniform Args {
    kv_pages kv, start;
    int64_t n_start;
    uint64_t rows, tiles, items;
    uint64_t q, o;
    int64_t ldq, ldo;
    uint64_t leaf_o, leaf_l, leaf_m;
    int ratio, n_tiles, tile, levels, slots, padding;
    acts to;
    head_rule head;
    uint64_t k, v, k_norm;
    int64_t ldk;
    int single, starts;
    uint64_t ended;
} a;

// ek_cuda_attn_tile
struct tile_of_queries {
    int row, head, n_q, kv_head, view, seg0, n_seg, leaf0;
};
layout(buffer_reference, scalar, buffer_reference_align = 4) readonly buffer Tiles { tile_of_queries at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) readonly buffer Pairs { ivec2 at[]; }; // rows, items

// The row of query n of a tile.
int row_of(tile_of_queries t, int n)
{
    return t.row + (t.head + n) / a.ratio;
}

int head_of(tile_of_queries t, int n)
{
    return t.kv_head * a.ratio + (t.head + n) % a.ratio;
}

// The keys of a segment that query n sees.
ivec2 seen_by(tile_of_queries t, int n, int seg)
{
    return clamp(Pairs(a.rows).at[row_of(t, n)] - seg * SEGMENT, 0, SEGMENT);
}

uint64_t query_at(tile_of_queries t, int n, int dim)
{
    return a.q + uint64_t((int64_t(row_of(t, n)) * a.ldq + int64_t(head_of(t, n) * dim)) * 4l);
}

uint64_t result_at(tile_of_queries t, int n, int dim)
{
    return a.o + uint64_t((int64_t(row_of(t, n)) * a.ldo + int64_t(head_of(t, n) * dim)) * 4l);
}

// The number of a leaf of query n among all leaves; leaf_l and leaf_m have one number per leaf.
int64_t leaf_number(tile_of_queries t, int n, int leaf)
{
    return int64_t(t.leaf0 + leaf) * int64_t(a.tile) + int64_t(n);
}

Floats leaf_o_at(int64_t number, int dim)
{
    return Floats(a.leaf_o + uint64_t(number * int64_t(dim) * 4l));
}
