// A head of up to 512 elements in shared memory: normed, then rotated (ops/rows/rows.h).
const int MAX_HEAD = 512;
shared float head_at[MAX_HEAD];

// ek_cuda_head
struct head_rule {
    uint64_t norm, cos, sin;
    int64_t ld_table;
    float eps;
    int rotated;
};

float row_value(int i)
{
    return head_at[i];
}

#include "row_sum.glsl"

// Finishes a head of row r, by all threads, to which it is visible; norm 0: without weights, cos 0: not rotated.
void finish_head(head_rule rule, int64_t r, int dim)
{
    const float f = norm_factor(sum_of_squares(dim), dim, rule.eps);
    Floats cos = Floats(rule.cos + uint64_t(r * rule.ld_table * 4l)), sin = Floats(rule.sin + uint64_t(r * rule.ld_table * 4l));
    Floats w = Floats(rule.norm);
    const int middle = dim / 2;
    for (int j = int(gl_LocalInvocationID.x); j < middle; j += THREADS) {
        float x0 = mul_(head_at[j], f), x1 = mul_(head_at[j + middle], f);
        if (rule.norm != 0ul) x0 = mul_(x0, w.at[j]), x1 = mul_(x1, w.at[j + middle]);
        if (rule.cos != 0ul && j < rule.rotated) {
            const float c = cos.at[j], s = sin.at[j], turned = fma_(negated(x1), s, mul_(x0, c));
            x1 = fma_(x0, s, mul_(x1, c));
            x0 = turned;
        }
        head_at[j] = x0, head_at[j + middle] = x1;
    }
    barrier();
}
