// Rows quantised in groups of 16, 32 or 64: a thread a group. grid (ceil(groups / 8), rows)
#version 460
#include "math.glsl"
#include "memory.glsl"
#include "quantize.glsl"
layout(local_size_x = 8) in;

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Args {
    acts to;
    uint64_t x;
    int64_t ldx;
};
layout(push_constant, scalar) uniform Push { Args a; };

float group_value(int i)
{
    const int at = int(gl_GlobalInvocationID.x) * a.to.a_group + i;
    return at < a.to.k ? Floats(a.x + uint64_t(int64_t(gl_WorkGroupID.y) * a.ldx * 4l)).at[at] : 0.0;
}

void main()
{
    const int g = int(gl_GlobalInvocationID.x);
    if (g * a.to.a_group < a.to.k) quantize_group(a.to, int64_t(gl_WorkGroupID.y), g);
}
