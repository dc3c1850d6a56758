// y[i] = f(x[i]), where f is exp, tanh, ln, gelu, or the split of the exponent, which also writes n. For tests. grid
// (any)
#version 460
#include "math.glsl"
layout(local_size_x = 256) in;

layout(buffer_reference, scalar) buffer Floats { float at[]; };
layout(buffer_reference, scalar) buffer Ints { int at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Args {
    uint64_t y, n_out, x;
    int64_t n;
    int which;
};
layout(push_constant, scalar) uniform Push { Args a; };

void main()
{
    const uint step = gl_NumWorkGroups.x * 256;
    for (uint i = gl_GlobalInvocationID.x; int64_t(i) < a.n; i += step) {
        const float x = Floats(a.x).at[i];
        float y = 0.0;
        int n;
        switch (a.which) {
        case 0: y = exp_split(x, n); Ints(a.n_out).at[i] = n; break;
        case 1: y = exp_(x); break;
        case 2: y = tanh_(x); break;
        case 3: y = ln_(x); break;
        case 4: y = gelu_(x); break;
        }
        Floats(a.y).at[i] = y;
    }
}
