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
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <malloc.h>
#include <sys/prctl.h>
#endif

#include "base/buf.h"
#include "base/linux.h"
#include "decode/decode.h"
#include "media/locked/ask.h"
#include "media/locked/lock.h"

/* --- the work on one file: from a desk to an answer on it, in a sandboxed process --- */

/* Stacks and tables of libraries, and the memory that an allocator adds by rounding up. On macOS the allocator takes
 * addresses in large regions. */
#ifdef __APPLE__
enum { BESIDE = 512 << 20 };
#else
enum { BESIDE = 32 << 20 };
#endif

enum { NO_DESK = 3, NOT_LOCKED = 4, OUT_OF_PROCESSES = 5 }; /* statuses of processes */

/* Receives the desk's descriptor and the number of its bytes that belong to this file. */
static int receive(uint64_t *bytes)
{
    int fd = -1;
    char room[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec part = {bytes, sizeof *bytes};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    ssize_t n;
    while ((n = recvmsg(0, &m, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) continue;
    const struct cmsghdr *c = n == sizeof *bytes ? CMSG_FIRSTHDR(&m) : NULL;
    if (c && c->cmsg_type == SCM_RIGHTS) memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

static void say_format(ek_decoded *a, const char *format)
{
    snprintf(a->format, sizeof a->format, "%s", format);
}

static ek_err probe_image(ek_decoded *a, const void *file, size_t n)
{
    ek_image_info info;
    EK_TRY(ek_decode_image_probe(&info, file, n));
    say_format(a, info.format);
    a->width = info.width, a->height = info.height;
    a->orientation = info.orientation, a->animated = info.animated;
    a->memory = info.memory, a->held = info.held;
    return EK_OK;
}

static ek_err decode_image(ek_decoded *a, uint8_t *room, const ek_ask *ask, const void *file)
{
    ek_image image = {0};
    if (ask->what == EK_ASK_IMAGE) {
        EK_TRY(ek_decode_image(&image, file, ask->n, (ek_alpha)ask->alpha));
        if (ek_image_bytes(&image) != ask->room) return ek_fail(EK_EPARSE, "damaged picture: its size changes");
        memcpy(room, image.rgb, ask->room);
    } else {
        if (3 * (uint64_t)ask->width * (uint64_t)ask->height != ask->room)
            return ek_fail(EK_EINTERNAL, "room for %llu bytes", (unsigned long long)ask->room);
        image.rgb = room;
        EK_TRY(ek_decode_image_resized(&image, file, ask->n, (ek_alpha)ask->alpha, ask->width, ask->height,
                                       (ek_resizer)ask->resizer));
    }
    a->width = image.width, a->height = image.height;
    return EK_OK;
}

static ek_err probe_sound(ek_decoded *a, const ek_ask *ask, const void *file)
{
    ek_sound_info info;
    EK_TRY(ek_decode_sound_probe(&info, file, ask->n, ask->max_seconds));
    say_format(a, info.format);
    a->rate = info.rate, a->channels = info.channels, a->frames = info.frames, a->samples = info.samples;
    a->memory = info.memory;
    return EK_OK;
}

static ek_err decode_sound(ek_decoded *a, uint8_t *room, const ek_ask *ask, const void *file)
{
    ek_sound s;
    EK_TRY(ek_decode_sound(&s, file, ask->n, ask->max_seconds));
    a->samples = s.samples;
    if ((size_t)s.samples * sizeof(float) != ask->room) return ek_fail(EK_EPARSE, "damaged sound: its length changes");
    memcpy(room, s.v, ask->room);
    return EK_OK;
}

static ek_err answer(ek_decoded *a, uint8_t *desk, const ek_ask *ask)
{
    uint8_t *room = desk + EK_DESK_HEAD;
    const uint8_t *file = desk + ek_desk_file(ask);
    switch (ask->what) {
    case EK_ASK_IMAGE_PROBE: return probe_image(a, file, ask->n);
    case EK_ASK_IMAGE:
    case EK_ASK_IMAGE_RESIZED: return decode_image(a, room, ask, file);
    case EK_ASK_SOUND_PROBE: return probe_sound(a, ask, file);
    case EK_ASK_SOUND: return decode_sound(a, room, ask, file);
    default: return ek_fail(EK_EINTERNAL, "work %u is not known", ask->what);
    }
}

/* Waits for a desk at socket 0, sandboxes this process, decodes, and ends the process. base: bytes of its address space
 * at its start. Status 0: there is an answer; others: the sandbox failed, or the desk is invalid. */
__attribute__((noreturn)) static void work(pid_t parent, size_t base)
{
    struct stat st;
    uint64_t bytes;
    int fd = receive(&bytes);
    if (fd < 0 || fstat(fd, &st) || bytes < EK_DESK_HEAD || bytes > (uint64_t)st.st_size) _exit(NO_DESK);
    uint8_t *desk = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (desk == MAP_FAILED) _exit(NO_DESK);
    ek_ask ask;
    memcpy(&ask, desk, sizeof ask);
    if (ek_desk_file(&ask) + ask.n != bytes) _exit(NO_DESK);
    close(fd);
    close(0);
#ifdef EK_SANITIZED
    const size_t memory = 0; /* the sanitizer's shadow takes terabytes of addresses */
    (void)base;
#else
    const size_t memory = base + (size_t)bytes + ask.memory + BESIDE;
#endif
    const char *failed = ek_lock_decoder(parent, memory, ask.cpu_ms);
    if (failed) {
        dprintf(2, "a decoder cannot be locked up: %s: %s\n", failed, strerror(errno));
        _exit(NOT_LOCKED);
    }
    ek_decoded a = {0};
    a.err = (int32_t)answer(&a, desk, &ask);
    if (a.err) snprintf(a.text, sizeof a.text, "%s", ek_err_text());
    a.done = 1;
    memcpy(desk + offsetof(ek_desk, answer), &a, sizeof a);
    _exit(0);
}

/* --- one process after the other --- */

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
        work(self, base);
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
