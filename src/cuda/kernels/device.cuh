// What only the device's instructions do. Every line of assembly of the kernels is here, so that the rest compiles as
// plain C++ over another file of this name (tests/emulate/cuda/kernels/device.cuh), which computes the same on a CPU.
//
// What an architecture lacks is not here for it: EK_HAS_WGMMA (9.0a), EK_HAS_BULK (copies of whole pieces and arrivals
// that count bytes, 9.0 and later), EK_HAS_CLUSTERS, EK_HAS_OVERLAP, EK_HAS_LARGE_SHARED (more than 200 KB of shared
// memory) say what is, and a kernel that lives on one of them stands behind `#if`. cuda/chip.c has the same for whoever
// chooses kernels.
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

// The thread's number, read anew where it is needed instead of kept, with all that is computed from it, in registers.
__device__ __forceinline__ int thread_again()
{
    int tid;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(tid));
    return tid;
}

// --- launches that may start before the one in front has ended
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

// --- words in global memory that other devices read: what lay there in front of store_system is there for who then
// reads with load_system what it stored
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

// a word and a number beside it, which are there together
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

// two of them, at a multiple of 16 bytes: each is there with its number
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

// --- copies of whole pieces (addresses and bytes multiples of 16); `arrived` counts what has come, and anybody waits
// for its phases 0, 1, 0, ... A phase also ends by `threads` calls of arrival_tell, each of a thread whose writes
// before it are then there.
//
// Who copies: with EK_HAS_BULK one thread, which announces all bytes first (arrival_expect); else a whole warp, whose
// lanes each copy a part and arrive by themselves (arrival_of_copies), a lane behind its last piece. So that one text
// serves both, threads that may copy ask copies_here, an arrival that copies end is opened by arrival_open_copies, and
// behind the last piece stands arrival_of_copies.
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

// behind all arrival_open of a thread, before others or copies use them
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

// the same of what a step reads once: the first that the second-level cache gives up
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
#define EK_ARRIVED "mbarrier.try_wait.parity.shared::cta.b64" // which may sleep
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

// a thread's copies and writes to shared memory before it: wgmma, or what is copied there
// next, comes behind them behind a barrier
__device__ __forceinline__ void wgmma_reads_fence()
{
#if EK_HAS_BULK
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// --- blocks of a cluster, which are those of a row of the grid, by blockIdx.x: they start together and write into each
// other's shared memory. Between cluster_arrive and the first such write a
// cluster_wait: all of them have started and opened their arrivals. Without EK_HAS_CLUSTERS no kernel that is there
// comes here.
#if EK_HAS_CLUSTERS
__device__ __forceinline__ void cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait()
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// v to `to`, and 4 bytes announced to `arrived`, both as they lie in block `block`, which waits by sent_wait and ends
// only then
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

// --- d += a b over 32 inputs: 16 outputs by 8 columns, int8, exact
__device__ __forceinline__ void mma(int (&d)[4], const u32 *a, u32 b0, u32 b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// d = start + a b
__device__ __forceinline__ void mma_from(int (&d)[4], int start, const u32 *a, u32 b0, u32 b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(start));
}

// mma over 16 inputs
__device__ __forceinline__ void mma_half(int (&d)[4], const u32 *a, u32 b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
}

#if EK_HAS_WGMMA
// --- products of a warpgroup (128 threads, whose first warp's number is a multiple of 4): 64 outputs by N columns over
// 32 inputs, int8, exact. A lane's part of a is that of mma, the warp's 16 outputs of 64; d holds {g, g + 8} x {2 t, 2
// t + 1} of 8 columns after 8. b lies in shared memory: a column's 128 bytes in a row, 8 rows in 1024, whose 16-byte
// pieces c of row n are at c ^ n % 8; `b` is where 32 inputs of column 0 would begin without that. Between wgmma_fence
// and wgmma_wait neither a nor d may be touched.
__device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// all but the last LEFT committed are done
template <int LEFT> __device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

__device__ __forceinline__ u64 wgmma_operand(const void *b)
{
    return (u64)(shared_at(b) >> 4 & 0x3fff) | (u64)1 << 16 | (u64)64 << 32 | (u64)1 << 62;
}

// values that a wgmma has written, or will read: they are in their registers here
template <int N> __device__ __forceinline__ void wgmma_pin(int (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+r"(d[i])::"memory");
}

template <int N> __device__ __forceinline__ void wgmma_pin(u32 (&a)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+r"(a[i])::"memory");
}

#define EK_REGS4(i)  "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3])
#define EK_REGS8(i)  EK_REGS4(i), EK_REGS4(i + 4)
#define EK_REGS16(i) EK_REGS4(i), EK_REGS4(i + 4), EK_REGS4(i + 8), EK_REGS4(i + 12)
#define EK_REGS32(i) EK_REGS16(i), EK_REGS16(i + 16)
#define EK_REGS64(i) EK_REGS32(i), EK_REGS32(i + 32)
#define EK_WGMMA(N, REGS, LIST, A, B, KEEP)                                                               \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " KEEP ", 0;\n"                                        \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k32.s32.s8.s8 {" LIST "}, {" A "}, " B ", p;\n}" \
                 : REGS                                                                                   \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(wgmma_operand(b)), "n"(KEPT))

// d = (KEPT ? d : 0) + a b
template <int KEPT> __device__ __forceinline__ void wgmma(int (&d)[4], const u32 *a, const void *b)
{
    EK_WGMMA(8, EK_REGS4(0), "%0,%1,%2,%3", "%4,%5,%6,%7", "%8", "%9");
}

template <int KEPT> __device__ __forceinline__ void wgmma(int (&d)[8], const u32 *a, const void *b)
{
    EK_WGMMA(16, EK_REGS8(0), "%0,%1,%2,%3,%4,%5,%6,%7", "%8,%9,%10,%11", "%12", "%13");
}

template <int KEPT> __device__ __forceinline__ void wgmma(int (&d)[16], const u32 *a, const void *b)
{
    EK_WGMMA(32, EK_REGS16(0), "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15", "%16,%17,%18,%19", "%20",
             "%21");
}

template <int KEPT> __device__ __forceinline__ void wgmma(int (&d)[32], const u32 *a, const void *b)
{
    EK_WGMMA(64, EK_REGS32(0),
             "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
             "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31",
             "%32,%33,%34,%35", "%36", "%37");
}

template <int KEPT> __device__ __forceinline__ void wgmma(int (&d)[64], const u32 *a, const void *b)
{
    EK_WGMMA(128, EK_REGS64(0),
             "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
             "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
             "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
             "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63",
             "%64,%65,%66,%67", "%68", "%69");
}
#else
// The same by mma and what a warp reads itself.
__device__ __forceinline__ void wgmma_fence()
{
}

__device__ __forceinline__ void wgmma_commit()
{
}

template <int LEFT> __device__ __forceinline__ void wgmma_wait()
{
}

template <class T, int N> __device__ __forceinline__ void wgmma_pin(T (&)[N])
{
}

// b0 and b1 of 16 columns: lane i asks for piece i / 8 % 2 of column i % 8 of the first or the second eight.
__device__ __forceinline__ void read_columns(u32 (&b)[4], u32 at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                 : "r"(at)
                 : "memory");
}

template <int KEPT, int N> __device__ __forceinline__ void wgmma(int (&d)[N], const u32 *a, const void *b)
{
    const u32 at = shared_at(b), lane = threadIdx.x % 32, column = lane % 8,
              own = (at & ~127u) + column * 128 + ((at / 16 % 8 + lane / 8 % 2) ^ column) * 16;
    auto add = [&](int(&sum)[4], u32 b0, u32 b1) {
        if (KEPT) mma(sum, a, b0, b1);
        else mma_from(sum, 0, a, b0, b1);
    };
#pragma unroll
    for (int i = 0; i < N; i += 8) {
        u32 x[4];
        const bool two = i + 8 <= N; // of 8 columns alone the second half is read again
        read_columns(x, own + (i / 4 + (two ? lane / 16 : 0)) * 1024);
        add(*(int(*)[4])(d + i), x[0], x[1]);
        if (two) add(*(int(*)[4])(d + i + 4), x[2], x[3]);
    }
}
#endif

} // namespace ek
