// The end of a layer with experts: y = norm(y, norm_1) + norm(sum, norm_2), where sum is the pairs' outputs, weighted,
// in ascending expert id; then as stage.comp. grid (rows)
#version 460
#include "math.glsl"
#include "memory.glsl"
#define ROW gl_WorkGroupID.x
#include "row.glsl"
#include "quantize_row.glsl"
#include "stage_args.glsl"

// fma(w, x, sum); without care row_is_small tells where that may have lost something.
vec4 weighted(float w, vec4 x, vec4 sum, bool care)
{
    for (int i = 0; i < 4; i++) {
        if (care) {
            sum[i] = fma_(w, x[i], sum[i]);
            continue;
        }
        const float r = normal_fma(w, x[i], sum[i]);
        if (may_lose(w, x[i], sum[i], r)) row_is_small = 1u;
        sum[i] = r;
    }
    return sum;
}

row_parts sum_of_pairs(int n, bool care)
{
    row_parts sum;
    sum.p0 = sum.p1 = sum.p2 = sum.p3 = vec4(0.0);
    for (int i = 0; i < a.top_k; i++) {
        const int at = int(ROW) * a.top_k + i;
        const uint64_t row = a.pair_out + uint64_t(int64_t(Ints(a.row_pair).at[at]) * a.ld * 4l);
        const float w = Floats(a.weight).at[at];
#define WEIGH_PART(k) sum.p##k = weighted(w, four_at(row, first_of(k), n, care), sum.p##k, care);
        EACH_PART(WEIGH_PART)
    }
    return sum;
}

// False: with care alone, and nothing is written.
bool run(bool care)
{
    const int n = a.n;
    row_parts y = load_row(row_of(a.y), n, care), w = load_row(a.norm_1, n, care), all = y;
    row_parts h = load_row(row_of(a.h_from != 0ul ? a.h_from : a.h), n, care);
    bool usual = true;
    begin_row();
    barrier();
    const row_parts sum = sum_of_pairs(n, care);
    // One loop, so that the later norms' instructions are those that the first one waited for.
    [[dont_unroll]] for (int norm = 0; norm < 4; norm++) {
        if (norm == 3) {
            if (a.scalar != 0ul) h = scaled(h, Floats(a.scalar).at[0], n);
            y = h;
            if (a.x_norm == 0ul) break;
            w = load_row(a.x_norm, n, care);
        }
        y = normed(y, factor_of(y, n, a.eps, care, usual), w, n);
        if (norm == 0) all = y, y = sum, w = load_row(a.norm_2, n, care);
        else if (norm == 1) y = sum_of_rows(all, y, n), w = load_row(a.y_norm, n, care);
        else if (norm == 2) h = sum_of_rows(h, y, n);
    }
    if (!usual) return false;
    store_row(row_of(a.h), n, h, care);
    if (a.x != 0ul) store_row(row_of(a.x), n, y, care);
    if (a.to.q != 0ul) quantize_row(a.to, y, n);
    return true;
}

void main()
{
#if !EK_SOFT
    if (are_fours(a.h | a.h_from | a.y | a.pair_out | a.norm_1 | a.norm_2 | a.y_norm | a.x_norm | a.x, a.ld, a.n)) {
        if (run(false)) return;
        barrier();
    }
#endif
    run(true);
}
