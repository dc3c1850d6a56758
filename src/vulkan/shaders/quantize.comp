// Quantises rows: 8 groups per workgroup. grid (ceil(groups / 8), rows)
#version 460
#include "math.glsl"
#include "memory.glsl"
const int GROUPS = 8;
#include "group_codes.glsl"
layout(local_size_x = 256) in;

layout(set = 0, binding = 0, scalar) uniform Args {
    acts to;
    uint64_t x;
    int64_t ldx;
} a;

void main()
{
    const int group = a.to.a_group, thread = int(gl_LocalInvocationID.x), first = int(gl_WorkGroupID.x) * GROUPS;
    const int groups = min(GROUPS, (a.to.k + group - 1) / group - first);
    const int64_t row = int64_t(gl_WorkGroupID.y);
    Floats x = Floats(a.x + uint64_t(row * a.ldx * 4l));
    float v[2];
    begin_groups();
    barrier();
    for (int i = 0; i < 2; i++) {
        const int mine = thread + i * 256, at = first * group + mine;
        v[i] = mine < groups * group && at < a.to.k ? x.at[at] : 0.0;
        if (mine < groups * group) see_value(mine / group, v[i]);
    }
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
