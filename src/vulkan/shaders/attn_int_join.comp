// R (o / l) / n of a query of attention in integers. grid (tiles, tile)
#version 460
#include "math.glsl"
#include "memory.glsl"
#include "attn.glsl"
#include "attn_nodes.glsl"
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
