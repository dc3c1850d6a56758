/* Limits of a process: resources, files by Landlock, system calls by seccomp. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "media/locked/lock.h"

#ifdef __linux__
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

ek_err ek_lock_check(bool helper)
{
    (void)helper;
    return EK_OK;
}

/* --- files: Landlock --- */

/* From linux/landlock.h as of version 6, because older headers lack some of these. */
enum {
    CREATE_RULESET = 444,
    ADD_RULE = 445,
    RESTRICT_SELF = 446, /* the same numbers on every architecture */
    ASK_VERSION = 1,
    PATH_BENEATH = 1
};
enum { FS_EXECUTE = 1 << 0, FS_READ_FILE = 1 << 2, FS_READ_DIR = 1 << 3 };

typedef struct ruleset {
    uint64_t fs, net, scoped;
} ruleset;

typedef struct __attribute__((packed)) path_rule {
    uint64_t allowed;
    int32_t fd;
} path_rule;

int ek_lock_landlock(void)
{
    long version = syscall(CREATE_RULESET, NULL, 0, ASK_VERSION);
    return version > 0 ? (int)version : 0;
}

static bool allow_fd(int rules, int fd, uint64_t allowed)
{
    const path_rule r = {.allowed = allowed, .fd = fd};
    return syscall(ADD_RULE, rules, PATH_BENEATH, &r, 0) == 0;
}

static bool allow_path(int rules, const char *path, uint64_t allowed)
{
    const int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT;
    bool good = allow_fd(rules, fd, allowed);
    close(fd);
    return good;
}

/* A version refuses rights that it does not know. */
static bool lock_files(const ek_lock *l)
{
    static const char *const libraries[] = {"/usr", "/lib", "/lib64", "/lib32"}, *const fonts[] = {
                                                                                     "/etc/fonts",
                                                                                     "/var/cache/fontconfig"};
    static const int fs_bits[] = {13, 13, 14,
                                  15, 15, 16}; /* version 1: 13 rights; 2: REFER; 3: TRUNCATE; 5: IOCTL_DEV */
    const int v = l->landlock > 5 ? 5 : l->landlock;
    ruleset all = {.fs = ((uint64_t)1 << fs_bits[v]) - 1, .net = v >= 4 ? 3 : 0};
    if (l->landlock >= 6) all.scoped = 3; /* abstract sockets, signals */
    const size_t size = l->landlock >= 6 ? 24 : l->landlock >= 4 ? 16 : 8;
    int rules = (int)syscall(CREATE_RULESET, &all, size, 0);
    if (rules < 0) return false;
    bool good = true;
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
        good = good && allow_path(rules, libraries[i], FS_EXECUTE | FS_READ_FILE | FS_READ_DIR);
    good = good && allow_path(rules, "/etc/ld.so.cache", FS_READ_FILE);
    for (size_t i = 0; l->fonts && i < sizeof fonts / sizeof *fonts; i++)
        good = good && allow_path(rules, fonts[i], FS_READ_FILE | FS_READ_DIR);
    good = good && allow_fd(rules, l->program, FS_EXECUTE | FS_READ_FILE);
    good = good && syscall(RESTRICT_SELF, rules, 0) == 0;
    close(rules);
    return good;
}

/* --- system calls: seccomp --- */

#if defined(__x86_64__)
#define THIS_MACHINE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define THIS_MACHINE AUDIT_ARCH_AARCH64
#endif

/* The calls with which a decoder of one or several threads starts, reads, writes to its pipes, and ends. */
static const uint16_t allowed[] = {
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_pread64,
    SYS_lseek,
    SYS_close,
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_getcwd,
    SYS_faccessat,
    SYS_readlinkat,
    SYS_getdents64,
    SYS_dup,
    SYS_dup3,
    SYS_ppoll,
    SYS_pselect6,
    SYS_fadvise64,
    SYS_mmap,
    SYS_mprotect,
    SYS_munmap,
    SYS_mremap,
    SYS_madvise,
    SYS_mlock,
    SYS_munlock,
    SYS_brk,
    SYS_futex,
    SYS_set_robust_list,
    SYS_rseq,
    SYS_set_tid_address,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_getpriority,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_restart_syscall,
    SYS_sigaltstack,
    SYS_exit,
    SYS_exit_group,
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_gettimeofday,
    SYS_getrandom,
    SYS_getpid,
    SYS_gettid,
    SYS_getppid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_uname,
    SYS_sysinfo,
    SYS_getrusage,
    SYS_times,
    SYS_execve,
    SYS_execveat,
#ifdef __x86_64__
    SYS_dup2,
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_readlink,
    SYS_poll,
    SYS_select,
    SYS_getdents,
    SYS_arch_prctl,
    SYS_getrlimit,
    SYS_time,
#endif
};

#define LOAD(offset)          (struct sock_filter) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)(offset))
#define RETURN(what)          (struct sock_filter) BPF_STMT(BPF_RET | BPF_K, (unsigned)(what))
#define IF_EQ(value, yes, no) (struct sock_filter) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)(value), yes, no)
#define IF_SET(bits, yes, no) (struct sock_filter) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (unsigned)(bits), yes, no)
#define ERROR(number)         (SECCOMP_RET_ERRNO | (number))
#define NUMBER                offsetof(struct seccomp_data, nr)
#define ARG(i)                (offsetof(struct seccomp_data, args) + 8 * (i)) /* the lower half, little-endian */

typedef struct program {
    struct sock_filter at[2 * sizeof allowed / sizeof *allowed + 64];
    unsigned short n;
} program;

static void add(program *p, struct sock_filter f)
{
    p->at[p->n++] = f;
}

/* Begins a filter that kills calls of another architecture, whose numbers are others, and allows n calls. */
static program begin_filter(const uint16_t *calls, size_t n)
{
    program p = {.n = 0};
    add(&p, LOAD(offsetof(struct seccomp_data, arch)));
    add(&p, IF_EQ(THIS_MACHINE, 1, 0));
    add(&p, RETURN(SECCOMP_RET_KILL_PROCESS));
    add(&p, LOAD(NUMBER));
    for (size_t i = 0; i < n; i++) {
        add(&p, IF_EQ(calls[i], 0, 1));
        add(&p, RETURN(SECCOMP_RET_ALLOW));
    }
    return p;
}

/* All other calls get the error. */
static bool apply_filter(program *p, unsigned error)
{
    add(p, RETURN(ERROR(error)));
    const struct sock_fprog filter = {.len = p->n, .filter = p->at};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

/* Allows the call `nr` if none of `bits` is set in its argument i; otherwise the call gets the error. */
static void allow_without(program *p, unsigned nr, unsigned i, unsigned bits, unsigned error)
{
    add(p, IF_EQ(nr, 0, 4));
    add(p, LOAD(ARG(i)));
    add(p, IF_SET(bits, 0, 1));
    add(p, RETURN(ERROR(error)));
    add(p, RETURN(SECCOMP_RET_ALLOW));
}

/* Allows the call if argument i is `value` in both halves. */
static void allow_where(program *p, unsigned nr, unsigned i, unsigned value, unsigned error)
{
    add(p, IF_EQ(nr, 0, 6));
    add(p, LOAD(ARG(i)));
    add(p, IF_EQ(value, 0, 2));
    add(p, LOAD(ARG(i) + 4));
    add(p, IF_EQ(0, 1, 0));
    add(p, RETURN(ERROR(error)));
    add(p, RETURN(SECCOMP_RET_ALLOW));
}

static void refuse(program *p, unsigned nr, unsigned error)
{
    add(p, IF_EQ(nr, 0, 1));
    add(p, RETURN(ERROR(error)));
}

/* Threads, no processes. */
static void allow_threads(program *p)
{
    refuse(p, SYS_clone3, ENOSYS); /* a filter cannot read its flags; C libraries then use clone */
    add(p, IF_EQ(SYS_clone, 0, 4));
    add(p, LOAD(ARG(0)));
    add(p, IF_SET(CLONE_THREAD, 1, 0));
    add(p, RETURN(ERROR(EPERM)));
    add(p, RETURN(SECCOMP_RET_ALLOW));
}

static bool lock_calls(void)
{
    const unsigned writes = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND | (O_TMPFILE & ~O_DIRECTORY);
    program p = begin_filter(allowed, sizeof allowed / sizeof *allowed);
    allow_without(&p, SYS_openat, 2, writes, EACCES);
    allow_where(&p, SYS_prctl, 0, PR_SET_NAME, EPERM);
    /* prlimit64 may only read the process's own limits. */
    allow_where(&p, SYS_prlimit64, 2, 0, EPERM);
    /* F_SETOWN and F_SETSIG could send any signal to any process of this user. */
    add(&p, IF_EQ(SYS_fcntl, 0, 6));
    add(&p, LOAD(ARG(1)));
    add(&p, IF_EQ(F_SETOWN, 2, 0));
    add(&p, IF_EQ(F_SETSIG, 1, 0));
    add(&p, IF_EQ(F_SETOWN_EX, 0, 1));
    add(&p, RETURN(ERROR(EPERM)));
    add(&p, RETURN(SECCOMP_RET_ALLOW));
    /* ffmpeg would catch the signal at the end of its processor time, and the file would look damaged. */
    add(&p, IF_EQ(SYS_rt_sigaction, 0, 4));
    add(&p, LOAD(ARG(0)));
    add(&p, IF_EQ(SIGXCPU, 0, 1));
    add(&p, RETURN(ERROR(EPERM)));
    add(&p, RETURN(SECCOMP_RET_ALLOW));
    refuse(&p, SYS_ioctl, ENOTTY);
    refuse(&p, SYS_socket, EACCES);
#ifdef __x86_64__
    allow_without(&p, SYS_open, 1, writes, EACCES);
#endif
    allow_threads(&p);
    return apply_filter(&p, ENOSYS);
}

/* --- all limits together --- */

static bool limit(int what, rlim_t soft, rlim_t hard)
{
    /* The server itself may have been started with a lower limit, which then stays, because a process cannot raise
     * it. */
    struct rlimit l;
    if (getrlimit(what, &l)) return false;
    if (l.rlim_max == RLIM_INFINITY || hard < l.rlim_max) l.rlim_max = hard;
    l.rlim_cur = soft < l.rlim_max ? soft : l.rlim_max;
    return setrlimit(what, &l) == 0;
}

static bool lock_resources(const ek_lock *l)
{
    const bool own = l->helper || (limit(RLIMIT_CPU, (rlim_t)l->cpu_seconds, (rlim_t)l->cpu_seconds + 1) &&
                                   limit(RLIMIT_AS, (rlim_t)l->memory, (rlim_t)l->memory));
    return own && limit(RLIMIT_CORE, 0, 0) && limit(RLIMIT_FSIZE, 0, 0) && limit(RLIMIT_NOFILE, 32, 32);
}

/* Turns root into nobody. Uses system calls, because the C library's setuid changes all threads, and these still belong
 * to the parent. */
static bool lock_rights(void)
{
    enum { NOBODY = 65534 };
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    const struct __user_cap_data_struct none[2] = {{0}};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return false;
    if (geteuid() == 0) {
        /* This fails if few users exist, as in some containers. The process then stays root, but without root's
         * rights. */
        (void)syscall(SYS_setgroups, 0, NULL);
        (void)syscall(SYS_setresgid, NOBODY, NOBODY, NOBODY);
        (void)syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY);
    }
    struct __user_cap_data_struct have[2] = {{0}};
    /* A process without rights needs no call. A service's filter often refuses capset. */
    if (syscall(SYS_capget, &head, have) == 0 && memcmp(have, none, sizeof none) == 0) return true;
    return syscall(SYS_capset, &head, none) == 0;
}

/* After the change of users, which would undo it. */
static bool lock_life(const ek_lock *l)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)) return false;
    errno = ESRCH;
    return getppid() == l->parent;
}

const char *ek_lock_apply(const ek_lock *l)
{
    if (!lock_resources(l)) return "limits of its resources";
    if (!lock_rights()) return "its rights";
    if (!l->helper && !lock_life(l)) return "its parent's life";
    if (l->landlock > 0 && !lock_files(l)) return "Landlock";
    return l->helper || lock_calls() ? NULL : "seccomp";
}

/* --- the process that decodes one file --- */

/* Memory, locks, its own threads, its desk and standard error, its end. No mremap: with it a decoder could write on its
 * desk beyond its own file, and that part is not cleared before the next file. The C library then copies instead. */
static const uint16_t allowed_decoder[] = {
    SYS_read,
    SYS_write,
    SYS_writev,
    SYS_close,
    SYS_munmap,
    SYS_madvise,
    SYS_brk,
    SYS_futex,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sched_yield,
    SYS_clock_gettime,
    SYS_gettimeofday,
    SYS_getrandom,
    SYS_getpid,
    SYS_gettid,
    SYS_nanosleep,
    SYS_exit,
    SYS_exit_group,
    SYS_clock_getres,
    SYS_clock_nanosleep,
    SYS_getrusage,
    SYS_restart_syscall,
    SYS_set_robust_list,
    SYS_rseq,
#ifdef EK_SANITIZED
    SYS_sigaltstack,       /* the sanitizer calls this at every longjmp */
    SYS_sched_getaffinity, /* and this for the stack of every thread */
#endif
#ifdef __x86_64__
    SYS_time,
#endif
};

static bool lock_calls_decoder(void)
{
    program p = begin_filter(allowed_decoder, sizeof allowed_decoder / sizeof *allowed_decoder);
    allow_without(&p, SYS_mmap, 2, PROT_EXEC, EACCES);
    allow_without(&p, SYS_mprotect, 2, PROT_EXEC, EACCES);
    allow_threads(&p);
    return apply_filter(&p, EPERM);
}

const char *ek_lock_decoder(pid_t parent, size_t memory, unsigned cpu_ms)
{
    const rlim_t seconds = cpu_ms / 1000 + 2;
    const struct itimerval timer = {
        .it_value = {.tv_sec = cpu_ms / 1000, .tv_usec = (suseconds_t)(cpu_ms % 1000) * 1000}};
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) || getppid() != parent) return "its parent's life";
    if (!limit(RLIMIT_CPU, seconds, seconds) || (memory && !limit(RLIMIT_AS, memory, memory)) ||
        setitimer(ITIMER_PROF, &timer, NULL))
        return "limits of its resources";
    return lock_calls_decoder() ? NULL : "seccomp";
}
#endif
