/* evenkeel-decode: decodes pictures and sounds for evenkeel, which starts it and talks to it through descriptors 0 and
 * 1 (media/locked/ask.h). It loads the libraries. For each file it forks a copy of itself in advance, so no copy has
 * seen another file. It ends when evenkeel ends. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <malloc.h>
#include <sys/prctl.h>
#endif

#include "base/buf.h"
#include "base/linux.h"
#include "decode/decode.h"
#include "helper/work.h"
#include "media/locked/ask.h"

enum { OUT_OF_PROCESSES = 5 };

/* Bytes of address space: the least limit under which the system still gives the process a page. A process that may
 * open no file cannot read this number. */
static size_t space(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t low = 0, high = (size_t)1 << 46;
    struct rlimit was;
    if (getrlimit(RLIMIT_AS, &was)) return (size_t)1 << 30;
    while (high - low > page) {
        const size_t middle = low + (high - low) / 2;
        const struct rlimit l = {middle, was.rlim_max};
        void *p = setrlimit(RLIMIT_AS, &l) == 0 ? mmap(NULL, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                                                : MAP_FAILED;
        if (p != MAP_FAILED) munmap(p, page);
        *(p == MAP_FAILED ? &low : &high) = middle;
    }
    (void)setrlimit(RLIMIT_AS, &was);
    return high;
}

static bool greet(void)
{
    ek_hello h = {.version = EK_VERSION};
    ek_buf formats = {0};
    ek_decode_image_formats(&formats);
    snprintf(h.formats, sizeof h.formats, "%s", ek_buf_text(&formats));
    ek_buf_fini(&formats);
    return send(1, &h, sizeof h, MSG_NOSIGNAL) == sizeof h;
}

/* Waits until the process has ended, which closes its end of the pipe. False: evenkeel is gone. */
static bool watch(pid_t pid, int pipe)
{
    for (;;) {
        struct pollfd p[2] = {{.fd = 1, .events = POLLIN}, {.fd = pipe, .events = POLLIN}};
        if (poll(p, 2, -1) < 0 && errno != EINTR) return false;
        if (p[1].revents) return true;
        if (!p[0].revents) continue;
        char word;
        const bool there = recv(1, &word, 1, MSG_DONTWAIT) == 1;
        kill(pid, SIGKILL);
        if (!there) return false;
    }
}

static bool serve_one(size_t base)
{
    int p[2];
    const pid_t self = getpid();
    if (pipe2(p, O_CLOEXEC)) _exit(OUT_OF_PROCESSES);
    pid_t pid = fork();
    if (pid < 0) _exit(OUT_OF_PROCESSES);
    if (pid == 0) {
        close(1);
        close(p[0]);
        ek_work(self, base);
    }
    close(p[1]);
    const bool there = watch(pid, p[0]);
    close(p[0]);
    struct rusage used = {0};
    ek_ended end = {0};
    while (wait4(pid, &end.status, 0, &used) < 0 && errno == EINTR) continue;
    end.cpu_us = (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 +
                 (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    return there && send(1, &end, sizeof end, MSG_NOSIGNAL) == sizeof end;
}

static void settle(void)
{
#ifdef __linux__
    (void)prctl(PR_SET_NAME, "evenkeel-decode"); /* else its name is the descriptor's */
    mallopt(M_ARENA_MAX, 1);                     /* a second arena would reserve 64 MB of the counted address space */
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 1 << 20);
    pthread_setattr_default_np(&attr);
#endif
}

int main(void)
{
    struct pollfd p = {.fd = 1, .events = POLLIN};
    int kind;
    socklen_t n = sizeof kind;
    if (getsockopt(1, SOL_SOCKET, SO_TYPE, &kind, &n) || kind != EK_ASK_SOCKET || poll(&p, 1, 0) < 0) {
        fprintf(stderr,
                "evenkeel-decode decodes pictures and sounds for evenkeel, which starts it: it is not run by hand\n");
        return 2;
    }
    settle();
    if (!greet()) return 1;
    const size_t base = space();
    while (serve_one(base)) continue;
    return 0;
}
