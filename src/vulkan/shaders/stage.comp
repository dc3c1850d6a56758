// What lies between two linear layers, for a row: h = h + norm(y, y_norm) with y; h = h * *scalar with scalar;
// x = norm(h, x_norm), or h without x_norm; x = x * factor with has_factor; then quantised. grid (rows)
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
    float h[EACH], y[EACH];
    UNROLL for (int i = 0; i < EACH; i++) h[i] = element_at(row_of(a.h), i, n);
    if (a.y != 0ul) {
        UNROLL for (int i = 0; i < EACH; i++) y[i] = element_at(row_of(a.y), i, n);
        const float f = factor_of(y, n, a.eps);
        UNROLL for (int i = 0; i < EACH; i++) h[i] = add_(h[i], mul_(mul_(y[i], f), element_at(a.y_norm, i, n)));
    }
    if (a.scalar != 0ul) {
        const float scalar = Floats(a.scalar).at[0];
        UNROLL for (int i = 0; i < EACH; i++) h[i] = mul_(h[i], scalar);
    }
    if (a.y != 0ul || a.scalar != 0ul)
        UNROLL for (int i = 0; i < EACH; i++)
            if (element_of(i) < n) Floats(row_of(a.h)).at[element_of(i)] = h[i];
    if (a.x_norm != 0ul) {
        const float f = factor_of(h, n, a.eps);
        UNROLL for (int i = 0; i < EACH; i++) {
            const float v = mul_(mul_(h[i], f), element_at(a.x_norm, i, n));
            h[i] = a.has_factor != 0 ? mul_(v, a.factor) : v;
        }
    }
    if (a.x != 0ul)
        UNROLL for (int i = 0; i < EACH; i++)
            if (element_of(i) < n) Floats(row_of(a.x)).at[element_of(i)] = h[i];
    if (a.to.q != 0ul) quantize_row(a.to, h, n);
}
