/* Limits of a process on macOS: resources, and the sandbox for pure computation, which sshd also uses there. This code
 * was never run. Other systems have no sandbox here. */
#include "media/locked/lock.h"

#ifndef __linux__
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

int ek_lock_landlock(void)
{
    return 0;
}

#ifdef __APPLE__
/* From sandbox.h, which marks them as deprecated. There is no other way for a program outside a bundle. */
extern const char kSBXProfilePureComputation[];
int sandbox_init(const char *profile, uint64_t flags, char **error);
enum { NAMED = 1 };

ek_err ek_lock_check(bool helper)
{
    if (helper) return EK_OK;
    return ek_fail(EK_EUNSUPPORTED, "videos and PDF files are read on Linux alone, where who reads them is locked up");
}

static bool limit(int resource, rlim_t soft, rlim_t hard)
{
    const struct rlimit l = {soft, hard};
    return setrlimit(resource, &l) == 0;
}

const char *ek_lock_decoder(pid_t parent, size_t memory, unsigned cpu_ms)
{
    const rlim_t seconds = cpu_ms / 1000 + 2;
    const struct itimerval timer = {
        .it_value = {.tv_sec = cpu_ms / 1000, .tv_usec = (suseconds_t)(cpu_ms % 1000) * 1000}};
    char *why = NULL;
    if (getppid() != parent) return "its parent's life"; /* a later end: the limit of processor time */
    if (sandbox_init(kSBXProfilePureComputation, NAMED, &why)) {
        errno = EPERM;
        return "the sandbox";
    }
    /* The sandbox still allows sockets. Without descriptors, a process cannot use them. */
    if (!limit(RLIMIT_NOFILE, 0, 0) || !limit(RLIMIT_NPROC, 0, 0) || !limit(RLIMIT_FSIZE, 0, 0) ||
        !limit(RLIMIT_CORE, 0, 0) || !limit(RLIMIT_CPU, seconds, seconds) ||
        (memory && !limit(RLIMIT_AS, memory, memory)) || setitimer(ITIMER_PROF, &timer, NULL))
        return "limits of its resources";
    return NULL;
}
#else
ek_err ek_lock_check(bool helper)
{
    (void)helper;
    return ek_fail(EK_EUNSUPPORTED,
                   "pictures, sounds and videos are read on Linux and macOS alone, where who reads them is locked up");
}

const char *ek_lock_decoder(pid_t parent, size_t memory, unsigned cpu_ms)
{
    (void)parent, (void)memory, (void)cpu_ms;
    errno = ENOSYS;
    return "this system";
}
#endif
#endif
