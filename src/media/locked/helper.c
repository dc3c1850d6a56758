#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "media/locked/helper.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "media/locked/helper_parts.h"

enum {
    TICK = 20,    /* ms between two checks whether the result is still wanted */
    GRACE = 1000, /* ms in which an ended process has to end */
    HANG = 30     /* seconds after which a decoder that uses no processor time counts as hanging */
};

/* --- helpers that wait for work --- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ek_helper *idle;
static atomic_uint_fast64_t n_files, n_crashed, n_late, n_dropped;
static _Thread_local uint64_t allowed, spent;
static _Thread_local bool is_last; /* the rest of the request's time is less than the limit for one file */

static ek_helper *pop(void)
{
    pthread_mutex_lock(&lock);
    ek_helper *h = idle;
    if (h) idle = h->next;
    pthread_mutex_unlock(&lock);
    return h;
}

static void push(ek_helper *h)
{
    pthread_mutex_lock(&lock);
    h->next = idle;
    idle = h;
    pthread_mutex_unlock(&lock);
}

/* Whether a waiting helper still runs. If it died, or its process for the next file died, its control descriptor shows
 * it. */
static bool is_well(const ek_helper *h)
{
    struct pollfd p = {.fd = h->control, .events = POLLIN};
    return poll(&p, 1, 0) == 0;
}

static ek_err take(ek_helper **out)
{
    while ((*out = pop())) {
        if (is_well(*out)) return EK_OK;
        ek_helper_end(*out);
    }
    return ek_helper_start(out, ek_helper_says());
}

ek_err ek_helpers_warm(int n)
{
    ek_err err = EK_OK;
    ek_helper *h[64];
    int k = 0;
    for (; k < n && k < 64; k++)
        if ((err = take(&h[k]))) break;
    for (int i = 0; i < k; i++) push(h[i]);
    return err;
}

const char *ek_helper_formats(void)
{
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    static char formats[sizeof((ek_hello *)0)->formats];
    ek_helper *h;
    pthread_mutex_lock(&once);
    if (!formats[0] && take(&h) == EK_OK) {
        memcpy(formats, h->hello.formats, sizeof formats);
        push(h);
    }
    pthread_mutex_unlock(&once);
    return formats;
}

/* --- one file --- */

static bool send_desk(const ek_helper *h, uint64_t n)
{
    char room[CMSG_SPACE(sizeof h->desk.fd)] = {0};
    struct iovec part = {&n, sizeof n};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof h->desk.fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(c), &h->desk.fd, sizeof h->desk.fd);
    ssize_t sent;
    while ((sent = sendmsg(h->ask, &m, MSG_NOSIGNAL)) < 0 && errno == EINTR) continue;
    return sent == sizeof n;
}

typedef enum outcome { ENDED, GONE, HANGS, UNWANTED } outcome;

static bool hear(const ek_helper *h, ek_ended *end, int ms, bool *gone)
{
    struct pollfd p = {.fd = h->control, .events = POLLIN};
    if (poll(&p, 1, ms) <= 0) return false;
    ssize_t n = recv(h->control, end, sizeof *end, MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return false;
    *gone = n != sizeof *end;
    return true;
}

/* Waits until the decoding process has ended, by itself or because of a signal. */
static outcome await(const ek_helper *h, ek_ended *end)
{
    const double until = ek_now() + HANG;
    outcome o = ENDED;
    bool gone = false;
    while (o == ENDED) {
        if (hear(h, end, TICK, &gone)) return gone ? GONE : ENDED;
        if (!ek_is_wanted()) o = UNWANTED;
        else if (ek_now() > until) o = HANGS;
    }
    (void)send(h->control, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    const double soon = ek_now() + GRACE / 1000.0;
    while (!hear(h, end, TICK, &gone))
        if (ek_now() > soon) return GONE;
    return gone ? GONE : o;
}

static ek_err too_long(const ek_ask *ask)
{
    atomic_fetch_add(&n_late, 1);
    if (is_last)
        return ek_fail(EK_ETOOLARGE,
                       "decoding the pictures and sounds of the request takes more than %d s of processor "
                       "time",
                       EK_REQUEST_CPU_MS / 1000);
    return ek_fail(EK_ETOOLARGE, "it takes more than %.0f s of processor time to decode", ask->cpu_ms / 1000.0);
}

/* Judges how the decoding process ended. */
static ek_err judge(const ek_ended *end, const ek_ask *ask)
{
    const int status = end->status;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return EK_OK;
    if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGPROF || WTERMSIG(status) == SIGXCPU)) return too_long(ask);
    atomic_fetch_add(&n_crashed, 1);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        return ek_fail(EK_EIO, "the process that decoded it was killed");
    if (WIFSIGNALED(status)) return ek_fail(EK_EPARSE, "its decoder ended by signal %d", WTERMSIG(status));
    return ek_fail(EK_EIO, "the process that decodes it ended with status %d: it cannot be locked up here",
                   WEXITSTATUS(status));
}

static ek_err read_answer(ek_decoded *out, void *results, const ek_shared_desk *d, const ek_ask *ask)
{
    memcpy(out, d->p + offsetof(ek_desk, answer), sizeof *out);
    out->text[sizeof out->text - 1] = out->format[sizeof out->format - 1] = '\0';
    if (out->done != 1 || out->err < 0 || out->err >= EK_ERR_COUNT)
        return ek_fail(EK_EPARSE, "its decoder ended before it answered");
    if (out->err) return ek_fail((ek_err)out->err, "%s", out->text);
    if (results) memcpy(results, d->p + EK_DESK_HEAD, ask->room);
    return EK_OK;
}

static ek_err end_of(outcome o, const ek_ended *end, const ek_ask *ask)
{
    if (o == UNWANTED || !ek_is_wanted()) {
        atomic_fetch_add(&n_dropped, 1);
        return ek_wanted_check();
    }
    if (o == HANGS) return too_long(ask);
    if (o == ENDED) return judge(end, ask);
    atomic_fetch_add(&n_crashed, 1);
    return ek_fail(EK_EIO, "the helper that decoded it was killed");
}

static ek_err run(ek_decoded *out, void *results, const ek_ask *ask, ek_helper *h)
{
    ek_ended end = {0};
    outcome o = send_desk(h, ek_desk_bytes(ask)) ? await(h, &end) : GONE;
    spent += end.cpu_us;
    allowed = allowed == 0 ? 0 : allowed > end.cpu_us + 1 ? allowed - end.cpu_us : 1;
    ek_err err = end_of(o, &end, ask);
    if (!err) err = read_answer(out, results, &h->desk, ask);
    const bool killed = o == ENDED && WIFSIGNALED(end.status) && WTERMSIG(end.status) == SIGKILL;
    if (o == GONE || killed) {
        ek_helper_end(h); /* the decoder may still write on its desk for a moment, so the desk is dropped, too */
        return err;
    }
    ek_desk_clear(&h->desk, ask);
    push(h);
    return err;
}

ek_err ek_helper_decode(ek_decoded *out, void *results, ek_ask *ask, const void *bytes, size_t n)
{
    ek_helper *h;
    EK_TRY(ek_wanted_check());
    ask->n = n;
    const uint64_t max = ask->what < EK_ASK_SOUND_PROBE ? EK_PICTURE_CPU_MS : EK_REQUEST_CPU_MS, left = allowed / 1000;
    is_last = allowed > 0 && left < max;
    ask->cpu_ms = (uint32_t)(is_last ? left : max);
    if (ask->cpu_ms == 0) return too_long(ask);
    atomic_fetch_add(&n_files, 1);
    EK_TRY(take(&h));
    ek_err err = ek_desk_lay(&h->desk, ask, bytes);
    if (!err) return run(out, results, ask, h);
    push(h);
    return err;
}

void ek_helper_allow(uint64_t us)
{
    allowed = us;
}

uint64_t ek_helper_spent(void)
{
    return spent;
}

void ek_helper_stats_get(ek_helper_stats *out)
{
    *out = (ek_helper_stats){.files = atomic_load(&n_files),
                             .crashed = atomic_load(&n_crashed),
                             .late = atomic_load(&n_late),
                             .dropped = atomic_load(&n_dropped),
                             .lines = ek_helper_lines()};
}
