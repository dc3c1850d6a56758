// ctx = (norm(ctx * ctx_scale, w) + temp * temp_scale) * sum_scale for each layer's elements. grid (layers, rows)
#version 460
#include "math.glsl"
#include "memory.glsl"
const int THREADS = 128;
// The sum of squares of a row (ops/rows/rows.h) by a workgroup of THREADS: chains of 16 lanes over blocks of 256
// elements, the blocks' sums by T. All threads call it; row_value(i) is the row's element i.

const int MAX_LEAVES = 1024; // rows of up to 262,144 elements
shared float lane_sum[THREADS], leaf_sum[MAX_LEAVES];

float row_value(int i); // defined by the shader

float sum_of_squares(int n)
{
    const int thread = int(gl_LocalInvocationID.x), lane = thread % 16, blocks = (n + 255) / 256;
    for (int first = 0; first < blocks; first += THREADS / 16) {
        const int b = first + thread / 16;
        float sum = 0.0;
        for (int at = b * 256 + lane; at < min(n, (b + 1) * 256); at += 16) sum = fma_(row_value(at), row_value(at), sum);
        lane_sum[thread] = sum;
        barrier();
        for (int apart = 8; apart > 0; apart /= 2) {
            if (lane < apart) lane_sum[thread] = add_(lane_sum[thread], lane_sum[thread + apart]);
            barrier();
        }
        if (lane == 0 && b < blocks) leaf_sum[b] = lane_sum[thread];
        barrier();
    }
    for (int apart = 1; apart < blocks; apart *= 2) { // adding neighbours level by level is T
        for (int i = thread * 2 * apart; i + apart < blocks; i += THREADS * 2 * apart)
            leaf_sum[i] = add_(leaf_sum[i], leaf_sum[i + apart]);
        barrier();
    }
    const float sum = leaf_sum[0];
    barrier();
    return sum;
}

float norm_factor(float squares, int n, float eps)
{
    return div_(1.0, sqrt_(add_(div_(squares, float(n)), eps)));
}
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
