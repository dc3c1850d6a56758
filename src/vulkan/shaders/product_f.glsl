// Products of Form F (ops/linear/linear.h), weights in the CPU's panels: 16 outputs and a row, a thread for the chain of
// an output and leaf of 256 inputs. FLOAT_BITS: of a weight; 0: bf16. grid (panels, rows); of experts
// (EXPERTS) (panels, jobs times rows of a job, matrices)
#include "memory.glsl"
#include "linear_args.glsl"
#include "jobs.glsl"
const int TILE = 1;
#include "tree.glsl"
layout(local_size_x = 256) in;


const int LEAF = 256;
shared float leaf_at[256];

void main()
{
    const int thread = int(gl_LocalInvocationID.x), o = thread % 16, k = args.a.x.k;
    if (!open_work(TILE)) return;
    const int row = first_row;
    const int all = (k + LEAF - 1) / LEAF, size = FLOAT_BITS == 32 ? 4 : 2;
    const uint64_t panel = codes_at + uint64_t(gl_WorkGroupID.x) * uint64_t((int64_t(k) * 16l * int64_t(size) + 63l) / 64l * 64l);
    Floats x = Floats(args.a.f + uint64_t(int64_t(row_read(row)) * args.a.ldf * 4l));
    for (int leaf0 = 0; leaf0 < all; leaf0 += 16) {
        const int from = (leaf0 + thread / 16) * LEAF, to = min(from + LEAF, k);
        float sum = 0.0;
        for (int i = from; i < to; i++) {
#if FLOAT_BITS == 32
            const float w = Floats(panel).at[i * 16 + o];
#elif FLOAT_BITS == 16
            const float w = half_to_float(uint(Halves(panel).at[i * 16 + o]));
#else
            const float w = bf16_to_float(uint(Halves(panel).at[i * 16 + o]));
#endif
            sum = fma_(x.at[i], w, sum);
        }
        leaf_at[thread] = sum;
        barrier();
        if (thread < 16)
            for (int l = 0; l < min(16, all - leaf0); l++) push_leaf(o, leaf_at[l * 16 + o], leaf0 + l);
        barrier();
    }
    const int output_ = int(gl_WorkGroupID.x) * 16 + o;
    if (thread < 16 && output_ < args.a.n)
        Floats(y_at + uint64_t((int64_t(row) * args.a.ldy + int64_t(output_)) * 4l)).at[0] = sum_of_leaves(o, all);
}
