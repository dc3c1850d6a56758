// Quantises rows: 8 groups per workgroup, one element per thread. grid (ceil(groups / 8), rows)
#version 460
#include "math.glsl"
#include "memory.glsl"
const int GROUPS = 8;
#include "group_codes.glsl"
layout(local_size_x = 512) in;

layout(set = 0, binding = 0, scalar) uniform Args {
    acts to;
    uint64_t x;
    int64_t ldx;
} a;

void main()
{
    const int group = a.to.a_group, thread = int(gl_LocalInvocationID.x), first = int(gl_WorkGroupID.x) * GROUPS;
    const int groups = min(GROUPS, (a.to.k + group - 1) / group - first), at = first * group + thread;
    const int64_t row = int64_t(gl_WorkGroupID.y);
    const bool there = thread < groups * group;
    const float v = there && at < a.to.k ? Floats(a.x + uint64_t(row * a.ldx * 4l)).at[at] : 0.0;
    begin_groups();
    barrier();
    if (there) see_value(thread / group, v);
    barrier();
    if (there) write_code(a.to, row, at, thread / group, v);
    barrier();
    write_groups(a.to, row, first, groups);
}
