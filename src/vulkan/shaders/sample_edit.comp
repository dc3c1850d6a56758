// Suppressed tokens, bias and penalties, in place. grid (rows)
#version 460
#include "math.glsl"
#include "memory.glsl"
#include "rank.glsl"
#include "sample.glsl"
layout(local_size_x = 256) in;

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
