// What only the device's instructions do. Every line of assembly of the kernels is here, so that the rest compiles as
// plain C++ over another file of this name (tests/emulate/cuda/kernels/device.cuh), which computes the same on a CPU.
#pragma once

#include <stdint.h>

#define EK_DYNAMIC_SHARED(type, name)                                                                                 \
    extern __shared__ __align__(128) uint8_t ek_dynamic_shared[];                                                     \
    type *const name = (type *)ek_dynamic_shared

namespace ek {

typedef uint32_t u32;
typedef uint64_t u64;

// --- launches that may start before the one in front has ended
__device__ __forceinline__ void let_next_start()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

__device__ __forceinline__ void wait_for_previous()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

// for what does not depend on the kernel in front: towards the second-level cache
__device__ __forceinline__ void prefetch_line(const void *p)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

// towards the multiprocessor's own cache, with what it will be read as; behind wait_for_previous only
__device__ __forceinline__ void touch_line(const void *p)
{
    asm volatile("{\n"
                 ".reg .u32 unused;\n"
                 "ld.global.ca.u32 unused, [%0];\n"
                 "}" ::"l"(p)
                 : "memory");
}

// --- copies to shared memory that a thread waits for itself: those it committed, but for the last N groups
__device__ __forceinline__ u32 shared_at(const void *p)
{
    return (u32)__cvta_generic_to_shared(p);
}

template <int N> __device__ __forceinline__ void copy_async(void *to, const void *from)
{
    if (N == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_at(to)), "l"(from) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_at(to)), "l"(from), "n"(N) : "memory");
}

// for what other warps of the multiprocessor read too: through its cache
__device__ __forceinline__ void copy_shared16(void *to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(shared_at(to)), "l"(from) : "memory");
}

__device__ __forceinline__ void copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int N> __device__ __forceinline__ void copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// --- copies of whole pieces by one thread (addresses and bytes multiples of 16); `arrived` counts their bytes, and
// anybody waits for its phases 0, 1, 0, ... A phase also ends by `threads` calls of arrival_tell, each of a thread whose
// writes before it are then there.
__device__ __forceinline__ void arrival_open(u64 *arrived, u32 threads = 1)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_at(arrived)), "r"(threads) : "memory");
}

// behind all arrival_open of a thread, before others or copies use them
__device__ __forceinline__ void arrival_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void arrival_expect(u64 *arrived, u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_at(arrived)), "r"(bytes) : "memory");
}

__device__ __forceinline__ void copy_piece(void *to, const void *from, u32 bytes, u64 *arrived)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_at(to)), "l"(from),
                 "r"(bytes), "r"(shared_at(arrived))
                 : "memory");
}

__device__ __forceinline__ void arrival_wait(u64 *arrived, u32 phase)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "AGAIN%=:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@p bra DONE%=;\n"
                 "bra AGAIN%=;\n"
                 "DONE%=:\n"
                 "}" ::"r"(shared_at(arrived)),
                 "r"(phase)
                 : "memory");
}

__device__ __forceinline__ void arrival_tell(u64 *arrived)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_at(arrived)) : "memory");
}

// --- d += a b over 32 inputs: 16 outputs by 8 columns, int8, exact
__device__ __forceinline__ void mma(int (&d)[4], const u32 *a, u32 b0, u32 b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// the same over 16 inputs
__device__ __forceinline__ void mma_half(int (&d)[4], const u32 *a, u32 b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
}

// The thread's number, read anew where it is needed instead of kept, with all that is computed from it, in registers.
__device__ __forceinline__ int thread_again()
{
    int tid;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(tid));
    return tid;
}

} // namespace ek
