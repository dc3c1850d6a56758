// Products of Form Q of experts by narrow tiles of wgmma (mid_product.cuh), for jobs of up to EK_CUDA_MID_JOB_ROWS rows
// (cuda/model_args.h): of a matrix, and of two with their gate. A block has as many columns as its job has rows, in
// eights, so that an expert's weights are read once, whether one row chose it or 32. Of jobs of fewer rows, which need
// fewer registers, more blocks share a multiprocessor.
#include "cuda/kernels/product/mid_kernels.cuh"

namespace ek
{

template <int OCT, int A, bool GATE, int ROWS>
__device__ __forceinline__ void mid_job(const ek_cuda_warp_args &p, const ek_cuda_job &job)
{
    typedef mid_product<1, OCT, A, ROWS> product;
    EK_DYNAMIC_SHARED(uint8_t, base);
    const int units = p.a.x.k / 64, lane = (int)threadIdx.x % 32, w = (int)threadIdx.x / 32;
    const product m = {p.a, base, 0, units, job.first, job.n, lane, w};
    const int panels = (p.a.n + 15) / 16, first = blockIdx.x * product::WARPS + w, p0 = GATE ? first : first * 2;
    const u64 skip = job.expert * p.expert_bytes;
    u64 code[2], scale[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int64_t unit = (int64_t)min(GATE ? p0 : p0 + i, panels - 1) * units;
        code[i] = (GATE && i ? p.codes2 : p.a.codes) + skip + unit * product::CODE;
        scale[i] = (GATE && i ? p.scales2 : p.a.scales) + skip + unit * product::SCALE;
    }
    float sum[product::SUMS];
    m.run(sum, code, scale, (const int32_t *)p.index);
    if constexpr (GATE) mid_gate_end<A>(p, m, sum, blockIdx.x);
    else mid_store(m, sum, p0, (float *)p.a.y);
}

template <int A, bool GATE, int ROWS> __device__ __forceinline__ void mid_jobs(const ek_cuda_warp_args &p)
{
    constexpr int THIRD = ROWS > 16 ? 3 : 2;
    if (!p.holds) let_next_start();
    if (!p.known) wait_for_previous(); // waits for the list of experts
    if (p.holds) let_next_start();
    // bypasses the cache, which may have those of an earlier layer; an absent job is not read
    const volatile ek_cuda_job *const one = (const volatile ek_cuda_job *)p.jobs + blockIdx.y;
    const u32 n_jobs = *(const volatile u32 *)p.n_jobs;
    const ek_cuda_job job = {one->expert, one->first, one->n, 0};
    if (blockIdx.y >= n_jobs) return;
    if (job.n <= 8) mid_job<1, A, GATE, ROWS>(p, job);
    else if (ROWS <= 16 || job.n <= 16) mid_job<2, A, GATE, ROWS>(p, job);
    else if (ROWS <= 24 || job.n <= 24) mid_job<THIRD, A, GATE, ROWS>(p, job);
    else mid_job<ROWS / 8, A, GATE, ROWS>(p, job);
}

} // namespace ek

#define EK_MID_JOBS(NAME, A, ROWS)                                                       \
    extern "C" __global__ void __launch_bounds__(128, EK_CUDA_MID_JOB_BLOCKS(ROWS))      \
        ek_products_mid_##NAME##_l1_r##ROWS(const __grid_constant__ ek_cuda_warp_args p) \
    {                                                                                    \
        ek::mid_jobs<A, false, ROWS>(p);                                                 \
    }
#define EK_MID_GATE_JOBS(NAME, A, ROWS)                                                       \
    extern "C" __global__ void __launch_bounds__(128, EK_CUDA_MID_JOB_BLOCKS(ROWS))           \
        ek_products_mid_gate_##NAME##_l1_r##ROWS(const __grid_constant__ ek_cuda_warp_args p) \
    {                                                                                         \
        ek::mid_jobs<A, true, ROWS>(p);                                                       \
    }
EK_MID_JOBS(q4, 64, 16)
EK_MID_JOBS(q4, 64, 24)
EK_MID_JOBS(q4, 64, 32)
EK_MID_GATE_JOBS(q4, 64, 24)
EK_MID_GATE_JOBS(q4, 64, 32)
EK_MID_JOBS(q4h_32, 32, 16)
EK_MID_JOBS(q4h_32, 32, 24)
EK_MID_JOBS(q4h_32, 32, 32)
EK_MID_GATE_JOBS(q4h_32, 32, 24)
EK_MID_GATE_JOBS(q4h_32, 32, 32)
