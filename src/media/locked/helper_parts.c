#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "media/locked/helper_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/linux.h"
#include "base/log.h"
#include "media/locked/child.h"
#include "media/locked/lock.h"

/* --- the program --- */

#define PROGRAM "evenkeel-decode"

enum { FIRST_WORD = 20000 /* ms in which the helper has to find its libraries, even on a busy machine */ };

/* Beside the program or the library, or in the folders of an installation for programs that nobody calls by hand,
 * relative to PREFIX/bin, PREFIX/lib or PREFIX/lib/TRIPLET. */
static ek_err find(char *path, size_t room)
{
    static const char *const places[] = {"", "../libexec/evenkeel/", "../../libexec/evenkeel/"};
    char self[3072];
    if (ek_own_folder(self, sizeof self))
        return ek_fail_in(EK_EIO, "no " PROGRAM ", which decodes pictures and sounds");
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(path, room, "%s/%s" PROGRAM, self, places[i]);
        if (access(path, X_OK) == 0) return EK_OK;
    }
    return ek_fail(EK_EIO,
                   "no program that decodes pictures and sounds: neither %s/" PROGRAM
                   " nor %s/../libexec/evenkeel/" PROGRAM " can be run",
                   self, self);
}

static void close_fd(int fd)
{
    if (fd >= 0) close(fd);
}

void ek_helper_end(ek_helper *h)
{
    if (!h) return;
    if (h->pid > 0) {
        kill(h->pid, SIGKILL);
        while (waitpid(h->pid, NULL, 0) < 0 && errno == EINTR) continue;
    }
    close_fd(h->ask), close_fd(h->control);
    ek_desk_drop(&h->desk);
    free(h);
}

static ek_err greet(ek_helper *h, const char *path)
{
    struct pollfd p = {.fd = h->control, .events = POLLIN};
    int ready;
    while ((ready = poll(&p, 1, FIRST_WORD)) < 0 && errno == EINTR) continue;
    ssize_t n = ready > 0 ? recv(h->control, &h->hello, sizeof h->hello, MSG_WAITALL) : -1;
    if (ready == 0) return ek_fail(EK_EIO, "%s says nothing for %d s", path, FIRST_WORD / 1000);
    if (n != sizeof h->hello) return ek_fail(EK_EIO, "%s ended before it said that it is ready", path);
    h->hello.version[sizeof h->hello.version - 1] = h->hello.formats[sizeof h->hello.formats - 1] = '\0';
    if (strcmp(h->hello.version, EK_VERSION) == 0) return EK_OK;
    return ek_fail(EK_EIO, "%s is of version %s, this program is %s", path, h->hello.version, EK_VERSION);
}

ek_err ek_helper_start(ek_helper **out, int says)
{
    char path[3300];
    int ask[2] = {-1, -1}, control[2] = {-1, -1};
    EK_TRY(ek_lock_check(true));
    EK_TRY(find(path, sizeof path));
    ek_helper *h = ek_alloc(sizeof *h);
    *h = (ek_helper){.pid = -1, .ask = -1, .control = -1, .desk.fd = -1};
    bool good = ek_socketpair(AF_UNIX, EK_ASK_SOCKET | SOCK_CLOEXEC, 0, ask) == 0 &&
                ek_socketpair(AF_UNIX, EK_ASK_SOCKET | SOCK_CLOEXEC, 0, control) == 0;
    h->ask = ask[0], h->control = control[0];
    ek_err err = good ? ek_child_start_helper(&h->pid, path, ask[1], control[1], says)
                      : ek_fail(EK_EIO, "%s cannot be started: no sockets: %s", path, strerror(errno));
    close_fd(ask[1]), close_fd(control[1]);
    if (!err) err = greet(h, path);
    if (err) {
        ek_helper_end(h);
        return err;
    }
    *out = h;
    return EK_OK;
}

/* --- its shared memory --- */

enum { STEP = 1 << 20 /* bytes by which a kept desk grows */ };

size_t ek_desk_bytes(const ek_ask *ask)
{
    return (size_t)ek_desk_file(ask) + ask->n;
}

static ek_err make(ek_shared_desk *d, size_t n)
{
    *d = (ek_shared_desk){.fd = memfd_create("desk", MFD_CLOEXEC), .n = n};
    bool good = d->fd >= 0 && ftruncate(d->fd, (off_t)n) == 0;
    d->p = good ? mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, d->fd, 0) : MAP_FAILED;
    if (d->p != MAP_FAILED) return EK_OK;
    d->p = NULL;
    ek_err err = ek_fail(EK_ENOMEM, "the system has no memory for decoding a file now: %zu bytes: %s", n,
                         strerror(errno));
    ek_desk_drop(d);
    return err;
}

void ek_desk_drop(ek_shared_desk *d)
{
    if (d->p) munmap(d->p, d->n);
    if (d->fd >= 0) close(d->fd);
    *d = (ek_shared_desk){.fd = -1};
}

ek_err ek_desk_lay(ek_shared_desk *d, const ek_ask *ask, const void *bytes)
{
    const size_t n = ek_desk_bytes(ask);
    if (n > d->n) {
        ek_desk_drop(d);
        EK_TRY(make(d, n <= EK_DESK_KEPT ? (n + STEP - 1) / STEP * STEP : n));
    }
    memcpy(d->p, ask, sizeof *ask);
    memcpy(d->p + ek_desk_file(ask), bytes, ask->n);
    return EK_OK;
}

void ek_desk_clear(ek_shared_desk *d, const ek_ask *ask)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE); /* a decoder's desk has whole pages: up to 64 KiB on Arm */
    if (d->n > EK_DESK_KEPT) ek_desk_drop(d);
    else if (d->p) memset(d->p, 0, (ek_desk_bytes(ask) + page - 1) / page * page);
}

/* --- its standard error --- */

enum { LINE = 200, PER_SECOND = 10 };

static int ends[2] = {-1, -1};
static atomic_uint_fast64_t lines;

/* Counts the logged lines of a second, and the lines beyond the limit. */
typedef struct rate {
    double until;
    int n;
    uint64_t more;
} rate;

static void say(rate *r, const char *line, size_t n)
{
    const double now = ek_now();
    atomic_fetch_add(&lines, 1);
    if (now > r->until) {
        if (r->more) ek_log(EK_LOG_WARN, "event=decoder_says more_lines=%llu", (unsigned long long)r->more);
        *r = (rate){.until = now + 1};
    }
    if (r->n++ >= PER_SECOND) {
        r->more++;
        return;
    }
    char text[4 * LINE + 1];
    size_t at = 0;
    for (size_t i = 0; i < n; i++) text[at++] = line[i] < ' ' || line[i] > '~' || line[i] == '"' ? '.' : line[i];
    text[at] = '\0';
    ek_log(EK_LOG_WARN, "event=decoder_says text=\"%s\"", text);
}

static void *read_lines(void *arg)
{
    char bytes[4096], line[LINE];
    size_t n = 0;
    bool cut = false;
    rate r = {0};
    (void)arg;
    for (;;) {
        ssize_t got = read(ends[0], bytes, sizeof bytes);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return NULL;
        for (ssize_t i = 0; i < got; i++) {
            const bool end = bytes[i] == '\n';
            if (!end && !cut) line[n++] = bytes[i];
            if (n == LINE || (end && n > 0)) {
                say(&r, line, n);
                n = 0;
                cut = true; /* the rest of a long line is dropped */
            }
            if (end) cut = false;
        }
    }
}

static void open_pipe(void)
{
    int both[2];
    pthread_t thread;
    sigset_t all, before;
    if (pipe2(both, O_CLOEXEC)) return;
    for (int i = 0; i < 2; i++) {
        ends[i] = fcntl(both[i], F_DUPFD_CLOEXEC, 3);
        close(both[i]);
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool begun = ends[0] >= 0 && ends[1] >= 0 && pthread_create(&thread, NULL, read_lines, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (begun) {
        pthread_detach(thread);
        return;
    }
    for (int i = 0; i < 2; i++)
        if (ends[i] >= 0) close(ends[i]);
    ends[0] = ends[1] = -1;
}

int ek_helper_says(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_pipe);
    return ends[1];
}

uint64_t ek_helper_lines(void)
{
    return atomic_load(&lines);
}
