// y[r] = x[index[r]], or x[r] without an index. grid (ceil(n / 1024), rows)
#version 460
#include "math.glsl"
#include "memory.glsl"
layout(local_size_x = 256) in;

layout(set = 0, binding = 0, scalar) uniform Args {
    uint64_t y, x, index;
    int64_t ldy, ldx;
    int n;
} a;

void main()
{
    const int64_t r = gl_WorkGroupID.y;
    const int64_t from = a.index != 0ul ? int64_t(Ints(a.index).at[int(r)]) : r;
    Floats x = Floats(a.x + uint64_t(from * a.ldx * 4l)), y = Floats(a.y + uint64_t(r * a.ldy * 4l));
    const int first = int(gl_WorkGroupID.x) * 1024, end = min(first + 1024, a.n);
    for (int i = first + int(gl_LocalInvocationID.x); i < end; i += 256) y.at[i] = x.at[i];
}
