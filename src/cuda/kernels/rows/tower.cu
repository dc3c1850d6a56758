// The work between the products of a tower for images or sounds (cuda/tower_args.h): patches and windows, norms with
// their clips and sums, heads and their rotation by column and line, gates, convolutions along time, soft tokens.
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

// row = row * r, and with weights also times these
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

// The norm of a row whose absent elements are 0.
__device__ __forceinline__ void norm(stage_row &row, const float *w, int n, float eps, float *leaf)
{
    scale(row, row.factor(n, eps, leaf), w, n);
}

// Sets absent elements to 0 again, because a clip or a difference may have changed them.
__device__ __forceinline__ void keep(stage_row &row, int n)
{
#pragma unroll
    for (int i = 0; i < 8; i++) row.v[i] = row.first() + i * 16 < n ? row.v[i] : 0;
}

__device__ __forceinline__ void layer_norm(stage_row &row, const float *w, const float *b, int n, float eps, float *sum,
                                           float *leaf)
{
    const float mean = __fdiv_rn(row.sum(n, sum), (float)n);
#pragma unroll
    for (int i = 0; i < 8; i++) row.v[i] = row.v[i] - mean;
    keep(row, n);
    const float r = row.factor(n, eps, leaf);
    stage_row weight, bias;
    weight.read(w, n), bias.read(b, n);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float v = row.v[i] * r;
        row.v[i] = b ? fma_(v, weight.v[i], bias.v[i]) : v * weight.v[i];
    }
}

// a sigmoid(g)
__device__ __forceinline__ float sigmoid_mul(float a, float g)
{
    const float t = exp_(-fabsf(g));
    return __fdiv_rn(a * (g < 0 ? t : 1.0f), 1.0f + t);
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
    __shared__ float leaf[3][32];
    const int p = blockIdx.x;
    const float limit[2] = {-a.limit, a.limit};
    float *const to = (float *)a.h + p * a.ld;
    stage_row h, y;
    let_next_start();
    wait_for_previous();
    h.read(to, a.n);
    if (a.y) {
        y.read((const float *)a.y + p * a.ld, a.n);
        clip(y, a.y_clip);
        keep(y, a.n);
        if (a.y_norm) norm(y, (const float *)a.y_norm, a.n, a.eps, leaf[0]);
#pragma unroll
        for (int i = 0; i < 8; i++) h.v[i] = fma_(a.factor, y.v[i], h.v[i]); // with factor 1 this is the sum itself
    } else if (a.column) add_place(h, a.column, a.line, a.ld, p, a.across, a.n);
    if (a.h_norm) {
        clip(h, limit);
        norm(h, (const float *)a.h_norm, a.n, a.eps, leaf[1]);
    }
    if (a.y || a.column) h.write(to, a.n);
    if (!a.n_x) return;
    clip(h, limit);
    norm(h, (const float *)a.x_norm, a.n, a.x_eps, leaf[2]);
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
    for (int first = 0; first < heads;
         first += HALVES) { // the same for all threads, because the shuffles need whole warps
        const int number = min(first + half, heads - 1), which = number < a.heads                ? 0
                                                                 : number < a.heads + a.kv_heads ? 1
                                                                                                 : 2;
        const int head = number - (which == 0 ? 0 : which == 1 ? a.heads : a.heads + a.kv_heads);
        float *x = (float *)(which == 0 ? a.q : which == 1 ? a.k : a.v) + p * a.ld + head * a.dim;
        const float *w = which == 0 ? (const float *)a.q_norm : which == 1 ? (const float *)a.k_norm : 0;
        const float to[2] = {a.clip[which][0], a.clip[which][1]};
        float v[OWN], sum = 0;
#pragma unroll
        for (int i = 0; i < OWN; i++)
            v[i] = first + half < heads && lane + i * 16 < a.dim ? clip(x[lane + i * 16], to) : 0;
#pragma unroll
        for (int i = 0; i < OWN; i++) sum = fma_(v[i], v[i], sum); // absent elements are 0 and change nothing
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
    const int64_t row = blockIdx.y * a.ld, to = blockIdx.y * a.ldy;
    let_next_start();
    wait_for_previous();
#pragma unroll
    for (int i = 0; i < EK_CUDA_TOWER_EACH; i++) {
        const int at = (blockIdx.x * EK_CUDA_TOWER_EACH + i) * 256 + threadIdx.x;
        if (at >= a.n) break;
        const float g = clip(((const float *)a.g)[row + at], a.g_clip),
                    u = clip(((const float *)a.u)[row + at], a.u_clip);
        ((float *)a.y)[to + at] = clip(a.sigmoid ? sigmoid_mul(u, g) : gelu_(g) * u, a.y_clip);
    }
}

extern "C" __global__ void __launch_bounds__(1024) ek_tower_norms(const __grid_constant__ ek_cuda_tower_norms_args a)
{
    __shared__ float leaf[5][32];
    const int p = blockIdx.x;
    stage_row x;
    let_next_start();
    wait_for_previous();
    x.read((const float *)a.x + p * a.ldx, a.n);
    if (a.bias) {
        stage_row bias;
        bias.read((const float *)a.bias, a.n);
#pragma unroll
        for (int i = 0; i < 8; i++) x.v[i] = x.v[i] + bias.v[i];
    }
    if (a.layer_norms > 0) layer_norm(x, (const float *)a.w[0], (const float *)a.b[0], a.n, a.ln_eps, leaf[0], leaf[1]);
    if (a.column) add_place(x, a.column, a.line, a.n, p, a.across, a.n);
    if (a.layer_norms > 1) layer_norm(x, (const float *)a.w[1], (const float *)a.b[1], a.n, a.ln_eps, leaf[2], leaf[3]);
    if (a.rms) norm(x, 0, a.n, a.eps, leaf[4]);
    clip(x, a.clip);
    x.write((float *)a.y + p * a.ldy, a.n);
}

extern "C" __global__ void __launch_bounds__(256) ek_tower_windows(const __grid_constant__ ek_cuda_tower_windows_args a)
{
    const int t = blockIdx.y, each = 9 * a.channels, n = a.cols / 2 * each;
    float *const y = (float *)a.y + (int64_t)t * n;
    let_next_start();
    wait_for_previous();
#pragma unroll
    for (int i = 0; i < EK_CUDA_TOWER_EACH; i++) {
        const int at = (blockIdx.x * EK_CUDA_TOWER_EACH + i) * 256 + threadIdx.x;
        if (at >= n) break;
        const int f = at / each, place = at % each / a.channels, channel = at % a.channels;
        const int row = 2 * t + place / 3 - 1, col = 2 * f + place % 3 - 1;
        const bool there = row >= 0 && row < a.rows && col >= 0 && col < a.cols;
        y[at] = there ? ((const float *)a.x)[((int64_t)row * a.cols + col) * a.channels + channel] : 0;
    }
}

extern "C" __global__ void __launch_bounds__(1024) ek_tower_taps(const __grid_constant__ ek_cuda_tower_taps_args a)
{
    __shared__ float leaf[32];
    const int p = blockIdx.x, first = p - a.taps + 1;
    const float limit[2] = {-a.limit, a.limit};
    stage_row y;
#pragma unroll
    for (int i = 0; i < 8; i++) y.v[i] = 0;
    let_next_start();
    wait_for_previous();
    for (int j = max(0, -first); j < a.taps; j++) {
        stage_row w, x;
        w.read((const float *)a.tap + (int64_t)j * a.n, a.n), x.read((const float *)a.x + (first + j) * a.ld, a.n);
#pragma unroll
        for (int i = 0; i < 8; i++) y.v[i] = fma_(w.v[i], x.v[i], y.v[i]);
    }
    clip(y, limit);
    norm(y, (const float *)a.norm, a.n, a.eps, leaf);
#pragma unroll
    for (int i = 0; i < 8; i++) y.v[i] = sigmoid_mul(y.v[i], y.v[i]);
    clip(y, a.clip);
    y.write((float *)a.y + p * a.ld, a.n);
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
