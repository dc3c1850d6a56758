// What lies between two linear layers, for a row: h = h + norm(y, y_norm) with y; h = h * *scalar with scalar;
// x = norm(h, x_norm), or h without x_norm; x = x * factor with has_factor; then quantised. grid (rows)
#version 460
#include "math.glsl"
#include "memory.glsl"
#include "row.glsl"
const int GROUPS = ROW_THREADS * EACH / 16;
#include "group_codes.glsl"
layout(local_size_x = 256) in;

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Args {
    uint64_t h, y, y_norm;
    uint64_t pair_out, row_pair, weight, norm_1, norm_2;
    uint64_t scalar, x_norm;
    uint64_t x;
    acts to;
    int64_t ld;
    float eps, factor;
    int n, top_k, has_factor;
};
layout(push_constant, scalar) uniform Push { Args a; };

uint64_t row_of(uint64_t base)
{
    return base + uint64_t(int64_t(gl_WorkGroupID.x) * a.ld * 4l);
}

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
    if (a.to.q == 0ul) return;
    const int group = a.to.a_group, groups = (n + group - 1) / group;
    const int64_t row = int64_t(gl_WorkGroupID.x);
    begin_groups();
    barrier();
    UNROLL for (int i = 0; i < EACH; i++)
        if (element_of(i) < n) see_value(element_of(i) / group, h[i]);
    barrier();
    scale_groups(groups);
    barrier();
    UNROLL for (int i = 0; i < EACH; i++)
        if (element_of(i) < groups * group) write_code(a.to, row, element_of(i), element_of(i) / group, h[i]);
    barrier();
    write_groups(a.to, row, 0, groups);
}
