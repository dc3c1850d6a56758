#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "media/locked/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#ifdef __linux__
#include <sys/syscall.h>
#elif defined(__APPLE__)
#include <spawn.h>
#endif
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/linux.h"
#include "media/locked/lock.h"

enum { STACK = 256 << 10, NICE = 10, TICK = 100 /* ms between two checks whether it is wanted */ };

/* --- the child, before it runs the program --- */

/* The child shares its parent's memory until exec, like vfork, because copying a process with a model would take long.
 * So it allocates nothing. It can report an error to the parent. */
typedef struct birth {
    const char *const *argv;
    ek_lock lock;
    int in, out, err; /* descriptors, 3 and up */
    sigset_t mask;    /* the signal mask with which the program begins */
    const char *failed;
    int why;
} birth;

#ifdef __linux__
static bool fail(birth *b, const char *what)
{
    b->failed = what;
    b->why = errno;
    return false;
}

/* Resets all signals, because no handler of the parent may run in the child. */
static void reset_signals(void)
{
    struct sigaction was, as_usual = {.sa_handler = SIG_DFL};
    for (int s = 1; s < NSIG; s++)
        if (sigaction(s, NULL, &was) == 0 && was.sa_handler != SIG_DFL) sigaction(s, &as_usual, NULL);
}

/* Asks the kernel to end this process first when memory runs out. */
static void offer(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0) return;
    if (write(fd, "1000", 4) < 0) errno = 0; /* a failure does not matter */
    close(fd);
}

static void close_others(void)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, 3U, ~0U, 0U) == 0) return;
#endif
    struct rlimit l;
    int n = getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < 1 << 20 ? (int)l.rlim_cur : 1 << 20;
    for (int fd = 3; fd < n; fd++) close(fd);
}

static bool become(birth *b)
{
    static char *const environment[] = {"LC_ALL=C", "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1", NULL};
    reset_signals();
    setsid(); /* Ctrl-C at the terminal must not reach the child */
    offer();
    if (!b->lock.helper && setpriority(PRIO_PROCESS, 0, NICE)) errno = 0;
    if (dup2(b->in, 0) < 0 || dup2(b->out, 1) < 0 || dup2(b->err, 2) < 0) return fail(b, "its pipes");
    close_others();
    if (chdir("/")) return fail(b, "the folder /");
    sigprocmask(SIG_SETMASK, &b->mask, NULL);
    b->lock.program = open(b->argv[0], O_PATH | O_CLOEXEC);
    if (b->lock.program < 0) return fail(b, "exec");
    const char *missing = ek_lock_apply(&b->lock);
    if (missing) return fail(b, missing);
    char *const *argv = (char *const *)(uintptr_t)b->argv;
    execve(argv[0], argv, environment);
    /* If nobody may enter the program's folder, such as root's, the program is started by its descriptor. This is not
     * possible for a script, which is read by its name. */
    if (errno == EACCES) syscall(SYS_execveat, b->lock.program, "", argv, environment, AT_EMPTY_PATH);
    return fail(b, "exec");
}

static int run(void *arg)
{
    become(arg);
    _exit(127);
}
#endif

/* --- the parent --- */

static void close_fd(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* Makes a pipe whose ends have numbers above the standard descriptors, because the child's ends replace those. */
static bool make_pipe(int fd[2])
{
    int both[2];
    if (pipe2(both, O_CLOEXEC)) return false;
    for (int i = 0; i < 2; i++) {
        fd[i] = fcntl(both[i], F_DUPFD_CLOEXEC, 3);
        close(both[i]);
    }
    return fd[0] >= 0 && fd[1] >= 0;
}

static int no_input(int how)
{
    int fd = open("/dev/null", how | O_CLOEXEC), high = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    close_fd(&fd);
    return high;
}

#ifdef __linux__
static ek_err begin(pid_t *pid, birth *b)
{
    sigset_t all, before;
    char *stack = ek_alloc_big(STACK);
    if (!stack) return EK_ENOMEM;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    sigemptyset(&b->mask);
    *pid = clone(run, stack + STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, b);
    int why = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    ek_free_big(stack, STACK);
    if (*pid < 0) return ek_fail(EK_EIO, "%s cannot be started: %s", b->argv[0], strerror(why));
    if (!b->failed) return EK_OK;
    while (waitpid(*pid, NULL, 0) < 0 && errno == EINTR) continue;
    *pid = -1;
    if (!strcmp(b->failed, "exec")) return ek_fail(EK_EIO, "%s cannot be started: %s", b->argv[0], strerror(b->why));
    return ek_fail(EK_EIO, "%s cannot be locked up here, and is not started: %s: %s", b->argv[0], b->failed,
                   strerror(b->why));
}
#elif defined(__APPLE__)
/* Begins a helper. It has no other descriptors. New memory is filled with one byte, so that bytes which a damaged file
 * leaves unwritten are the same in every process. The C library's messages about that setting are dropped. */
static ek_err begin(pid_t *pid, birth *b)
{
    static char *const environment[] = {"LC_ALL=C", "OMP_NUM_THREADS=1", "MallocPreScribble=1",
                                        "MallocLogFile=/dev/null", NULL};
    posix_spawnattr_t how;
    posix_spawn_file_actions_t files;
    sigset_t none, all;
    EK_TRY(ek_lock_check(b->lock.helper));
    if (posix_spawnattr_init(&how)) return EK_ENOMEM;
    if (posix_spawn_file_actions_init(&files)) {
        posix_spawnattr_destroy(&how);
        return EK_ENOMEM;
    }
    sigemptyset(&none), sigfillset(&all);
    posix_spawnattr_setsigmask(&how, &none);
    posix_spawnattr_setsigdefault(&how, &all);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID |
                                       POSIX_SPAWN_CLOEXEC_DEFAULT);
    const bool good = !posix_spawn_file_actions_adddup2(&files, b->in, 0) &&
                      !posix_spawn_file_actions_adddup2(&files, b->out, 1) &&
                      !posix_spawn_file_actions_adddup2(&files, b->err, 2) &&
                      !posix_spawn_file_actions_addchdir_np(&files, "/");
    char *const *argv = (char *const *)(uintptr_t)b->argv;
    const int why = good ? posix_spawn(pid, argv[0], &files, &how, argv, environment) : ENOMEM;
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&how);
    if (!why) return EK_OK;
    *pid = -1;
    return ek_fail(EK_EIO, "%s cannot be started: %s", b->argv[0], strerror(why));
}
#else
static ek_err begin(pid_t *pid, birth *b)
{
    (void)pid;
    return ek_lock_check(b->lock.helper);
}
#endif

ek_err ek_child_start_helper(pid_t *pid, const char *program, int in, int out, int says)
{
    const char *const argv[] = {program, NULL};
    int null = says < 0 ? no_input(O_WRONLY) : -1;
    birth b = {.argv = argv,
               .lock = {.helper = true, .landlock = ek_lock_landlock()},
               .in = fcntl(in, F_DUPFD_CLOEXEC, 3),
               .out = fcntl(out, F_DUPFD_CLOEXEC, 3),
               .err = says < 0 ? null : says};
    ek_err err = begin(pid, &b);
    close_fd(&b.in), close_fd(&b.out), close_fd(&null);
    return err;
}

ek_err ek_child_start(ek_child *c, const ek_child_opts *o)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1};
    *c = (ek_child){.pid = -1, .out = -1, .err = -1, .until = ek_now() + o->seconds};
    int in = o->input >= 0 ? fcntl(o->input, F_DUPFD_CLOEXEC, 3) : no_input(O_RDONLY);
    bool piped = in >= 0 && make_pipe(out) && make_pipe(err);
    ek_err e = piped ? EK_OK : ek_fail(EK_EIO, "%s cannot be started: no pipes: %s", o->argv[0], strerror(errno));
    birth b = {.argv = o->argv,
               .lock = {.parent = getpid(),
                        .cpu_seconds = o->cpu_seconds,
                        .memory = o->memory,
                        .fonts = o->fonts,
                        .landlock = ek_lock_landlock()},
               .in = in,
               .out = out[1],
               .err = err[1]};
    if (!e) e = begin(&c->pid, &b);
    close_fd(&in), close_fd(&out[1]), close_fd(&err[1]);
    if (e) close_fd(&out[0]), close_fd(&err[0]);
    c->out = out[0], c->err = err[0];
    return e;
}

/* Reads standard error; bytes that do not fit `says` are dropped. */
static void hear(ek_child *c)
{
    char more[1024];
    ssize_t n = read(c->err, more, sizeof more);
    if (n < 0 && errno == EINTR) return;
    if (n <= 0) {
        close_fd(&c->err);
        return;
    }
    size_t room = sizeof c->says - 1 - c->n_says, take = (size_t)n < room ? (size_t)n : room;
    memcpy(c->says + c->n_says, more, take);
    c->n_says += take;
    c->says[c->n_says] = '\0';
}

static ek_err give_up(ek_child *c)
{
    if (c->state == EK_CHILD_RUNS) {
        c->state = ek_is_wanted() ? EK_CHILD_LATE : EK_CHILD_UNWANTED;
        kill(c->pid, SIGKILL);
    }
    return c->state == EK_CHILD_LATE ? ek_fail(EK_ETIMEOUT, "its time is over") : EK_ECANCELLED;
}

/* Waits for bytes of standard output, or for its end. */
static ek_err wait_out(ek_child *c)
{
    for (;;) {
        if (!ek_is_wanted() || ek_now() > c->until) return give_up(c);
        struct pollfd p[2] = {{.fd = c->out, .events = POLLIN}, {.fd = c->err, .events = POLLIN}};
        if (poll(p, 2, TICK) < 0 && errno != EINTR) return ek_fail(EK_EIO, "poll: %s", strerror(errno));
        if (p[1].revents) hear(c);
        if (p[0].revents) return EK_OK;
    }
}

ek_err ek_child_read(ek_child *c, void *to, size_t max, size_t *n)
{
    *n = 0;
    if (c->out < 0) return EK_OK;
    for (;;) {
        EK_TRY(wait_out(c));
        ssize_t got = read(c->out, to, max);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) close_fd(&c->out);
        else *n = (size_t)got;
        return EK_OK;
    }
}

/* Reads the rest of its messages while it lives, because a full pipe would keep it from ending. */
static void drain(ek_child *c)
{
    char rest[4096];
    size_t n = 1;
    while (c->out >= 0 && n > 0)
        if (ek_child_read(c, rest, sizeof rest, &n)) return;
    while (c->err >= 0) {
        if (!ek_is_wanted() || ek_now() > c->until) {
            (void)give_up(c);
            return;
        }
        struct pollfd p = {.fd = c->err, .events = POLLIN};
        if (poll(&p, 1, TICK) > 0) hear(c);
    }
}

/* Waits for its end. It may close its pipes and still run, and its time counts until it ends. */
static pid_t await(ek_child *c, bool killed, int *status)
{
    for (;;) {
        killed = killed || c->state != EK_CHILD_RUNS;
        const pid_t ended = waitpid(c->pid, status, killed ? 0 : WNOHANG);
        if (ended > 0 || (ended < 0 && errno != EINTR)) return ended;
        if (ended < 0) continue;
        if (!ek_is_wanted() || ek_now() > c->until) (void)give_up(c);
        else poll(NULL, 0, 1);
    }
}

ek_child_end ek_child_finish(ek_child *c, bool kill_it)
{
    int status = 0;
    if (kill_it && c->pid > 0) kill(c->pid, SIGKILL);
    else drain(c);
    const pid_t ended = await(c, kill_it, &status);
    close_fd(&c->out);
    close_fd(&c->err);
    ek_child_end end = {.status = -1, .late = c->state == EK_CHILD_LATE};
    if (ended > 0 && WIFEXITED(status)) end.status = WEXITSTATUS(status);
    if (ended > 0 && WIFSIGNALED(status)) end.signal = WTERMSIG(status);
    c->pid = -1;
    return end;
}

ek_err ek_child_file(int *out, const void *bytes, size_t n, const char *what)
{
    *out = -1;
    EK_TRY(ek_lock_check(false));
    int fd = memfd_create(what, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    bool good = fd >= 0 && !ek_fd_write(fd, bytes, n);
    if (good) good = fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) == 0;
    if (good) good = lseek(fd, 0, SEEK_SET) == 0;
    *out = fd;
    if (good) return EK_OK;
    ek_err err = ek_fail(EK_ENOMEM, "the system has no memory for %s of %zu bytes now: %s", what, n, strerror(errno));
    if (fd >= 0) close(fd);
    return err;
}

static bool is_program(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode) && access(path, X_OK) == 0;
}

ek_err ek_child_find(char **out, const char *name, const char *package, const char *path)
{
    static const char *const folders[] = {"/usr/bin", "/usr/local/bin"};
    char usual[64];
    for (int i = 0; !path && i < 2; i++) {
        snprintf(usual, sizeof usual, "%s/%s", folders[i], name);
        if (is_program(usual)) path = usual;
    }
    if (!path)
        return ek_fail(EK_ENOTFOUND, "there is no %s in /usr/bin or /usr/local/bin: install %s, or name it", name,
                       package);
    if (!is_program(path)) return ek_fail(EK_ENOTFOUND, "%s is no program", path);
    *out = realpath(path, NULL);
    return *out ? EK_OK : ek_file_failed(path);
}

const char *ek_child_words(char out[EK_CHILD_WORDS], const char *says)
{
    snprintf(out, EK_CHILD_WORDS, "%.*s", (int)strcspn(says, "\n"), says);
    for (char *p = out; *p; p++)
        if (*p < ' ' || *p > '~') *p = '?';
    return out;
}
