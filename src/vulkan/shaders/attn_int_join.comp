// R (o / l) / n of a query of attention in integers. grid (tiles, tile)
#version 460
#include "math.glsl"
#include "memory.glsl"
#include "attn.glsl"
#include "attn_nodes.glsl"
const int GROUPS = 512 / 16;
#include "group_codes.glsl"
layout(local_size_x = 256) in;

shared float head_at[512];

void main()
{
    const tile_of_queries t = Tiles(a.tiles).at[gl_WorkGroupID.x];
    const int n = int(gl_WorkGroupID.y), dim = a.kv.head_dim, thread = int(gl_LocalInvocationID.x), block = dim & -dim;
    if (n >= t.n_q) return;
    for (int d = thread; d < dim; d += 256) head_at[d] = joined(t, n, dim, d);
    barrier();
    for (int h = 1; h < block; h *= 2) {
        for (int i = thread; i < dim / 2; i += 256) {
            const int at = i / h * 2 * h + i % h;
            const float x = head_at[at], y = head_at[at + h];
            head_at[at] = add_(x, y), head_at[at + h] = sub_(x, y);
        }
        barrier();
    }
    const float by = div_(1.0, float(block));
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
    scale_groups(dim / group);
    barrier();
    for (int d = thread; d < dim; d += 256) write_code(a.to, row, first + d, d / group, head_at[d]);
    barrier();
    write_groups(a.to, row, first / group, dim / group);
}
