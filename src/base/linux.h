/* Linux calls under their names; on other POSIX systems the nearest equivalents. Programs are linked with these for
 * macOS (tools/check/check_macos.sh) and were never run. Define _GNU_SOURCE before the first header. */
#ifndef EK_BASE_LINUX_H
#define EK_BASE_LINUX_H

#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#ifdef __linux__
#include <malloc.h>
#include <sys/eventfd.h>
#include <sys/random.h>

#define ek_socket     socket
#define ek_socketpair socketpair
#else
#include <stddef.h>
#include <stdint.h>

/* Flags of a socket's type, for ek_socket and ek_socketpair. */
#define SOCK_CLOEXEC      (1 << 28)
#define SOCK_NONBLOCK     (1 << 29)
int ek_socket(int domain, int type, int protocol);
int ek_socketpair(int domain, int type, int protocol, int fd[2]);
int accept4(int fd, struct sockaddr *from, socklen_t *n, int flags);
int pipe2(int fd[2], int flags);
#define MSG_CMSG_CLOEXEC  0
#define POLLRDHUP         0 /* a half-closed peer is noticed only once it has closed fully */

/* A counter whose descriptor is readable while it is not 0. Here: datagrams of a socket that is its own peer; each read
 * takes one. */
enum { EFD_CLOEXEC = 1, EFD_NONBLOCK = 2 };
int eventfd(unsigned count, int flags);

ssize_t getrandom(void *out, size_t n, unsigned flags);
int fdatasync(int fd);
#define MADV_HUGEPAGE     MADV_NORMAL
#define MAP_POPULATE      0
#define MREMAP_MAYMOVE    1
void *mremap(void *p, size_t was, size_t n, int flags); /* copies the bytes */
#define MFD_CLOEXEC       1
#define MFD_ALLOW_SEALING 2
int memfd_create(const char *name, unsigned flags);     /* only for one ftruncate and mmap */
#define F_ADD_SEALS       (-1)
#define F_SEAL_SHRINK     0
#define F_SEAL_GROW       0
#define F_SEAL_WRITE      0
#define F_SEAL_SEAL       0
int fallocate(int fd, int mode, off_t at, off_t n);     /* ENOSYS */
enum { RENAME_EXCHANGE = 2 };
int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags);
int malloc_trim(size_t keep);
void *memrchr(const void *s, int c, size_t n);
extern char **environ;

/* The number of processors is the system's; threads are not bound to them. */
enum { CPU_SETSIZE = 1024 };
typedef struct cpu_set_t {
    uint64_t bits[CPU_SETSIZE / 64];
} cpu_set_t;
#define CPU_ZERO(set)     (*(set) = (cpu_set_t){{0}})
#define CPU_SET(i, set)   ((set)->bits[(i) / 64] |= (uint64_t)1 << (i) % 64)
#define CPU_ISSET(i, set) ((set)->bits[(i) / 64] >> (i) % 64 & 1)
int CPU_COUNT(const cpu_set_t *set);
int sched_getaffinity(pid_t pid, size_t n, cpu_set_t *out);
int sched_setaffinity(pid_t pid, size_t n, const cpu_set_t *set); /* ENOSYS */

#ifdef __APPLE__
#define st_mtim st_mtimespec
#define st_ctim st_ctimespec
#endif
#endif

#endif
