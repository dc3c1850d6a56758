#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/linux.h"
#include "base/log.h"
#include "media/locked/helper_parts.h"

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
