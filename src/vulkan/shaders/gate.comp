// gelu(g) * u, to y and as codes, each if it has an address: 8 groups per workgroup, of 64 elements if nothing is
// quantised. grid (ceil(n / group / 8), rows)
#version 460
#include "math.glsl"
#include "memory.glsl"
const int GROUPS = 8;
#include "group_codes.glsl"
layout(local_size_x = 256) in;

layout(set = 0, binding = 0, scalar) uniform Args {
    uint64_t g, u, y;
    int64_t ldg, ldu, ldy;
    acts to;
    int n;
} a;

void main()
{
    const bool quantised = a.to.q != 0ul;
    const int group = quantised ? a.to.a_group : 64, thread = int(gl_LocalInvocationID.x);
    const int64_t row = int64_t(gl_WorkGroupID.y);
    const int first = int(gl_WorkGroupID.x) * GROUPS;
    Floats g = Floats(a.g + uint64_t(row * a.ldg * 4l)), u = Floats(a.u + uint64_t(row * a.ldu * 4l));
    float v[2];
    begin_groups();
    barrier();
    for (int i = 0; i < 2; i++) {
        const int mine = thread + i * 256, at = first * group + mine;
        v[i] = 0.0;
        if (mine >= GROUPS * group || at >= a.n) continue;
        v[i] = mul_(gelu_(g.at[at]), u.at[at]);
        if (a.y != 0ul) Floats(a.y + uint64_t(row * a.ldy * 4l)).at[at] = v[i];
        if (quantised) see_value(mine / group, v[i]);
    }
    if (!quantised) return;
    const int groups = min(GROUPS, (a.n + group - 1) / group - first);
    barrier();
    scale_groups(groups);
    barrier();
    for (int i = 0; i < 2; i++) {
        const int mine = thread + i * 256;
        if (mine < groups * group) write_code(a.to, row, first * group + mine, mine / group, v[i]);
    }
    barrier();
    write_groups(a.to, row, first, groups);
}
