// Races of kernels, found by the thread sanitizer: each thread of a block is a fiber of its own to it, and only what
// stands here orders two of them: barriers, __syncwarp, arrivals. What else a warp does together (shuffles, products)
// orders nothing, and copies write when they are asked for. EK_RACES: `make races`; else nothing.
#pragma once

#include <stddef.h>

#if defined(EK_RACES)
#include <sanitizer/tsan_interface.h>

extern "C" void __tsan_write_range(void *, unsigned long);
extern "C" void AnnotateIgnoreReadsBegin(const char *, int), AnnotateIgnoreReadsEnd(const char *, int);
extern "C" void AnnotateIgnoreWritesBegin(const char *, int), AnnotateIgnoreWritesEnd(const char *, int);

// What the emulated device does itself while one stands.
struct ek_race_quiet {
    ek_race_quiet()
    {
        AnnotateIgnoreReadsBegin("", 0), AnnotateIgnoreWritesBegin("", 0);
    }
    ~ek_race_quiet()
    {
        AnnotateIgnoreWritesEnd("", 0), AnnotateIgnoreReadsEnd("", 0);
    }
};

// What is before ek_race_tell of a place is before what follows ek_race_see of it.
static inline void ek_race_tell(void *place)
{
    __tsan_release(place);
}
static inline void ek_race_see(void *place)
{
    __tsan_acquire(place);
}
static inline void ek_race_write(void *to, size_t bytes)
{
    __tsan_write_range(to, bytes);
}
// The running thread is none that a kernel made.
static inline void ek_race_home(void **fiber)
{
    *fiber = __tsan_get_current_fiber();
}
// *fiber: NULL before its first turn; not the running one.
static inline void ek_race_change(void **fiber)
{
    if (!*fiber) *fiber = __tsan_create_fiber(0);
    __tsan_switch_to_fiber(*fiber, __tsan_switch_to_fiber_no_sync);
}
#else
struct ek_race_quiet {
    ~ek_race_quiet()
    {
    }
};
static inline void ek_race_tell(void *)
{
}
static inline void ek_race_see(void *)
{
}
static inline void ek_race_write(void *, size_t)
{
}
static inline void ek_race_home(void **)
{
}
static inline void ek_race_change(void **)
{
}
#endif
