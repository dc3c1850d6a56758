// A row's best token is appended to its draft and is fed next. It is one of the tokens of chosen centroids, or the one
// that argmax.comp found. grid (1)
#version 460
#include "math.glsl"
#include "memory.glsl"
#include "matrix.glsl"
#include "rank.glsl"
#include "draft_args.glsl"
layout(local_size_x = 256) in;

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
