// The top_k largest of a row's scores; among equals the lower index comes first. grid (rows)
#version 460
#include "math.glsl"
#include "memory.glsl"
#include "matrix.glsl"
#include "rank.glsl"
#include "draft_args.glsl"
layout(local_size_x = 256) in;

const int MAX_CENTROIDS = 4096; // in shared memory; if there are more, memory is read again
shared uint place_of[MAX_CENTROIDS];

void main()
{
    const int row = int(gl_WorkGroupID.x), thread = int(gl_LocalInvocationID.x), n = a.n_centroids;
    Floats score = Floats(a.score + uint64_t(int64_t(row) * int64_t(n) * 4l));
    for (int i = thread; i < min(n, MAX_CENTROIDS); i += 256) place_of[i] = ordered(score.at[i]);
    barrier();
    for (int i = thread; i < n; i += 256) { // the number of scores that are larger, or equal and earlier
        const uint mine = ordered(score.at[i]);
        int rank = 0;
        for (int j = 0; j < n && rank < a.top_k; j++) {
            const uint other = j < MAX_CENTROIDS ? place_of[j] : ordered(score.at[j]);
            rank += other > mine || (other == mine && j < i) ? 1 : 0;
        }
        if (rank < a.top_k) Ints(a.chosen).at[row * a.top_k + rank] = i;
    }
}
