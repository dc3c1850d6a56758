// From a router's outputs to experts' jobs: two shaders for many rows, one for few.
#version 460
#include "math.glsl"
#include "memory.glsl"
layout(local_size_x = 256) in;

#if defined ROUTE

// A row's experts and their weights, in ascending id, from the router's outputs (model/moe.c). grid (rows)
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

#elif defined GROUP_PAIRS

// Sorts pairs by expert and divides them into jobs of up to `tile` pairs. The order of an expert's pairs changes no
// bit, because each pair has its own product. grid (1)
// ek_cuda_group_args
layout(set = 0, binding = 0, scalar) uniform Args {
    uint64_t expert, pair_row, row_pair, jobs, n_jobs;
    int n_experts, top_k, n_pairs, tile;
} a;

const int MAX_EXPERTS = 1024;
shared int count[MAX_EXPERTS], next[MAX_EXPERTS];

int jobs_of(int pairs)
{
    return (pairs + a.tile - 1) / a.tile;
}

void main()
{
    const int thread = int(gl_LocalInvocationID.x);
    Ints expert = Ints(a.expert), job = Ints(a.jobs); // expert, first pair, pairs, unused
    for (int e = thread; e < a.n_experts; e += 256) count[e] = 0;
    barrier();
    for (int i = thread; i < a.n_pairs; i += 256) atomicAdd(count[expert.at[i]], 1);
    barrier();
    for (int e = thread; e < a.n_experts; e += 256) {
        int first = 0, number = 0;
        for (int i = 0; i < e; i++) first += count[i], number += jobs_of(count[i]);
        next[e] = first;
        const int mine = jobs_of(count[e]);
        for (int j = 0; j < mine; j++) {
            const int at = 4 * (number + j);
            job.at[at] = e, job.at[at + 1] = first + j * a.tile;
            job.at[at + 2] = min(a.tile, count[e] - j * a.tile), job.at[at + 3] = 0;
        }
        if (e == a.n_experts - 1) Ints(a.n_jobs).at[0] = number + mine;
    }
    barrier();
    for (int i = thread; i < a.n_pairs; i += 256) {
        const int at = atomicAdd(next[expert.at[i]], 1);
        Ints(a.pair_row).at[at] = i / a.top_k;
        Ints(a.row_pair).at[i] = at;
    }
}

#elif defined CHOOSE

// What the two above do, for few rows and by one workgroup: rows' experts and their
// weights, then their pairs in the order of experts, and jobs of up to `tile`. grid (1)
// ek_cuda_choose_args
layout(set = 0, binding = 0, scalar) uniform Args {
    uint64_t route, expert_scale, weight, pair_row, row_pair, jobs, n_jobs, ended;
    int64_t ld;
    int n_experts, top_k, rows, tile, router_blocks;
} a;

const int EXPERTS = 128, PAIRS = 64, LANES = 16;
shared float prob[EXPERTS];
shared vec4 lane_sum[LANES / 4];
shared int rank_of[EXPERTS], id[PAIRS]; // id: of a row, by rank
shared int top_order, any_nan;
shared int expert_of[PAIRS], head_at[PAIRS]; // of pairs; -1, or the place of a job's first one

// The largest number's rank among floats; less_ is false of NaN, and of minus infinity behind itself.
float largest(Floats x, int n)
{
    const int thread = int(gl_LocalInvocationID.x), none = order_of(f_(0xff800000u));
    if (thread < n && !is_nan(x.at[thread])) atomicMax(top_order, order_of(x.at[thread]));
    barrier();
    const int top = top_order;
    return top == none ? x.at[0] : f_(top < 0 ? 0x80000000u | uint(-top) : uint(top));
}

float sum_of_all(int n)
{
    const int thread = int(gl_LocalInvocationID.x);
    if (thread < LANES) {
        float sum = 0.0;
        for (int i = thread; i < n; i += LANES) sum = add_(sum, prob[i]);
        lane_sum[thread / 4][thread % 4] = sum;
    }
    barrier();
    const vec4 p = lane_sum[0], q = lane_sum[1], r = lane_sum[2], s = lane_sum[3]; // 8, 4, 2 and 1 apart
    const vec4 x = vec4(add_(p.x, r.x), add_(p.y, r.y), add_(p.z, r.z), add_(p.w, r.w));
    const vec4 y = vec4(add_(q.x, s.x), add_(q.y, s.y), add_(q.z, s.z), add_(q.w, s.w));
    return add_(add_(add_(x.x, y.x), add_(x.z, y.z)), add_(add_(x.y, y.y), add_(x.w, y.w)));
}

// How many of [from, to) are larger than p, or as large and in front of number i.
int in_front(int from, int to, int i, float p)
{
    int n = 0;
    if (any_nan != 0) {
        for (int j = from; j < to; j++) n += (j < i ? !less_(prob[j], p) : less_(p, prob[j])) ? 1 : 0;
    } else {
        const int mine = order_of(p);
        for (int j = from; j < to; j++) n += order_of(prob[j]) + (j < i ? 1 : 0) > mine ? 1 : 0;
    }
    return n;
}

void choose(int r)
{
    const int n = a.n_experts, thread = int(gl_LocalInvocationID.x), i = thread % EXPERTS;
    Floats x = Floats(a.route + uint64_t(int64_t(r) * a.ld * 4l));
    if (thread == 0) top_order = order_of(f_(0xff800000u)), any_nan = 0;
    if (thread < EXPERTS) rank_of[thread] = 0;
    barrier();
    const float top = largest(x, n);
    float p = 0.0;
    if (thread < n) prob[thread] = p = exp_(sub_(x.at[thread], top));
    barrier();
    const float total = sum_of_all(n);
    barrier();
    if (thread < n) {
        prob[thread] = p = div_(p, total);
        if (is_nan(p)) any_nan = 1;
    }
    barrier();
    if (i < n) { // half of the others by a thread each
        const int from = thread / EXPERTS * (EXPERTS / 2);
        atomicAdd(rank_of[i], in_front(from, min(n, from + EXPERTS / 2), i, prob[i]));
    }
    barrier();
    if (thread < n && rank_of[thread] < a.top_k) id[rank_of[thread]] = thread;
    barrier();
    if (thread < a.top_k) {
        const int mine = id[thread];
        float sum = 0.0;
        int place = 0;
        for (int k = 0; k < a.top_k; k++) {
            sum = add_(sum, prob[id[k]]);
            place += id[k] < mine ? 1 : 0;
        }
        expert_of[r * a.top_k + place] = mine;
        Floats(a.weight).at[r * a.top_k + place] = mul_(div_(prob[mine], sum), Floats(a.expert_scale).at[mine]);
    }
    barrier();
}

void main()
{
    const int i = int(gl_LocalInvocationID.x), pairs = a.rows * a.top_k;
    for (int r = 0; r < a.rows; r++) choose(r);
    int at = 0, before = 0, same = 0;
    if (i < pairs) {
        const int mine = expert_of[i];
        for (int j = 0; j < pairs; j++) {
            const int other = expert_of[j];
            at += other < mine || (other == mine && j < i) ? 1 : 0;
            same += other == mine ? 1 : 0, before += other == mine && j < i ? 1 : 0;
        }
        Ints(a.pair_row).at[at] = i / a.top_k;
        Ints(a.row_pair).at[i] = at;
        head_at[i] = before % a.tile == 0 ? at : -1;
    }
    barrier();
    if (i >= pairs) return;
    int number = 0, heads = 0;
    for (int j = 0; j < pairs; j++) heads += head_at[j] >= 0 ? 1 : 0, number += head_at[j] >= 0 && head_at[j] < at ? 1 : 0;
    if (i == 0) Ints(a.n_jobs).at[0] = heads;
    if (head_at[i] < 0) return;
    Ints job = Ints(a.jobs + uint64_t(16 * number)); // expert, first pair, pairs, unused
    job.at[0] = expert_of[i], job.at[1] = at, job.at[2] = min(a.tile, same - before), job.at[3] = 0;
}

#endif
