// Joins the segments of a query: o / l, from floats or from integers, with the codes of the next product.
#version 460
#include "math.glsl"
#include "memory.glsl"
#include "attn.glsl"
#include "attn_nodes.glsl"

#if defined JOIN_FLOATS

// o / l of a query, 128 of its dims. grid (tiles, tile, ceil(dims / 128))
const int GROUPS = 128 / 16;
#include "group_codes.glsl"
layout(local_size_x = 128) in;

void main()
{
    const tile_of_queries t = Tiles(a.tiles).at[gl_WorkGroupID.x];
    const int n = int(gl_WorkGroupID.y), dim = a.kv.head_dim, thread = int(gl_LocalInvocationID.x);
    const int d0 = int(gl_WorkGroupID.z) * 128, d = d0 + thread;
    if (n >= t.n_q || d0 >= dim) return;
    begin_groups();
    barrier();
    float value = 0.0;
    if (d < dim) {
        value = joined(t, n, dim, d);
        Floats(result_at(t, n, dim)).at[d] = value;
        if (a.to.q != 0ul) see_value(thread / a.to.a_group, value);
    }
    if (a.to.q == 0ul) return;
    const int group = a.to.a_group, first = head_of(t, n) * dim + d0, groups = min(128, dim - d0) / group;
    const int64_t row = int64_t(row_of(t, n));
    barrier();
    if (d < dim) write_code(a.to, row, first + thread, thread / group, value);
    barrier();
    write_groups(a.to, row, first / group, groups);
}

#elif defined JOIN_INTEGERS

// R (o / l) / n of a query of attention in integers. grid (tiles, tile)
const int GROUPS = 512 / 16;
#include "group_codes.glsl"
const int THREADS = 256;
shared float head_at[512];
#include "rotate.glsl"
layout(local_size_x = 256) in;

void main()
{
    const tile_of_queries t = Tiles(a.tiles).at[gl_WorkGroupID.x];
    const int n = int(gl_WorkGroupID.y), dim = a.kv.head_dim, thread = int(gl_LocalInvocationID.x);
    if (n >= t.n_q) return;
    for (int d = thread; d < dim; d += 256) head_at[d] = joined(t, n, dim, d);
    barrier();
    rotate_head(dim);
    const float by = div_(1.0, float(dim & -dim));
    begin_groups();
    barrier();
    for (int d = thread; d < dim; d += 256) {
        head_at[d] = mul_(head_at[d], by);
        Floats(result_at(t, n, dim)).at[d] = head_at[d];
        if (a.to.q != 0ul) see_value(d / a.to.a_group, head_at[d]);
    }
    if (a.to.q == 0ul) return;
    const int group = a.to.a_group, first = head_of(t, n) * dim;
    const int64_t row = int64_t(row_of(t, n));
    barrier();
    for (int d = thread; d < dim; d += 256) write_code(a.to, row, first + d, d / group, head_at[d]);
    barrier();
    write_groups(a.to, row, first / group, dim / group);
}

#endif
