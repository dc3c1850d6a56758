// Exact integer products of the tensor cores: by a warp from its registers (mma), and by a warpgroup from shared memory
// (wgmma), which architectures without EK_HAS_WGMMA (device.cuh) compute by mma. The only assembly besides
// device.cuh's; tests/emulate/cuda/kernels/mma.cuh computes the same on a CPU.
#pragma once

#include "cuda/kernels/device.cuh"

namespace ek
{

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
// 32 inputs, int8, exact. A lane's part of a is that of mma, for the warp's 16 of 64 outputs; d holds outputs g, g + 8
// by columns 2 t, 2 t + 1, for each 8 columns in turn. b is in shared memory: a column's 128 bytes in a row, 8 rows in
// 1024, with 16-byte piece c of row n at c ^ n % 8; `b` is the address of 32 inputs of column 0 without that
// permutation. Between wgmma_fence and wgmma_wait neither a nor d may be touched. ---
__device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// all committed ones except the last LEFT are done
template <int LEFT> __device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

__device__ __forceinline__ u64 wgmma_operand(const void *b)
{
    return (u64)(shared_at(b) >> 4 & 0x3fff) | (u64)1 << 16 | (u64)64 << 32 | (u64)1 << 62;
}

// values that a wgmma has written, or will read, are in their registers here
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
// The same by mma, with operands that each warp reads itself.
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

// b0 and b1 of 16 columns: lane i requests piece i / 8 % 2 of column i % 8 of the first or the second eight.
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
        const bool two = i + 8 <= N; // with only 8 columns the second half is read again
        read_columns(x, own + (i / 4 + (two ? lane / 16 : 0)) * 1024);
        add(*(int(*)[4])(d + i), x[0], x[1]);
        if (two) add(*(int(*)[4])(d + i + 4), x[2], x[3]);
    }
}
#endif

} // namespace ek
