// Steps of a draw (cuda/kernels/sample) that need no candidates: each is a shader.
#version 460
#include "math.glsl"
#include "memory.glsl"
#include "rank.glsl"
#include "sample.glsl"
layout(local_size_x = 256) in;

#if defined SAMPLE_MASK

// Masks tokens that a row does not allow, in place. grid (any, rows)
void main()
{
    const options o = Options(a.rows).at[gl_WorkGroupID.y];
    if (o.allowed == 0ul) return;
    Words allowed = Words(o.allowed);
    Floats z = Floats(o.logits);
    for (int i = int(gl_GlobalInvocationID.x); i < a.vocab_size; i += int(gl_NumWorkGroups.x) * 256)
        if ((allowed.at[i / 32] >> (i % 32) & 1u) == 0u) z.at[i] = MINUS_INFINITY;
}

#elif defined SAMPLE_EDIT

// Suppressed tokens, bias and penalties, in place. grid (rows)
layout(buffer_reference, scalar, buffer_reference_align = 4) coherent buffer Logits { float at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) readonly buffer Pairs { ivec2 at[]; };

float biased(Pairs bias, int i, int n, float v)
{
    const int token = bias.at[i].x;
    for (; i < n && bias.at[i].x == token; i++) v = add_(v, intBitsToFloat(bias.at[i].y));
    return v;
}

void main()
{
    const options o = Options(a.rows).at[gl_WorkGroupID.x];
    const int thread = int(gl_LocalInvocationID.x);
    Logits z = Logits(o.logits);
    Ints suppress = Ints(a.suppress);
    Pairs bias = Pairs(o.bias), count = Pairs(o.count); // token, bias; token, number of times in the reply
    for (int i = thread; i < a.n_suppress; i += 256) z.at[suppress.at[i]] = MINUS_INFINITY;
    settle();
    for (int i = thread; i < o.n_bias; i += 256) { // the first entry of a token adds all of its entries
        const int token = bias.at[i].x;
        if (i == 0 || bias.at[i - 1].x != token) z.at[token] = biased(bias, i, o.n_bias, z.at[token]);
    }
    settle();
    for (int i = thread; i < o.n_count; i += 256) {
        const int token = count.at[i].x, replied = count.at[i].y;
        float v = z.at[token];
        if (o.repetition != 1.0) v = less_(v, 0.0) ? mul_(v, o.repetition) : div_(v, o.repetition);
        if (replied > 0) v = sub_(sub_(v, o.presence), mul_(o.frequency, float(replied)));
        z.at[token] = v;
    }
}

#elif defined SAMPLE_SCALE

// Temperature, in place, and the maxima of blocks of 64. grid (any, rows): a workgroup has four blocks
shared uint most[4];

void main()
{
    const int row = int(gl_WorkGroupID.y), thread = int(gl_LocalInvocationID.x), blocks = blocks_of_row();
    const options o = Options(a.rows).at[row];
    const bool divides = !greedy(o) && o.temperature != 1.0;
    Floats z = Floats(o.logits);
    Words maxima = maxima_of(row);
    for (int first = int(gl_WorkGroupID.x) * 4; first < blocks; first += int(gl_NumWorkGroups.x) * 4) {
        if (thread < 4) most[thread] = NOTHING;
        barrier();
        const int at = first * BLOCK + thread;
        if (at < a.vocab_size) {
            float v = z.at[at];
            if (divides) z.at[at] = v = div_(v, o.temperature);
            if (!is_nan(v)) atomicMax(most[thread / BLOCK], ordered(v));
        }
        barrier();
        if (thread < 4 && first + thread < blocks) maxima.at[first + thread] = most[thread];
        barrier();
    }
}

#elif defined SAMPLE_WEIGHTS

// Sums of exp(z - largest) over blocks of 256, for rows with top-p without top-k. grid (any, rows): a workgroup has 16
// blocks
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

#elif defined SAMPLE_ALL

// Greedy rows, and rows in which every token is a candidate. grid (any, rows): only the first workgroup of a row
// computes
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

#endif
