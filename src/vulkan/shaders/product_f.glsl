// Products of Form F (ops/linear/linear.h), weights in the CPU's panels: 16 outputs and a row, a thread for the chain of
// an output and leaf of 256 inputs. FLOAT_BITS: of a weight; 0: bf16. grid (panels, rows); of experts
// (EXPERTS) (panels, jobs times rows of a job, matrices)
//
// Chains take the device's fma as it is: where no weight and no input is below 2^-40 but 0, all that a chain holds is a
// multiple of 2^-126, and none of it denormal. A workgroup that meets such a number begins again, with care.
#version 460
#include "math.glsl"
#include "memory.glsl"
#include "jobs.glsl"
const int TILE = 1;
#include "tree.glsl"
layout(local_size_x = 256) in;

const int LEAF = 256, LEAVES = 16;
shared float leaf_at[LEAF], input_at[LEAVES * LEAF];
shared uint careful;
uint smallest; // of this thread's numbers, without signs and minus 1, so that zeros are large

float seen(float x)
{
    smallest = min(smallest, (u_(x) << 1) - 1u);
    return x;
}

float weight_at(uint64_t panel, int i)
{
    const int at = i * 16 + int(gl_LocalInvocationID.x) % 16;
#if FLOAT_BITS == 32
    return seen(Floats(panel).at[at]);
#elif FLOAT_BITS == 16
    return seen(half_to_float(uint(Halves(panel).at[at])));
#else
    return seen(bf16_to_float(uint(Halves(panel).at[at])));
#endif
}

vec4 four_at(uint64_t panel, int i)
{
    return vec4(weight_at(panel, i), weight_at(panel, i + 1), weight_at(panel, i + 2), weight_at(panel, i + 3));
}

float link(float x, float w, float sum, bool care)
{
    return care ? fma_(x, w, sum) : normal_fma(x, w, sum);
}

float four_links(int x, vec4 w, float sum)
{
    sum = normal_fma(input_at[x], w.x, sum), sum = normal_fma(input_at[x + 1], w.y, sum);
    sum = normal_fma(input_at[x + 2], w.z, sum);
    return normal_fma(input_at[x + 3], w.w, sum);
}

// Over inputs [from, to), the first of which lies in input_at[x].
float chain(uint64_t panel, int from, int to, int x, bool care)
{
    float sum = 0.0;
    int i = from;
#if !EK_SOFT
    if (!care)
        for (; i + 32 <= to; i += 32, x += 32) { // asked for together
            const vec4 a = four_at(panel, i), b = four_at(panel, i + 4), c = four_at(panel, i + 8);
            const vec4 d = four_at(panel, i + 12), e = four_at(panel, i + 16), f = four_at(panel, i + 20);
            const vec4 g = four_at(panel, i + 24), h = four_at(panel, i + 28);
            sum = four_links(x, a, sum), sum = four_links(x + 4, b, sum), sum = four_links(x + 8, c, sum);
            sum = four_links(x + 12, d, sum), sum = four_links(x + 16, e, sum), sum = four_links(x + 20, f, sum);
            sum = four_links(x + 24, g, sum), sum = four_links(x + 28, h, sum);
        }
#endif
    for (; i < to; i++, x++) sum = link(input_at[x], weight_at(panel, i), sum, care);
    return sum;
}

float run(uint64_t panel, bool care)
{
    const int thread = int(gl_LocalInvocationID.x), o = thread % 16, k = args.a.x.k, all = (k + LEAF - 1) / LEAF;
    Floats x = Floats(args.a.f + uint64_t(int64_t(row_read(first_row)) * args.a.ldf * 4l));
    for (int leaf0 = 0; leaf0 < all; leaf0 += LEAVES) {
        for (int i = thread, n = min(k - leaf0 * LEAF, LEAVES * LEAF); i < n; i += 256)
            input_at[i] = seen(x.at[leaf0 * LEAF + i]);
        barrier();
        const int from = (leaf0 + thread / 16) * LEAF;
        leaf_at[thread] = chain(panel, from, min(from + LEAF, k), thread / 16 * LEAF, care);
        if (smallest < 0x56ffffffu) careful = 1u; // 2^-40
        barrier();
        if (thread < 16)
            for (int l = 0; l < min(LEAVES, all - leaf0); l++) push_leaf(o, leaf_at[l * 16 + o], leaf0 + l);
        barrier();
    }
    return thread < 16 ? sum_of_leaves(o, all) : 0.0;
}

void main()
{
    const int thread = int(gl_LocalInvocationID.x), size = FLOAT_BITS == 32 ? 4 : 2, output_ = int(gl_WorkGroupID.x) * 16 + thread;
    if (!open_work(TILE)) return;
    if (thread == 0) careful = 0u;
    smallest = 0xffffffffu;
    const uint64_t panel = codes_at + uint64_t(gl_WorkGroupID.x) *
                                          uint64_t((int64_t(args.a.x.k) * 16l * int64_t(size) + 63l) / 64l * 64l);
    float y = run(panel, EK_SOFT == 1);
#if !EK_SOFT
    if (careful != 0u) y = run(panel, true);
#endif
    if (thread < 16 && output_ < args.a.n)
        Floats(y_at + uint64_t((int64_t(first_row) * args.a.ldy + int64_t(output_)) * 4l)).at[0] = y;
}
