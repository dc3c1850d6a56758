// What lies between the products of a tower of images (cuda/tower_args.h): patches, norms with their clips and sums,
// heads and their rotation by column and line, gates, soft tokens.
#include "cuda/kernels/row.cuh"
#include "cuda/tower_args.h"

using namespace ek;

namespace
{

__device__ __forceinline__ float clip(float x, const float (&to)[2])
{
    const float m = to[0] > x ? to[0] : x;
    return to[1] < m ? to[1] : m;
}

__device__ __forceinline__ void clip(stage_row &row, const float (&to)[2])
{
#pragma unroll
    for (int i = 0; i < 8; i++) row.v[i] = clip(row.v[i], to);
}

// row = row * r, and with weights times these
__device__ __forceinline__ void scale(stage_row &row, float r, const float *w, int n)
{
#pragma unroll
    for (int i = 0; i < 8; i++) row.v[i] = row.v[i] * r;
    if (!w) return;
    stage_row weight;
    weight.read(w, n);
#pragma unroll
    for (int i = 0; i < 8; i++) row.v[i] = row.v[i] * weight.v[i];
}

// h + (column + line) of patch p
__device__ __forceinline__ void add_place(stage_row &h, u64 column, u64 line, int64_t ld, int p, int across, int n)
{
    stage_row c, l;
    c.read((const float *)column + p % across * ld, n);
    l.read((const float *)line + p / across * ld, n);
#pragma unroll
    for (int i = 0; i < 8; i++) h.v[i] = h.v[i] + (c.v[i] + l.v[i]);
}

} // namespace

extern "C" __global__ void __launch_bounds__(256) ek_tower_patch(const __grid_constant__ ek_cuda_patch_args a)
{
    const int i = blockIdx.x * 256 + threadIdx.x, p = blockIdx.y, line = 3 * a.side;
    if (i >= line * a.side) return;
    const int64_t row = (int64_t)(p / a.across * a.side + i / line) * a.across * line;
    ((float *)a.x)[p * a.ldx + i] =
        ((const float *)a.value)[((const uint8_t *)a.rgb)[row + p % a.across * line + i % line]];
}

extern "C" __global__ void __launch_bounds__(1024) ek_tower_stage(const __grid_constant__ ek_cuda_tower_stage_args a)
{
    __shared__ float leaf[2][32];
    const int p = blockIdx.x;
    float *const to = (float *)a.h + p * a.ld;
    stage_row h, y;
    let_next_start();
    wait_for_previous();
    h.read(to, a.n);
    if (a.y) {
        y.read((const float *)a.y + p * a.ld, a.n);
        clip(y, a.y_clip); // of absent elements too
#pragma unroll
        for (int i = 0; i < 8; i++) y.v[i] = y.first() + i * 16 < a.n ? y.v[i] : 0;
        scale(y, y.factor(a.n, a.eps, leaf[0]), (const float *)a.y_norm, a.n);
#pragma unroll
        for (int i = 0; i < 8; i++) h.v[i] = h.v[i] + y.v[i];
    } else if (a.column) add_place(h, a.column, a.line, a.ld, p, a.across, a.n);
    if (a.y || a.column) h.write(to, a.n);
    if (!a.n_x) return;
    scale(h, h.factor(a.n, a.eps, leaf[1]), (const float *)a.x_norm, a.n);
#pragma unroll
    for (int j = 0; j < EK_CUDA_TOWER_INPUTS; j++) {
        if (j >= a.n_x) break;
        stage_row x = h;
        clip(x, a.x_clip[j]);
        x.write((float *)a.x[j] + p * a.ld, a.n);
    }
}

extern "C" __global__ void __launch_bounds__(EK_CUDA_TOWER_HEADS_THREADS)
    ek_tower_heads(const __grid_constant__ ek_cuda_tower_heads_args a)
{
    constexpr int HALVES = EK_CUDA_TOWER_HEADS_THREADS / 16, OWN = 8;
    __shared__ float rows[HALVES][16 * OWN];
    const int p = blockIdx.x, half = threadIdx.x / 16, lane = threadIdx.x % 16, n = a.dim / 4;
    const int heads = a.heads + 2 * a.kv_heads;
    let_next_start();
    wait_for_previous();
    for (int first = 0; first < heads; first += HALVES) { // all threads alike: the shuffles need whole warps
        const int number = min(first + half, heads - 1), which = number < a.heads                ? 0
                                                                 : number < a.heads + a.kv_heads ? 1
                                                                                                 : 2;
        const int head = number - (which == 0 ? 0 : which == 1 ? a.heads : a.heads + a.kv_heads);
        float *x = which == 0   ? (float *)a.q + p * a.ldq
                   : which == 1 ? (float *)a.k + p * a.ldk
                                : (float *)a.v + p * a.ldv;
        x += head * a.dim;
        const float *w = which == 0 ? (const float *)a.q_norm : which == 1 ? (const float *)a.k_norm : 0;
        const float to[2] = {a.clip[which][0], a.clip[which][1]};
        float v[OWN], sum = 0;
#pragma unroll
        for (int i = 0; i < OWN; i++)
            v[i] = first + half < heads && lane + i * 16 < a.dim ? clip(x[lane + i * 16], to) : 0;
#pragma unroll
        for (int i = 0; i < OWN; i++) sum = fma_(v[i], v[i], sum); // 0 where there is no element changes nothing
        const float r = norm_factor(__shfl_sync(~0u, add_lanes(sum), 0, 16), a.dim, a.eps);
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            v[i] = v[i] * r;
            if (w && lane + i * 16 < a.dim) v[i] = v[i] * w[lane + i * 16];
            rows[half][lane + i * 16] = v[i];
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            const int d = lane + i * 16, of = d / (2 * n), j = d % (2 * n) % n;
            if (d >= a.dim || first + half >= heads) continue;
            const int at = (of ? p / a.across : p % a.across) * n + j;
            const float *pair = &rows[half][of * 2 * n + j];
            if (which < 2) {
                const float c = ((const float *)a.cos)[at], s = ((const float *)a.sin)[at];
                v[i] = d % (2 * n) < n ? fma_(-pair[n], s, pair[0] * c) : fma_(pair[0], s, pair[n] * c);
            }
            x[d] = v[i];
        }
        __syncwarp();
    }
}

extern "C" __global__ void __launch_bounds__(256) ek_tower_gate(const __grid_constant__ ek_cuda_tower_gate_args a)
{
    const int64_t row = blockIdx.y * a.ld;
    let_next_start();
    wait_for_previous();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int at = blockIdx.x * 1024 + i * 256 + threadIdx.x;
        if (at >= a.n) break;
        const float g = clip(((const float *)a.g)[row + at], a.g_clip),
                    u = clip(((const float *)a.u)[row + at], a.u_clip);
        ((float *)a.y)[row + at] = clip(gelu_(g) * u, a.y_clip);
    }
}

extern "C" __global__ void __launch_bounds__(1024) ek_tower_pool(const __grid_constant__ ek_cuda_tower_pool_args a)
{
    __shared__ float leaf[32];
    const int tokens = a.across / a.side, t = blockIdx.x;
    stage_row x;
#pragma unroll
    for (int i = 0; i < 8; i++) x.v[i] = 0;
    let_next_start();
    wait_for_previous();
    for (int y = 0; y < a.side; y++)
        for (int c = 0; c < a.side; c++) {
            const int p = (t / tokens * a.side + y) * a.across + t % tokens * a.side + c;
            stage_row h;
            h.read((const float *)a.h + p * a.ldh, a.n);
#pragma unroll
            for (int i = 0; i < 8; i++) x.v[i] = fma_(a.share, h.v[i], x.v[i]);
        }
    stage_row bias, factor;
    bias.read((const float *)a.bias, a.n), factor.read((const float *)a.scale, a.n);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        x.v[i] = x.v[i] * a.factor;
        if (a.bias) x.v[i] = (x.v[i] - bias.v[i]) * factor.v[i];
    }
    scale(x, x.factor(a.n, a.eps, leaf), 0, a.n);
    x.write((float *)a.x + t * a.ldx, a.n);
}
