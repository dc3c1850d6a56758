// h_out = h + norm(y, y_norm), and what reads it: norm(h_out, norm[0]) for the dense MLP, norm[1] times factor for the
// router, norm[2] for the experts, quantised; the router's row also as floats. grid (3, rows), a row for each, or (1,
// rows)
#version 460
#include "math.glsl"
#include "memory.glsl"
#define ROW gl_WorkGroupID.y
#include "row.glsl"
#include "quantize_row.glsl"
layout(local_size_x = 256) in;

// ek_cuda_inputs_args
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Args {
    uint64_t h, h_out, y, y_norm;
    uint64_t norm[3];
    acts to[3];
    uint64_t router;
    int64_t ld;
    float eps, factor;
    int n;
};
layout(push_constant, scalar) uniform Push { Args a; };

uint64_t row_of(uint64_t base)
{
    return base + uint64_t(int64_t(ROW) * a.ld * 4l);
}

void main()
{
    const int n = a.n, first = gl_NumWorkGroups.x == 1u ? 0 : int(gl_WorkGroupID.x);
    const int end = gl_NumWorkGroups.x == 1u ? 3 : first + 1;
    float h[EACH], v[EACH];
    UNROLL for (int i = 0; i < EACH; i++) v[i] = element_at(row_of(a.y), i, n);
    const float f = factor_of(v, n, a.eps);
    UNROLL for (int i = 0; i < EACH; i++) {
        h[i] = add_(element_at(row_of(a.h), i, n), mul_(mul_(v[i], f), element_at(a.y_norm, i, n)));
        if (first == 0 && element_of(i) < n) Floats(row_of(a.h_out)).at[element_of(i)] = h[i];
    }
    const float by = factor_of(h, n, a.eps);
    for (int which = first; which < end; which++) {
        UNROLL for (int i = 0; i < EACH; i++) {
            v[i] = mul_(mul_(h[i], by), element_at(a.norm[which], i, n));
            if (which != 1) continue;
            v[i] = mul_(v[i], a.factor);
            if (a.router != 0ul && element_of(i) < n) Floats(row_of(a.router)).at[element_of(i)] = v[i];
        }
        if (a.to[which].q != 0ul) quantize_row(a.to[which], v, n);
    }
}
