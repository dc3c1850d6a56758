// Operations that only the device's instructions provide; products of the tensor cores are in mma.cuh. All assembly of
// the kernels is in these two files, so that the rest compiles as plain C++ over other files of their names
// (tests/emulate/cuda/kernels), which compute the same on a CPU.
//
// Features of an architecture: EK_HAS_WGMMA (9.0a), EK_HAS_BULK (copies of whole pieces and arrivals that count bytes,
// 9.0 and later), EK_HAS_CLUSTERS, EK_HAS_OVERLAP, EK_HAS_LARGE_SHARED (more than 200 KB of shared memory). A kernel
// that needs one stands behind `#if`. cuda/chip.h has the same features for the choice of kernels.
#pragma once

#include <stdint.h>

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define EK_HAS_WGMMA 1
#else
#define EK_HAS_WGMMA 0
#endif
#define EK_HAS_OVERLAP      (__CUDA_ARCH__ >= 900)
#define EK_HAS_BULK         (__CUDA_ARCH__ >= 900)
#define EK_HAS_CLUSTERS     (__CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200)
#define EK_HAS_LARGE_SHARED (__CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200)

#define EK_DYNAMIC_SHARED(type, name)                              \
    extern __shared__ __align__(1024) uint8_t ek_dynamic_shared[]; \
    type *const name = (type *)ek_dynamic_shared

namespace ek
{

typedef uint32_t u32;
typedef uint64_t u64;

// The thread's number, read again at each use, so that neither it nor values derived from it take registers.
__device__ __forceinline__ int thread_again()
{
    int tid;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(tid));
    return tid;
}

// --- launches that may start before the previous one has ended ---
__device__ __forceinline__ void let_next_start()
{
#if EK_HAS_OVERLAP
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ void wait_for_previous()
{
#if EK_HAS_OVERLAP
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// for data that does not depend on the previous kernel: fetches into the second-level cache
__device__ __forceinline__ void prefetch_line(const void *p)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

// fetches into the multiprocessor's own cache, with the type of its later use; only after wait_for_previous
__device__ __forceinline__ void touch_line(const void *p)
{
    asm volatile("{\n"
                 ".reg .u32 unused;\n"
                 "ld.global.ca.u32 unused, [%0];\n"
                 "}" ::"l"(p)
                 : "memory");
}

// --- words in global memory that other devices read: writes before store_system are visible to a device that reads its
// value with load_system ---
__device__ __forceinline__ void store_system(u32 *to, u32 v)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(v) : "memory");
}

__device__ __forceinline__ u32 load_system(const u32 *from)
{
    u32 v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
    return v;
}

// a word and a number beside it, which become visible together
__device__ __forceinline__ void store_word(u64 *to, u64 v)
{
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(v) : "memory");
}

__device__ __forceinline__ u64 load_word(const u64 *from)
{
    u64 v;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(from) : "memory");
    return v;
}

// two of them, at a multiple of 16 bytes: each becomes visible with its number
__device__ __forceinline__ void store_words(u64 *to, u64 v, u64 next)
{
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(v), "l"(next) : "memory");
}

__device__ __forceinline__ void load_words(const u64 *from, u64 v[2])
{
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(v[0]), "=l"(v[1]) : "l"(from) : "memory");
}

__device__ __forceinline__ u64 nanoseconds()
{
    u64 v;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(v));
    return v;
}

// --- copies to shared memory for which the thread itself waits: all committed ones except the last N groups ---
__device__ __forceinline__ u32 shared_at(const void *p)
{
    return (u32)__cvta_generic_to_shared(p);
}

template <int N> __device__ __forceinline__ void copy_async(void *to, const void *from)
{
    if (N == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_at(to)), "l"(from) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_at(to)), "l"(from), "n"(N) : "memory");
}

// for data that other warps of the multiprocessor also read: through its cache
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

// --- copies of whole pieces (addresses and bytes multiples of 16). `arrived` counts the bytes, and any thread waits
// for its phases 0, 1, 0, ... A phase also ends by `threads` calls of arrival_tell, each by a thread whose earlier
// writes are then visible.
//
// With EK_HAS_BULK one thread copies; it announces all bytes first (arrival_expect). Otherwise a whole warp copies:
// each lane copies a part, and arrives by itself after its last piece (arrival_of_copies). For both, the same text is
// used: threads that may copy ask copies_here, an arrival of copies is opened by arrival_open_copies, and
// arrival_of_copies follows the last piece. ---
__device__ __forceinline__ bool copies_here(int lane)
{
    return !EK_HAS_BULK || lane == 0;
}

__device__ __forceinline__ void arrival_open(u64 *arrived, u32 threads = 1)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_at(arrived)), "r"(threads) : "memory");
}

__device__ __forceinline__ void arrival_open_copies(u64 *arrived)
{
    arrival_open(arrived, EK_HAS_BULK ? 1 : 32);
}

// after all arrival_open of a thread, before others or copies use them
__device__ __forceinline__ void arrival_fence()
{
#if EK_HAS_BULK
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

__device__ __forceinline__ void arrival_tell(u64 *arrived)
{
#if EK_HAS_BULK
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_at(arrived)) : "memory");
#else
    asm volatile("{\n"
                 ".reg .b64 unused;\n"
                 "mbarrier.arrive.shared.b64 unused, [%0];\n"
                 "}" ::"r"(shared_at(arrived))
                 : "memory");
#endif
}

#if EK_HAS_BULK
__device__ __forceinline__ void arrival_expect(u64 *arrived, u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_at(arrived)), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void copy_piece(void *to, const void *from, u32 bytes, u64 *arrived)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_at(to)),
        "l"(from), "r"(bytes), "r"(shared_at(arrived))
        : "memory");
}

// the same for data that a step reads once: the second-level cache evicts it first
__device__ __forceinline__ void copy_piece_once(void *to, const void *from, u32 bytes, u64 *arrived)
{
    u64 policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(policy));
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
            "r"(shared_at(to)),
        "l"(from), "r"(bytes), "r"(shared_at(arrived)), "l"(policy)
        : "memory");
}

__device__ __forceinline__ void arrival_of_copies(u64 *)
{
}
#else
__device__ __forceinline__ void arrival_expect(u64 *, u32)
{
}

__device__ __forceinline__ void copy_piece(void *to, const void *from, u32 bytes, u64 *)
{
    for (u32 at = threadIdx.x % 32 * 16; at < bytes; at += 32 * 16)
        copy_async<16>((uint8_t *)to + at, (const uint8_t *)from + at);
}

__device__ __forceinline__ void copy_piece_once(void *to, const void *from, u32 bytes, u64 *arrived)
{
    copy_piece(to, from, bytes, arrived);
}

__device__ __forceinline__ void arrival_of_copies(u64 *arrived)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_at(arrived)) : "memory");
}
#endif

#if EK_HAS_BULK
#define EK_ARRIVED "mbarrier.try_wait.parity.shared::cta.b64" // it may sleep
#else
#define EK_ARRIVED "mbarrier.test_wait.parity.shared.b64"
#endif
__device__ __forceinline__ void arrival_wait(u64 *arrived, u32 phase)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "AGAIN%=:\n" EK_ARRIVED " p, [%0], %1;\n"
                 "@p bra DONE%=;\n"
                 "bra AGAIN%=;\n"
                 "DONE%=:\n"
                 "}" ::"r"(shared_at(arrived)),
                 "r"(phase)
                 : "memory");
}

// a thread's copies and writes to shared memory before it come before later wgmma, or copies to the same place, after a
// barrier
__device__ __forceinline__ void wgmma_reads_fence()
{
#if EK_HAS_BULK
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// --- blocks of a cluster, which are those of a row of the grid, by blockIdx.x: they start together and write into each
// other's shared memory. Between cluster_arrive and the first such write comes a cluster_wait: all blocks have then
// started and opened their arrivals. Without EK_HAS_CLUSTERS no present kernel reaches this code. ---
#if EK_HAS_CLUSTERS
__device__ __forceinline__ void cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait()
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// writes v to `to`, and announces 4 bytes to `arrived`, both addresses within block `block`, which waits by sent_wait
// and ends only then
__device__ __forceinline__ void send(float *to, float v, u64 *arrived, u32 block)
{
    asm volatile("{\n"
                 ".reg .b32 at, barrier;\n"
                 "mapa.shared::cluster.u32 at, %0, %3;\n"
                 "mapa.shared::cluster.u32 barrier, %2, %3;\n"
                 "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [at], %1, [barrier];\n"
                 "}" ::"r"(shared_at(to)),
                 "r"(__float_as_uint(v)), "r"(shared_at(arrived)), "r"(block)
                 : "memory");
}

__device__ __forceinline__ void sent_wait(u64 *arrived, u32 phase)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "AGAIN%=:\n"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n"
                 "@p bra DONE%=;\n"
                 "bra AGAIN%=;\n"
                 "DONE%=:\n"
                 "}" ::"r"(shared_at(arrived)),
                 "r"(phase)
                 : "memory");
}
#else
__device__ __forceinline__ void cluster_arrive()
{
}

__device__ __forceinline__ void cluster_wait()
{
}

__device__ __forceinline__ void send(float *, float, u64 *, u32)
{
}

__device__ __forceinline__ void sent_wait(u64 *, u32)
{
}
#endif

} // namespace ek
