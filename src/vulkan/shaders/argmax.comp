// out[r] = the index of row r's largest value; among equals the lowest index. NaN and -inf never win. The key's words
// are the best value as an integer in the values' order, and its inverted index. grid (any, rows): only the first
// workgroup of a row computes.
#version 460
#include "math.glsl"
#include "memory.glsl"
#include "rank.glsl"
layout(local_size_x = 256) in;

// ek_cuda_reduce_args
layout(set = 0, binding = 0, scalar) uniform Args {
    uint64_t out_, x, key;
    int64_t ldx;
    float a;
    int n;
} a;

void main()
{
    if (gl_WorkGroupID.x != 0u) return;
    const int row = int(gl_WorkGroupID.y), thread = int(gl_LocalInvocationID.x);
    Floats x = Floats(a.x + uint64_t(int64_t(row) * a.ldx * 4l));
    uint value = 0u, index = 0xffffffffu;
    for (int i0 = thread; i0 < a.n; i0 += 8 * 256) {
        float v[8]; // requested together
        [[unroll]] for (int j = 0; j < 8; j++) v[j] = i0 + j * 256 < a.n ? x.at[i0 + j * 256] : f_(0xff800000u);
        [[unroll]] for (int j = 0; j < 8; j++)
            if (less_(f_(0xff800000u), v[j]) && ordered(v[j]) > value) value = ordered(v[j]), index = uint(i0 + j * 256);
    }
    find_best(value, index);
    if (thread != 0) return;
    Words key = Words(a.key + uint64_t(row) * 16ul);
    const bool any = best_value[0] != 0u;
    key.at[0] = any ? ~best_index[0] : 0u, key.at[1] = best_value[0];
    Ints(a.out_).at[row] = any ? int(best_index[0]) : 0;
}
