// Rows by their indices: of a matrix of any format, or of floats.
#version 460
#include "math.glsl"
#include "memory.glsl"
#ifdef EMBED
#include "matrix.glsl"
#endif
layout(local_size_x = 256) in;

#if defined EMBED

// h[r] = elements of row id[r] of a matrix, times factor. grid (ceil(n / 256), rows)
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

#elif defined GATHER

// y[r] = x[index[r]], or x[r] without an index. grid (ceil(n / 1024), rows)
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

#endif
