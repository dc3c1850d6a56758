// In place of src/cuda/kernels/device.cuh on a CPU. Copies to shared memory arrive as late as they may: when their
// thread, or anybody, waits for them.
#pragma once

#include "emulate/device.h"

// all kernels are here; which of them are chosen is the device's capability (driver.cc)
#define EK_HAS_WGMMA        1
#define EK_HAS_BULK         1
#define EK_HAS_CLUSTERS     1
#define EK_HAS_OVERLAP      1
#define EK_HAS_LARGE_SHARED 1

#define EK_DYNAMIC_SHARED(type, name) type *const name = (type *)ek_emulated_shared

void ek_emulated_copy(void *to, const void *from, size_t bytes);
void ek_emulated_commit(void);
void ek_emulated_wait(int groups_left);
void ek_emulated_piece(void *to, const void *from, size_t bytes, uint64_t *arrived);
void ek_emulated_tell(uint64_t *arrived);
void ek_emulated_tell_copies(uint64_t *arrived); // once what the thread copies has come
bool ek_emulated_bulk(void);                     // whether one thread copies whole pieces
void ek_emulated_expect(uint64_t *arrived, uint32_t bytes);
void ek_emulated_await(uint64_t *arrived, uint32_t phase);
void ek_emulated_cluster_barrier(void);
void ek_emulated_send(float *to, float v, uint64_t *arrived, unsigned block);

namespace ek
{

typedef uint32_t u32;
typedef uint64_t u64;

static inline int thread_again()
{
    return (int)threadIdx.x;
}

static inline void let_next_start()
{
}

static inline void wait_for_previous()
{
}

static inline void prefetch_line(const void *)
{
}

static inline void touch_line(const void *p)
{
    volatile uint32_t unused = *(const volatile uint32_t *)p; // it must be there
    (void)unused;
}

static inline void store_system(u32 *to, u32 v)
{
    *(volatile u32 *)to = v;
}

static inline u32 load_system(const u32 *from)
{
    return *(const volatile u32 *)from;
}

static inline void store_word(u64 *to, u64 v)
{
    *(volatile u64 *)to = v;
}

static inline u64 load_word(const u64 *from)
{
    return *(const volatile u64 *)from;
}

static inline void store_words(u64 *to, u64 v, u64 next)
{
    store_word(to, v), store_word(to + 1, next);
}

static inline void load_words(const u64 *from, u64 v[2])
{
    v[0] = load_word(from), v[1] = load_word(from + 1);
}

static inline u64 nanoseconds() // the driver begins a kernel only when what it waits for is there
{
    return 0;
}

template <int N> static inline void copy_async(void *to, const void *from)
{
    ek_emulated_copy(to, from, N);
}

static inline void copy_shared16(void *to, const void *from)
{
    ek_emulated_copy(to, from, 16);
}

static inline void copy_commit()
{
    ek_emulated_commit();
}

template <int N> static inline void copy_wait()
{
    ek_emulated_wait(N);
}

static inline void arrival_open(u64 *arrived, u32 threads = 1)
{
    *arrived = (u64)threads << 40;
}

static inline void arrival_open_copies(u64 *arrived)
{
    arrival_open(arrived, ek_emulated_bulk() ? 1 : 32);
}

static inline bool copies_here(int lane)
{
    return !ek_emulated_bulk() || lane == 0;
}

static inline void arrival_fence()
{
}

static inline void arrival_expect(u64 *arrived, u32 bytes)
{
    if (ek_emulated_bulk()) ek_emulated_expect(arrived, bytes);
}

static inline void copy_piece(void *to, const void *from, u32 bytes, u64 *arrived)
{
    if (ek_emulated_bulk()) {
        ek_emulated_piece(to, from, bytes, arrived);
        return;
    }
    for (u32 at = threadIdx.x % 32 * 16; at < bytes; at += 32 * 16)
        ek_emulated_copy((uint8_t *)to + at, (const uint8_t *)from + at, 16);
}

static inline void copy_piece_once(void *to, const void *from, u32 bytes, u64 *arrived)
{
    copy_piece(to, from, bytes, arrived);
}

static inline void arrival_of_copies(u64 *arrived)
{
    if (!ek_emulated_bulk()) ek_emulated_tell_copies(arrived);
}

static inline void arrival_wait(u64 *arrived, u32 phase)
{
    ek_emulated_await(arrived, phase);
}

static inline void arrival_tell(u64 *arrived)
{
    ek_emulated_tell(arrived);
}

static inline void cluster_arrive()
{
}

static inline void cluster_wait()
{
    ek_emulated_cluster_barrier();
}

// a kernel of clusters has no __shared__ variables, which all blocks would share here
static inline void send(float *to, float v, u64 *arrived, u32 block)
{
    ek_emulated_send(to, v, arrived, block);
}

static inline void sent_wait(u64 *arrived, u32 phase)
{
    ek_emulated_await(arrived, phase);
}

static inline void wgmma_reads_fence()
{
}

} // namespace ek
