// x = cap * tanh(x / cap) with cap; bad[row] = 1 if the row then holds NaN or infinity; digest[row] grows by
// ek_logits_digest of the row. grid (any, rows)
#version 460
#include "math.glsl"
#include "memory.glsl"
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
