// gelu(g) * u, to y and as codes, each if it has an address: 8 groups per workgroup, of 64 elements if nothing is
// quantised; a thread has one element. grid (ceil(n / group / 8), rows)
#version 460
#include "math.glsl"
#include "memory.glsl"
const int GROUPS = 8;
#include "group_codes.glsl"
layout(local_size_x = 512) in;

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
    const int first = int(gl_WorkGroupID.x) * GROUPS, at = first * group + thread;
    const bool there = thread < GROUPS * group && at < a.n;
    float v = 0.0;
    begin_groups();
    barrier();
    if (there) {
        v = mul_(gelu_(Floats(a.g + uint64_t(row * a.ldg * 4l)).at[at]), Floats(a.u + uint64_t(row * a.ldu * 4l)).at[at]);
        if (a.y != 0ul) Floats(a.y + uint64_t(row * a.ldy * 4l)).at[at] = v;
        if (quantised) see_value(thread / group, v);
    }
    if (!quantised) return;
    const int groups = min(GROUPS, (a.n + group - 1) / group - first);
    barrier();
    if (thread < groups * group) write_code(a.to, row, at, thread / group, v);
    barrier();
    write_groups(a.to, row, first, groups);
}
