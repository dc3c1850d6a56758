// Reads n / 16 vectors, and uses them so that the compiler keeps the reads: the stream with which kernels are compared.
// grid (any)
#version 460
#include "math.glsl"
#include "memory.glsl"
layout(local_size_x = 256) in;

layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer Quads { uvec4 at[]; };
// ek_cuda_math_args
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Args {
    uint64_t y, n_out, x;
    int64_t n;
    int which;
};
layout(push_constant, scalar) uniform Push { Args a; };

void main()
{
    const uint n = uint(a.n / 16l), step = gl_NumWorkGroups.x * 256u; // up to 64 GB
    uint i = gl_GlobalInvocationID.x, sum = 0u;
    Quads x = Quads(a.x);
    for (; i + 3u * step < n; i += 4u * step) {
        uvec4 v[4];
        [[unroll]] for (int k = 0; k < 4; k++) v[k] = x.at[i + uint(k) * step];
        [[unroll]] for (int k = 0; k < 4; k++) sum += v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    for (; i < n; i += step) sum += x.at[i].x;
    if (sum == 0x12345678u) Words(a.y).at[0] = sum;
}
