// The top_k largest of a row's scores; of equal ones the lower index first. grid (rows)
#version 460
#include "math.glsl"
#include "memory.glsl"
#include "matrix.glsl"
#include "rank.glsl"
#include "draft_args.glsl"
layout(local_size_x = 256) in;

const int MAX_CENTROIDS = 4096; // in shared memory; of more, memory is read again
shared uint place_of[MAX_CENTROIDS];

void main()
{
    const int row = int(gl_WorkGroupID.x), thread = int(gl_LocalInvocationID.x), n = a.n_centroids;
    Floats score = Floats(a.score + uint64_t(int64_t(row) * int64_t(n) * 4l));
    for (int i = thread; i < min(n, MAX_CENTROIDS); i += 256) place_of[i] = ordered(score.at[i]);
    barrier();
    for (int i = thread; i < n; i += 256) { // how many are larger, or as large and in front
        const uint mine = ordered(score.at[i]);
        int rank = 0;
        for (int j = 0; j < n && rank < a.top_k; j++) {
            const uint other = j < MAX_CENTROIDS ? place_of[j] : ordered(score.at[j]);
            rank += other > mine || (other == mine && j < i) ? 1 : 0;
        }
        if (rank < a.top_k) Ints(a.chosen).at[row * a.top_k + rank] = i;
    }
}
