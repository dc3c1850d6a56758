// h[r] = elements of row id[r] of a matrix, times factor. grid (ceil(n / 256), rows)
#version 460
#include "math.glsl"
#include "memory.glsl"
#include "matrix.glsl"
layout(local_size_x = 256) in;

layout(set = 0, binding = 0, scalar) uniform Args {
    matrix a;
} args;

const int DRAWN = -2;

void main()
{
    const matrix a = args.a;
    const int at = int(gl_GlobalInvocationID.x), r = int(gl_WorkGroupID.y);
    if (at >= a.n) return;
    int id = Ints(a.id).at[r];
    if (id <= DRAWN) {
        id = Ints(a.token).at[DRAWN - id];
        if (id < 0 || id >= a.rows) id = 0;
    }
    if (id < 0) return;
    const float v = element_of_matrix(a, id, a.first + at);
    Floats(a.h + uint64_t(int64_t(r) * a.ldh * 4l)).at[at] = mul_(v, a.factor);
}
