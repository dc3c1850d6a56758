// ctx = (norm(ctx * ctx_scale, w) + temp * temp_scale) * sum_scale for each layer's elements. grid (layers, rows)
#version 460
#include "math.glsl"
#include "memory.glsl"
const int THREADS = 128;
#include "row_sum.glsl"
layout(local_size_x = 128) in;

layout(set = 0, binding = 0, scalar) uniform Args {
    uint64_t ctx, temp, w;
    int64_t ld_ctx, ld_temp;
    float eps, ctx_scale, temp_scale, sum_scale;
    int size;
} a;

uint64_t at(uint64_t base, int64_t ld)
{
    return base + uint64_t((int64_t(gl_WorkGroupID.y) * ld + int64_t(gl_WorkGroupID.x) * int64_t(a.size)) * 4l);
}

float row_value(int i)
{
    return mul_(Floats(at(a.ctx, a.ld_ctx)).at[i], a.ctx_scale);
}

void main()
{
    Floats ctx = Floats(at(a.ctx, a.ld_ctx)), temp = Floats(at(a.temp, a.ld_temp));
    const float f = norm_factor(sum_of_squares(a.size), a.size, a.eps);
    for (int i = int(gl_LocalInvocationID.x); i < a.size; i += THREADS) {
        const float normed = mul_(mul_(row_value(i), f), Floats(a.w).at[i]);
        ctx.at[i] = mul_(add_(normed, mul_(temp.at[i], a.temp_scale)), a.sum_scale);
    }
}
