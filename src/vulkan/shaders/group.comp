// Sorts pairs by expert and divides them into jobs of up to `tile` pairs. The order of an expert's pairs changes no
// bit, because each pair has its own product. grid (1)
#version 460
#include "math.glsl"
#include "memory.glsl"
layout(local_size_x = 256) in;

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
