// A drafter's tokens: by the chosen centroids of a head whose tokens are ordered by centroid, or by all logits.
#version 460
#include "math.glsl"
#include "memory.glsl"
#include "matrix.glsl"
#ifndef DRAFT_ORDERED
#include "rank.glsl"
#endif
// ek_cuda_draft_args
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Args {
    uint64_t score, chosen;
    uint64_t ordering;
    uint64_t y;
    uint64_t best;
    uint64_t id, draft, n;
    matrix head;
    int padding; // of matrix
    int n_centroids, top_k, vocab_size, rows, max_;
};
layout(push_constant, scalar) uniform Push { Args a; };

// Scores of a row's tokens of chosen centroids, which replace those of the centroids; and the tokens.
int tokens_of_row()
{
    return a.vocab_size / a.n_centroids * a.top_k;
}

Floats token_scores(int row)
{
    return Floats(a.score + uint64_t(int64_t(row) * int64_t(tokens_of_row()) * 4l));
}

int token_of(int row, int t)
{
    const int each = a.vocab_size / a.n_centroids, c = Ints(a.chosen).at[row * a.top_k + t / each];
    return Ints(a.ordering).at[c * each + t % each];
}

layout(local_size_x = 256) in;

#if defined DRAFT_CENTROIDS

// The top_k largest of a row's scores; among equals the lower index comes first. grid (rows)
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

#elif defined DRAFT_ORDERED

// Scores of the tokens of chosen centroids (model/drafter.c): 16 lanes, each its own chain; then the elements after the
// last multiple of 16, and the lanes in order, are added. grid (any, rows)
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

#elif defined DRAFT_NEXT

// A row's best token is appended to its draft and is fed next. It is one of the tokens of chosen centroids, or the one
// that argmax found. grid (1)
void main()
{
    const int thread = int(gl_LocalInvocationID.x);
    for (int r = 0; r < a.rows; r++) {
        uint value = 0u, index = 0xffffffffu;
        if (a.n_centroids != 0) {
            Floats score = token_scores(r);
            for (int t = thread; t < tokens_of_row(); t += 256) {
                const uint v = is_nan(score.at[t]) ? 0u : ordered(score.at[t]), token = uint(token_of(r, t));
                if (v > value || (v == value && token < index)) value = v, index = token;
            }
        }
        find_best(value, index);
        if (thread == 0) {
            Words best = Words(a.best + uint64_t(r) * 16ul);
            int token = 0;
            if (a.n_centroids != 0) token = best_value[0] != 0u ? int(best_index[0]) : 0;
            else if ((best.at[0] | best.at[1]) != 0u) token = int(~best.at[0]);
            const int at = Ints(a.n).at[r];
            Ints(a.id).at[r] = token;
            Ints(a.draft).at[r * a.max_ + at] = token;
            Ints(a.n).at[r] = at + 1;
            for (int i = 0; i < 4; i++) best.at[i] = 0u;
        }
        barrier();
    }
}

#endif
