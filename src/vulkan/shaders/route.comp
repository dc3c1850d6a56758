// A row's experts and their weights, in ascending id, from the router's outputs (model/moe.c). grid (rows)
#version 460
#include "math.glsl"
#include "memory.glsl"
layout(local_size_x = 256) in;

// ek_cuda_route_args
layout(set = 0, binding = 0, scalar) uniform Args {
    uint64_t route, expert_scale, expert, weight;
    int64_t ld;
    int n_experts, top_k;
} a;

const int MAX_EXPERTS = 1024, MAX_TOP = 64, LANES = 16;
shared float prob[MAX_EXPERTS], lane_sum[MAX_EXPERTS / 256 * LANES];
shared int id[MAX_TOP]; // by rank

// The sum of these, as for a row (ops/rows/rows.h): lanes of blocks of 256, then T.
float sum_of_all(int n)
{
    const int thread = int(gl_LocalInvocationID.x), blocks = (n + 255) / 256;
    if (thread < blocks * LANES) {
        float sum = 0.0;
        for (int i = thread / LANES * 256 + thread % LANES; i < min(n, thread / LANES * 256 + 256); i += LANES)
            sum = add_(sum, prob[i]);
        lane_sum[thread] = sum;
    }
    barrier();
    for (int apart = 8; apart > 0; apart /= 2) {
        if (thread < blocks * LANES && thread % LANES < apart)
            lane_sum[thread] = add_(lane_sum[thread], lane_sum[thread + apart]);
        barrier();
    }
    float sum = lane_sum[0];
    if (blocks > 1) sum = add_(sum, lane_sum[LANES]);
    if (blocks > 2) sum = add_(sum, blocks > 3 ? add_(lane_sum[2 * LANES], lane_sum[3 * LANES]) : lane_sum[2 * LANES]);
    return sum;
}

void main()
{
    const int n = a.n_experts, thread = int(gl_LocalInvocationID.x), r = int(gl_WorkGroupID.x);
    Floats x = Floats(a.route + uint64_t(int64_t(r) * a.ld * 4l));
    float top = f_(0xff800000u); // the largest number; the first if there is no number
    bool any = false;
    for (int i = 0; i < n; i++)
        if (less_(top, x.at[i])) top = x.at[i], any = true;
    if (!any) top = x.at[0];
    for (int i = thread; i < n; i += 256) prob[i] = exp_(sub_(x.at[i], top));
    barrier();
    const float total = sum_of_all(n);
    barrier();
    for (int i = thread; i < n; i += 256) prob[i] = div_(prob[i], total);
    barrier();
    for (int i = thread; i < n; i += 256) { // the number of values that are larger, or equal and earlier
        const float p = prob[i];
        int rank = 0;
        for (int j = 0; j < n; j++) rank += (j < i ? !less_(prob[j], p) : less_(p, prob[j])) ? 1 : 0;
        if (rank < a.top_k) id[rank] = i;
    }
    barrier();
    if (thread >= a.top_k) return;
    const int mine = id[thread];
    float sum = 0.0;
    int place = 0;
    for (int k = 0; k < a.top_k; k++) {
        sum = add_(sum, prob[id[k]]);
        place += id[k] < mine ? 1 : 0;
    }
    Ints(a.expert).at[r * a.top_k + place] = mine;
    Floats(a.weight).at[r * a.top_k + place] = mul_(div_(prob[mine], sum), Floats(a.expert_scale).at[mine]);
}
