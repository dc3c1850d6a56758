#define _GNU_SOURCE
#include "base/linux.h"

#ifndef __linux__
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

/* Returns fd, or closes it and returns -1. */
static int with_flags(int fd, int exec, int nonblock)
{
    if (fd < 0) return -1;
    const bool good = (!exec || fcntl(fd, F_SETFD, FD_CLOEXEC) == 0) &&
                      (!nonblock || fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0);
    if (good) return fd;
    close(fd);
    return -1;
}

int ek_socket(int domain, int type, int protocol)
{
    const int flags = type & (SOCK_CLOEXEC | SOCK_NONBLOCK);
    return with_flags(socket(domain, type & ~flags, protocol), flags & SOCK_CLOEXEC, flags & SOCK_NONBLOCK);
}

int ek_socketpair(int domain, int type, int protocol, int fd[2])
{
    const int flags = type & (SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socketpair(domain, type & ~flags, protocol, fd)) return -1;
    for (int i = 0; i < 2; i++) {
#ifdef SO_NOSIGPIPE /* for kernels without MSG_NOSIGNAL */
        const int on = 1;
        (void)setsockopt(fd[i], SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
        if (with_flags(fd[i], flags & SOCK_CLOEXEC, flags & SOCK_NONBLOCK) >= 0) continue;
        close(fd[!i]);
        return -1;
    }
    return 0;
}

int accept4(int fd, struct sockaddr *from, socklen_t *n, int flags)
{
    return with_flags(accept(fd, from, n), flags & SOCK_CLOEXEC, flags & SOCK_NONBLOCK);
}

int pipe2(int fd[2], int flags)
{
    if (pipe(fd)) return -1;
    for (int i = 0; i < 2; i++) {
        if (with_flags(fd[i], flags & O_CLOEXEC, flags & O_NONBLOCK) >= 0) continue;
        close(fd[!i]);
        return -1;
    }
    return 0;
}

int eventfd(unsigned count, int flags)
{
    struct sockaddr_in self = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof self;
    const uint64_t first = count;
    const int fd = with_flags(socket(AF_INET, SOCK_DGRAM, 0), flags & EFD_CLOEXEC, flags & EFD_NONBLOCK);
    if (fd < 0) return -1;
    struct sockaddr *at = (struct sockaddr *)&self;
    if (!bind(fd, at, n) && !getsockname(fd, at, &n) && !connect(fd, at, n) &&
        (!count || write(fd, &first, sizeof first) == sizeof first))
        return fd;
    close(fd);
    return -1;
}

ssize_t getrandom(void *out, size_t n, unsigned flags)
{
    enum { AT_ONCE = 256 };
    const size_t some = n < AT_ONCE ? n : AT_ONCE;
    (void)flags;
    return getentropy(out, some) ? -1 : (ssize_t)some;
}

int fdatasync(int fd)
{
#ifdef F_FULLFSYNC
    if (fcntl(fd, F_FULLFSYNC) == 0) return 0;
#endif
    return fsync(fd);
}

void *mremap(void *p, size_t was, size_t n, int flags)
{
    (void)flags;
    void *to = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
    if (to == MAP_FAILED) return to;
    memcpy(to, p, was < n ? was : n);
    munmap(p, was);
    return to;
}

static int not_here(void)
{
    errno = ENOSYS;
    return -1;
}

int memfd_create(const char *name, unsigned flags)
{
    static atomic_uint n;
    char unique[32];
    (void)name;
    for (int i = 0; i < 100; i++) {
        snprintf(unique, sizeof unique, "/ek-%d-%u", (int)getpid(), atomic_fetch_add(&n, 1));
        const int fd = shm_open(unique, O_RDWR | O_CREAT | O_EXCL, 0600);
        if (fd < 0 && errno == EEXIST) continue;
        if (fd >= 0) shm_unlink(unique);
        return with_flags(fd, flags & MFD_CLOEXEC, 0);
    }
    return -1;
}

int fallocate(int fd, int mode, off_t at, off_t n)
{
    (void)fd, (void)mode, (void)at, (void)n;
    return not_here();
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
#ifdef __APPLE__
    return renameatx_np(from_dir, from, to_dir, to, flags == RENAME_EXCHANGE ? RENAME_SWAP : 0);
#else
    if (flags == RENAME_EXCHANGE) return not_here();
    return renameat(from_dir, from, to_dir, to);
#endif
}

int malloc_trim(size_t keep)
{
    (void)keep;
    return 0;
}

void *memrchr(const void *s, int c, size_t n)
{
    const unsigned char *p = s;
    while (n > 0)
        if (p[--n] == (unsigned char)c) return (void *)(uintptr_t)(p + n);
    return NULL;
}

int CPU_COUNT(const cpu_set_t *set)
{
    int n = 0;
    for (int i = 0; i < CPU_SETSIZE; i++) n += (int)CPU_ISSET(i, set);
    return n;
}

int sched_getaffinity(pid_t pid, size_t n, cpu_set_t *out)
{
    const long all = sysconf(_SC_NPROCESSORS_ONLN);
    (void)pid, (void)n;
    CPU_ZERO(out);
    for (int i = 0; i < all && i < CPU_SETSIZE; i++) CPU_SET(i, out);
    return all > 0 ? 0 : -1;
}

int sched_setaffinity(pid_t pid, size_t n, const cpu_set_t *set)
{
    (void)pid, (void)n, (void)set;
    return not_here();
}
#endif
