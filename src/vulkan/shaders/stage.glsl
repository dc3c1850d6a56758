// A row between two linear layers: h = h + norm(y, y_norm) with y; h = h * *scalar with scalar;
// x = norm(h, x_norm), or h without x_norm; x = x * factor with has_factor; then quantised. grid (rows)
#include "memory.glsl"
#define ROW gl_WorkGroupID.x
#include "row.glsl"
#include "quantize_row.glsl"
#include "stage_args.glsl"
layout(local_size_x = 512) in;

void main()
{
    const int n = a.n;
    row_parts h = load_row(row_of(a.h), n), v = h, w, x_norm; // asked for together
    if (a.y != 0ul) v = load_row(row_of(a.y), n), w = load_row(a.y_norm, n);
    if (a.x_norm != 0ul) x_norm = load_row(a.x_norm, n);
    begin_groups();
    barrier();
    // One loop, so that the second norm's instructions are those that the first one waited for.
    [[dont_unroll]] for (int norm = a.y != 0ul ? 0 : 1; norm < 2; norm++) {
        if (norm == 1) {
            if (a.scalar != 0ul) h = scaled(h, Floats(a.scalar).at[0], n);
            if (a.y != 0ul || a.scalar != 0ul) store_row(row_of(a.h), n, h);
            if (a.x_norm == 0ul) break;
            v = h, w = x_norm;
        }
        v = normed(v, factor_of(v, n, a.eps), w, n);
        if (norm == 0) h = sum_of_rows(h, v, n);
        else h = a.has_factor != 0 ? scaled(v, a.factor, n) : v;
    }
    if (a.x != 0ul) store_row(row_of(a.x), n, h);
    if (a.to.q != 0ul) quantize_row(a.to, h, n);
}
