// A row between two linear layers: h = h + norm(y, y_norm) with y; h = h * *scalar with scalar;
// x = norm(h, x_norm), or h without x_norm; x = x * factor with has_factor; then quantised. grid (rows)
#version 460
#include "math.glsl"
#include "memory.glsl"
#define ROW gl_WorkGroupID.x
#include "row.glsl"
#include "quantize_row.glsl"
#include "stage_args.glsl"

// False: with care alone, and nothing is written.
bool run(bool care)
{
    const int n = a.n;
    row_parts h = load_row(row_of(a.h), n, care), v = h, w = h, x_norm = h; // asked for together
    if (a.y != 0ul) v = load_row(row_of(a.y), n, care), w = load_row(a.y_norm, n, care);
    if (a.x_norm != 0ul) x_norm = load_row(a.x_norm, n, care);
    const float scalar = a.scalar != 0ul ? Floats(a.scalar).at[0] : 1.0;
    bool usual = true;
    begin_row();
    barrier();
    // One loop, so that the second norm's instructions are those that the first one waited for.
    [[dont_unroll]] for (int norm = a.y != 0ul ? 0 : 1; norm < 2; norm++) {
        if (norm == 1) {
            if (a.scalar != 0ul) h = scaled(h, scalar, n);
            v = h, w = x_norm;
            if (a.x_norm == 0ul) break;
        }
        v = normed(v, factor_of(v, n, a.eps, care, usual), w, n);
        if (norm == 0) h = sum_of_rows(h, v, n);
    }
    if (!usual) return false;
    if (a.x_norm != 0ul && a.has_factor != 0) v = scaled(v, a.factor, n);
    if (a.y != 0ul || a.scalar != 0ul) store_row(row_of(a.h), n, h, care);
    if (a.x != 0ul) store_row(row_of(a.x), n, v, care);
    if (a.to.q != 0ul) quantize_row(a.to, v, n);
    return true;
}

void main()
{
#if !EK_SOFT
    if (are_fours(a.h | a.y | a.y_norm | a.x_norm | a.x, a.ld, a.n)) {
        if (run(false)) return;
        barrier();
    }
#endif
    run(true);
}
