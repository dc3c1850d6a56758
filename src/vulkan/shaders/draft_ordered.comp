// Scores of the tokens of chosen centroids (model/drafter.c): 16 lanes, each its own chain; then the elements after the
// last multiple of 16, and the lanes in order, are added. grid (any, rows)
#version 460
#include "math.glsl"
#include "memory.glsl"
#include "matrix.glsl"
#include "draft_args.glsl"
layout(local_size_x = 256) in;

const int LANES = 16;
shared float lane_sum[256];

void main()
{
    const int row = int(gl_WorkGroupID.y), thread = int(gl_LocalInvocationID.x), lane = thread % LANES;
    const int tokens = tokens_of_row(), hidden = a.head.k, whole = hidden / LANES * LANES;
    const int step = int(gl_NumWorkGroups.x) * LANES;
    Floats y = Floats(a.y + uint64_t(int64_t(row) * int64_t(hidden) * 4l));
    for (int t0 = int(gl_WorkGroupID.x) * LANES; t0 < tokens; t0 += step) {
        const int t = t0 + thread / LANES, token = t < tokens ? token_of(row, t) : 0;
        float mine = 0.0;
        for (int i = lane; i < whole; i += LANES) mine = add_(mine, mul_(y.at[i], element_of_matrix(a.head, token, i)));
        lane_sum[thread] = mine;
        barrier();
        if (lane == 0 && t < tokens) {
            float sum = 0.0;
            for (int i = whole; i < hidden; i++) sum = add_(sum, mul_(y.at[i], element_of_matrix(a.head, token, i)));
            for (int l = 0; l < LANES; l++) sum = add_(sum, lane_sum[thread + l]);
            token_scores(row).at[t] = sum;
        }
        barrier();
    }
}
