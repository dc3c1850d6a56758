// Rows of the head's logits: the soft cap with checks and digests, and the largest of a row.
#version 460
#include "math.glsl"
#include "memory.glsl"

#if defined SOFT_CAP

// x = cap * tanh(x / cap) with cap; bad[row] = 1 if the row then holds NaN or infinity; digest[row] grows by
// ek_logits_digest of the row. grid (any, rows)
layout(local_size_x = 256) in;

layout(set = 0, binding = 0, scalar) uniform Args {
    uint64_t x, bad, digest;
    int64_t ld;
    float cap;
    int n;
} a;

void main()
{
    const int row = int(gl_WorkGroupID.y), step_ = int(gl_NumWorkGroups.x) * 256;
    Floats x = Floats(a.x + uint64_t(int64_t(row) * a.ld * 4l));
    bool bad = false;
    uint64_t sum = 0ul;
    for (int i = int(gl_GlobalInvocationID.x); i < a.n; i += step_) {
        float v = x.at[i];
        if (a.cap != 0.0) x.at[i] = v = mul_(a.cap, tanh_(div_(v, a.cap)));
        bad = bad || (u_(v) & 0x7f800000u) == 0x7f800000u;
        if (a.digest != 0ul) sum += mix64(uint64_t(i) << 32 | uint64_t(u_(v)));
    }
    if (bad) Ints(a.bad).at[row] = 1;
    if (a.digest == 0ul || sum == 0ul) return;
    // 64 bits by halves: the low half's carry goes to the high one
    Words digest = Words(a.digest + uint64_t(row * 8));
    const uint low = uint(sum), before = atomicAdd(digest.at[0], low);
    atomicAdd(digest.at[1], uint(sum >> 32) + (before + low < low ? 1u : 0u));
}

#elif defined ARGMAX

// out[r] = the index of row r's largest value; among equals the lowest index. NaN and -inf never win. The key's words
// are the best value as an integer in the values' order, and its inverted index. grid (any, rows): only the first
// workgroup of a row computes.
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

#endif
