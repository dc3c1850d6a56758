// Masks tokens that a row does not allow, in place. grid (any, rows)
#version 460
#include "math.glsl"
#include "memory.glsl"
#include "rank.glsl"
#include "sample.glsl"
layout(local_size_x = 256) in;

void main()
{
    const options o = Options(a.rows).at[gl_WorkGroupID.y];
    if (o.allowed == 0ul) return;
    Words allowed = Words(o.allowed);
    Floats z = Floats(o.logits);
    for (int i = int(gl_GlobalInvocationID.x); i < a.vocab_size; i += int(gl_NumWorkGroups.x) * 256)
        if ((allowed.at[i / 32] >> (i % 32) & 1u) == 0u) z.at[i] = MINUS_INFINITY;
}
