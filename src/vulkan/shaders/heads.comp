// Queries are normed and rotated, in place. grid (n_heads, rows)
#version 460
#include "math.glsl"
#include "memory.glsl"
const int THREADS = 128;
#include "head.glsl"
layout(local_size_x = 128) in;

layout(set = 0, binding = 0, scalar) uniform Args {
    uint64_t q;
    int64_t ldq;
    head_rule head;
    int head_dim;
} a;

void main()
{
    const int64_t row = int64_t(gl_WorkGroupID.y);
    Floats at = Floats(a.q + uint64_t((row * a.ldq + int64_t(gl_WorkGroupID.x) * int64_t(a.head_dim)) * 4l));
    load_head(at, a.head_dim);
    barrier();
    finish_head(a.head, row, a.head_dim);
    for (int i = int(gl_LocalInvocationID.x); i < a.head_dim; i += THREADS) at.at[i] = head_at[i];
}
