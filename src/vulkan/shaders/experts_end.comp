// The end of a layer with experts: y = norm(y, norm_1) + norm(sum, norm_2), where sum is the pairs' outputs, weighted,
// in ascending expert id; then as stage.comp. grid (rows)
#version 460
#include "math.glsl"
#include "memory.glsl"
#define ROW gl_WorkGroupID.x
#include "row.glsl"
#include "quantize_row.glsl"
#include "stage_args.glsl"
layout(local_size_x = 512) in;

void main()
{
    const int n = a.n;
    row_parts sum;
    begin_groups();
    EACH_PART sum.p[k] = vec4(0.0);
    row_parts y = load_row(row_of(a.y), n), h = load_row(row_of(a.h_from != 0ul ? a.h_from : a.h), n);
    for (int k = 0; k < a.top_k; k++) {
        const int at = int(ROW) * a.top_k + k;
        const uint64_t row = a.pair_out + uint64_t(int64_t(Ints(a.row_pair).at[at]) * a.ld * 4l);
        sum = weighted(Floats(a.weight).at[at], load_row(row, n), sum, n);
    }
    y = normed(y, factor_of(y, n, a.eps), load_row(a.norm_1, n), n);
    y = sum_of_rows(y, normed(sum, factor_of(sum, n, a.eps), load_row(a.norm_2, n), n), n);
    h = sum_of_rows(h, normed(y, factor_of(y, n, a.eps), load_row(a.y_norm, n), n), n);
    if (a.scalar != 0ul) h = scaled(h, Floats(a.scalar).at[0], n);
    store_row(row_of(a.h), n, h);
    if (a.x_norm != 0ul) h = normed(h, factor_of(h, n, a.eps), load_row(a.x_norm, n), n);
    if (a.x != 0ul) store_row(row_of(a.x), n, h);
    if (a.to.q != 0ul) quantize_row(a.to, h, n);
}
