// A row between two linear layers: h = h + norm(y, y_norm) with y; h = h * *scalar with scalar;
// x = norm(h, x_norm), or h without x_norm; x = x * factor with has_factor; then quantised. grid (rows)
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
    row_parts h = load_row(row_of(a.h), n), y, y_norm, x_norm; // asked for together
    if (a.y != 0ul) y = load_row(row_of(a.y), n), y_norm = load_row(a.y_norm, n);
    if (a.x_norm != 0ul) x_norm = load_row(a.x_norm, n);
    if (a.y != 0ul) h = sum_of_rows(h, normed(y, factor_of(y, n, a.eps), y_norm, n), n);
    if (a.scalar != 0ul) h = scaled(h, Floats(a.scalar).at[0], n);
    if (a.y != 0ul || a.scalar != 0ul) store_row(row_of(a.h), n, h);
    if (a.x_norm != 0ul) {
        h = normed(h, factor_of(h, n, a.eps), x_norm, n);
        if (a.has_factor != 0) h = scaled(h, a.factor, n);
    }
    if (a.x != 0ul) store_row(row_of(a.x), n, h);
    if (a.to.q != 0ul) quantize_row(a.to, h, n);
}
