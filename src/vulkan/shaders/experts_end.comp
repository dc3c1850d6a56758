// The end of a layer with experts: y = norm(y, norm_1) + norm(sum, norm_2), where sum is the pairs' outputs, weighted,
// in ascending expert id; then as stage.comp. grid (rows)
#version 460
#include "math.glsl"
#include "memory.glsl"
#define ROW gl_WorkGroupID.x
#include "row.glsl"
#include "quantize_row.glsl"
#include "stage_args.glsl"
layout(local_size_x = 256) in;

void main()
{
    const int n = a.n;
    float h[EACH], y[EACH], sum[EACH];
    UNROLL for (int i = 0; i < EACH; i++) sum[i] = 0.0;
    for (int k = 0; k < a.top_k; k++) {
        const int at = int(ROW) * a.top_k + k;
        const float weight = Floats(a.weight).at[at];
        const uint64_t row = a.pair_out + uint64_t(int64_t(Ints(a.row_pair).at[at]) * a.ld * 4l);
        for (int i = 0; i < EACH; i++)
            if (element_of(i) < n) sum[i] = fma_(weight, element_at(row, i, n), sum[i]);
    }
    UNROLL for (int i = 0; i < EACH; i++) y[i] = element_at(row_of(a.y), i, n);
    const float f1 = factor_of(y, n, a.eps), f2 = factor_of(sum, n, a.eps);
    UNROLL for (int i = 0; i < EACH; i++)
        y[i] = add_(mul_(mul_(y[i], f1), element_at(a.norm_1, i, n)), mul_(mul_(sum[i], f2), element_at(a.norm_2, i, n)));
    const float f = factor_of(y, n, a.eps), scalar = a.scalar != 0ul ? Floats(a.scalar).at[0] : 1.0;
    UNROLL for (int i = 0; i < EACH; i++) {
        h[i] = element_at(row_of(a.h_from != 0ul ? a.h_from : a.h), i, n);
        h[i] = add_(h[i], mul_(mul_(y[i], f), element_at(a.y_norm, i, n)));
        if (a.scalar != 0ul) h[i] = mul_(h[i], scalar);
        if (element_of(i) < n) Floats(row_of(a.h)).at[element_of(i)] = h[i];
    }
    if (a.x_norm != 0ul) {
        const float by = factor_of(h, n, a.eps);
        UNROLL for (int i = 0; i < EACH; i++) h[i] = mul_(mul_(h[i], by), element_at(a.x_norm, i, n));
    }
    if (a.x != 0ul)
        UNROLL for (int i = 0; i < EACH; i++)
            if (element_of(i) < n) Floats(row_of(a.x)).at[element_of(i)] = h[i];
    if (a.to.q != 0ul) quantize_row(a.to, h, n);
}
