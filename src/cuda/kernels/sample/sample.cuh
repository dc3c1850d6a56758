// Queries about a row's options, for the kernels of sampling (sample.cu, sample_sort.cu).
#pragma once

#include "cuda/args.h"
#include "cuda/kernels/sample/select.cuh"

namespace ek
{

constexpr float LEAST_TEMPERATURE = 1e-5f, MOST_GUMBEL = 22.875f; // EK_MAX_GUMBEL

__device__ __forceinline__ bool greedy(const ek_cuda_sample &o)
{
    return o.temperature < LEAST_TEMPERATURE;
}

__device__ __forceinline__ bool cuts_k(const ek_cuda_sample &o, int n)
{
    return o.top_k > 0 && o.top_k < n;
}

__device__ __forceinline__ bool unlimited(const ek_cuda_sample &o, int n)
{
    return !cuts_k(o, n) && o.top_p >= 1 && o.min_p <= 0;
}

__device__ __forceinline__ float minus_infinity()
{
    return bits(0xff800000u);
}

} // namespace ek
