// Greedy rows, and rows in which every token is a candidate. grid (any, rows): only the first workgroup of a row
// computes
#version 460
#include "math.glsl"
#include "memory.glsl"
#include "rank.glsl"
#include "sample.glsl"
layout(local_size_x = 256) in;

void main()
{
    if (gl_WorkGroupID.x != 0u) return;
    const int row = int(gl_WorkGroupID.y), thread = int(gl_LocalInvocationID.x);
    const options o = Options(a.rows).at[row];
    if (!greedy(o) && !unlimited(o)) return;
    uint first, value = 0u, index = 0xffffffffu;
    const uint top = find_top(o, row, first);
    Ints token = Ints(a.token);
    if (top == 0u || greedy(o)) {
        if (thread == 0) token.at[row] = top == 0u ? -1 : int(first);
        return;
    }
    // the sum of the likeliest token: a token that cannot exceed it needs no noise
    const float least = add_(unordered(top), gumbel(o, first));
    Floats z = Floats(o.logits);
    for (int i0 = thread; i0 < a.vocab_size; i0 += 8 * 256) {
        float v[8]; // requested together
        [[unroll]] for (int j = 0; j < 8; j++) v[j] = i0 + j * 256 < a.vocab_size ? z.at[i0 + j * 256] : MINUS_INFINITY;
        for (int j = 0; j < 8; j++) {
            if (!less_(MINUS_INFINITY, v[j]) || less_(add_(v[j], MAX_GUMBEL), least)) continue;
            const uint k = drawn(o, v[j], uint(i0 + j * 256));
            if (k > value) value = k, index = uint(i0 + j * 256);
        }
    }
    find_best(value, index);
    if (thread == 0) token.at[row] = int(best_index[0]);
}
