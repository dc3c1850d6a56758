// Sums of exp(z - largest) over blocks of 256, for rows with top-p without top-k. grid (any, rows): a workgroup has 16
// blocks
#version 460
#include "math.glsl"
#include "memory.glsl"
#include "rank.glsl"
#include "sample.glsl"
layout(local_size_x = 256) in;

shared float lane_sum[256];

void main()
{
    const int row = int(gl_WorkGroupID.y), thread = int(gl_LocalInvocationID.x), lane = thread % 16;
    const int leaves = leaves_of_row();
    const options o = Options(a.rows).at[row];
    if (greedy(o) || cuts_k(o) || !cuts_p(o)) return;
    uint token;
    const float top = unordered(find_top(o, row, token));
    Floats z = Floats(o.logits), leaf = leaves_of(row);
    for (int first = int(gl_WorkGroupID.x) * 16; first < leaves; first += int(gl_NumWorkGroups.x) * 16) {
        const int b = first + thread / 16;
        float sum = 0.0;
        for (int at = b * 256 + lane; at < min(a.vocab_size, (b + 1) * 256); at += 16)
            sum = add_(sum, exp_(sub_(z.at[at], top)));
        lane_sum[thread] = sum;
        barrier();
        for (int apart = 8; apart > 0; apart /= 2) {
            if (lane < apart) lane_sum[thread] = add_(lane_sum[thread], lane_sum[thread + apart]);
            barrier();
        }
        if (lane == 0 && b < leaves) leaf.at[b] = lane_sum[thread];
        barrier();
    }
}
