// Temperature, in place, and the maxima of blocks of 64. grid (any, rows): a workgroup has four blocks
#version 460
#include "math.glsl"
#include "memory.glsl"
#include "rank.glsl"
#include "sample.glsl"
layout(local_size_x = 256) in;

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
