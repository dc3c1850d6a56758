// Makes the CUDA kernels of src/cuda/kernels plain C++: included in front of each by the compiler (-include). A block
// of threads runs as fibers on one CPU thread, which change at barriers and at what a warp does together, in an order
// that a seed decides; blocks run one after the other, but those of a cluster, and on request those of products
// (driver.cc), together.
//
// What this finds: wrong bits, accesses outside of memory (with -fsanitize=address), missing barriers that some order
// shows, waits that never end. What it cannot: what needs the device's own memory order.
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulate/races.h"

#define __global__ __attribute__((visibility("default")))
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__   static
#define __align__(n) __attribute__((aligned(n)))

struct uint2 {
    unsigned x, y;
} __align__(8);
struct uint4 {
    unsigned x, y, z, w;
} __align__(16);
struct int4 {
    int x, y, z, w;
} __align__(16);
struct float2 {
    float x, y;
} __align__(8);
struct float4 {
    float x, y, z, w;
} __align__(16);

static inline float2 make_float2(float x, float y)
{
    return {x, y};
}
static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}
static inline uint2 make_uint2(unsigned x, unsigned y)
{
    return {x, y};
}
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return {x, y, z, w};
}

// --- where the running thread is
struct ek_emulated_place {
    unsigned x, y, z;
};
extern ek_emulated_place ek_emulated_thread, ek_emulated_block, ek_emulated_block_size, ek_emulated_grid;
#define threadIdx ek_emulated_thread
#define blockIdx  ek_emulated_block
#define blockDim  ek_emulated_block_size
#define gridDim   ek_emulated_grid

extern uint8_t *ek_emulated_shared; // dynamic, as many bytes as the launch asked for

// --- barriers, and what a warp does together: every lane leaves up to 16 words and then sees all lanes'
void ek_emulated_barrier(void);
void ek_emulated_pause(void); // others run first
typedef uint32_t ek_emulated_words[16];
const ek_emulated_words *ek_emulated_share(uint32_t mask, const void *words, size_t bytes);

static inline void __syncthreads(void)
{
    ek_emulated_barrier();
}
static inline void __syncwarp(unsigned mask = ~0u)
{
    ek_emulated_share(mask, "", 0);
}
static inline void __threadfence(void)
{
}

template <class T> static inline T ek_emulated_from(const ek_emulated_words *all, int lane)
{
    T v;
    ek_race_quiet quiet;
    memcpy(&v, all[lane], sizeof v);
    return v;
}
template <class T> static inline T __shfl_sync(unsigned mask, T v, int from, int width = 32)
{
    const int lane = threadIdx.x % 32, base = lane / width * width;
    return ek_emulated_from<T>(ek_emulated_share(mask, &v, sizeof v), base + (from & (width - 1)));
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T v, int by, int width = 32)
{
    const int lane = threadIdx.x % 32;
    (void)width;
    return ek_emulated_from<T>(ek_emulated_share(mask, &v, sizeof v), lane ^ by);
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T v, int by, int width = 32)
{
    const int lane = threadIdx.x % 32;
    const ek_emulated_words *all = ek_emulated_share(mask, &v, sizeof v);
    return ek_emulated_from<T>(all, lane % width + by < width ? lane + by : lane);
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T v, int by, int width = 32)
{
    const int lane = threadIdx.x % 32;
    const ek_emulated_words *all = ek_emulated_share(mask, &v, sizeof v);
    return ek_emulated_from<T>(all, lane % width >= by ? lane - by : lane);
}
template <class T, class F> static inline T ek_emulated_reduce(unsigned mask, T v, F f)
{
    const ek_emulated_words *all = ek_emulated_share(mask, &v, sizeof v);
    bool first = true;
    for (int lane = 0; lane < 32; lane++) {
        if (!(mask >> lane & 1)) continue;
        const T other = ek_emulated_from<T>(all, lane);
        v = first ? other : f(v, other), first = false;
    }
    return v;
}
template <class T> static inline T __reduce_max_sync(unsigned mask, T v)
{
    return ek_emulated_reduce(mask, v, [](T a, T b) { return a > b ? a : b; });
}
template <class T> static inline T __reduce_add_sync(unsigned mask, T v)
{
    return ek_emulated_reduce(mask, v, [](T a, T b) { return (T)(a + b); });
}
static inline unsigned __ballot_sync(unsigned mask, int v)
{
    const unsigned own = v ? 1u << threadIdx.x % 32 : 0;
    return ek_emulated_reduce(mask, own, [](unsigned a, unsigned b) { return a | b; });
}
static inline int __popc(unsigned v)
{
    return __builtin_popcount(v);
}
static inline int __any_sync(unsigned mask, int v)
{
    return ek_emulated_reduce(mask, (int)(v != 0), [](int a, int b) { return a | b; });
}

// --- atomics
template <class T> static inline T atomicAdd(T *p, T v)
{
    return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}
template <class T> static inline T atomicMax(T *p, T v)
{
    T old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (v > old && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return old;
}
template <class T> static inline T atomicMin(T *p, T v)
{
    T old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (v < old && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return old;
}

// --- arithmetic
static inline float __uint_as_float(unsigned u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static inline unsigned __float_as_uint(float f)
{
    unsigned u;
    memcpy(&u, &f, 4);
    return u;
}
static inline float __int_as_float(int i)
{
    return __uint_as_float((unsigned)i);
}
static inline float __fmaf_rn(float a, float b, float c)
{
    return __builtin_fmaf(a, b, c);
}
static inline double __fma_rn(double a, double b, double c)
{
    return __builtin_fma(a, b, c);
}
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline double __dmul_rn(double a, double b)
{
    return a * b;
}
static inline float __frcp_rn(float a)
{
    return 1.0f / a;
}

static inline int __dp4a(int a, int b, int c)
{
    for (int i = 0; i < 4; i++) c += (int)(int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i);
    return c;
}

static inline float __fdividef(float a, float b)
{
    return a / b;
}

static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}
static inline float __double2float_rn(double a)
{
    return (float)a;
}
static inline float __int2float_rn(int i)
{
    return (float)i;
}
static inline int __float2int_rn(float f)
{
    return f != f ? 0 : f >= 0x1p31f ? INT32_MAX : f < -0x1p31f ? INT32_MIN : (int)rintf(f);
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned select)
{
    const uint64_t both = (uint64_t)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) r |= (unsigned)(both >> (select >> 4 * i & 7) * 8 & 255) << 8 * i;
    return r;
}
template <class T> static inline T __ldg(const T *p)
{
    return *p;
}
template <class T> static inline T __ldcg(const T *p)
{
    return *p;
}
template <class T> static inline T max(T a, T b)
{
    return a > b ? a : b;
}
template <class T> static inline T min(T a, T b)
{
    return a < b ? a : b;
}
static inline int64_t min(int64_t a, int b)
{
    return a < b ? a : b;
}

#include "cuda_fp16.h"

static inline float2 __half22float2(__half2 h)
{
    return {__half2float(h.x), __half2float(h.y)};
}
