#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"

static ek_log_level limit = EK_LOG_INFO;

void ek_log_set(ek_log_level max)
{
    limit = max;
}

static unsigned wanted;

void ek_log_topics_set(unsigned topics)
{
    wanted = topics;
}

bool ek_log_wants(unsigned topic)
{
    return wanted & topic;
}

/* --- lines of engines in libraries */

struct ek_log_sink {
    ek_log_sink *next;    /* the list of open sinks */
    pthread_mutex_t lock; /* guards the writing of one line at a time */
    ek_log_fn *fn;        /* NULL: nowhere */
    void *arg;
};

static atomic_bool elsewhere;
static struct {
    pthread_mutex_t lock;
    ek_log_sink *first;
} sinks = {.lock = PTHREAD_MUTEX_INITIALIZER};
static _Thread_local ek_log_sink *here;

ek_log_sink *ek_log_sink_open(ek_log_fn *fn, void *arg)
{
    ek_log_sink *s = ek_alloc(sizeof *s);
    *s = (ek_log_sink){.fn = fn, .arg = arg};
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_lock(&sinks.lock);
    s->next = sinks.first;
    sinks.first = s;
    pthread_mutex_unlock(&sinks.lock);
    atomic_store(&elsewhere, true);
    return s;
}

void ek_log_sink_close(ek_log_sink *s)
{
    if (!s) return;
    pthread_mutex_lock(&sinks.lock);
    ek_log_sink **at = &sinks.first;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    pthread_mutex_unlock(&sinks.lock);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

ek_log_sink *ek_log_here(ek_log_sink *s)
{
    ek_log_sink *before = here;
    here = s;
    return before;
}

static void to_sink(ek_log_sink *s, ek_log_level level, const char *line)
{
    pthread_mutex_lock(&s->lock);
    if (s->fn) s->fn(s->arg, (int)level, line);
    pthread_mutex_unlock(&s->lock);
}

static void to_sinks(ek_log_level level, const char *line)
{
    if (here) {
        to_sink(here, level, line);
        return;
    }
    pthread_mutex_lock(&sinks.lock);
    for (ek_log_sink *s = sinks.first; s; s = s->next) to_sink(s, level, line);
    pthread_mutex_unlock(&sinks.lock);
}

typedef struct start {
    void *(*run)(void *arg);
    void *arg;
    ek_log_sink *log;
} start;

static void *begin(void *arg)
{
    const start s = *(start *)arg;
    free(arg);
    ek_log_here(s.log);
    return s.run(s.arg);
}

int ek_thread_start(pthread_t *out, void *(*run)(void *arg), void *arg)
{
    start *s = ek_alloc(sizeof *s);
    *s = (start){run, arg, ek_log_here(NULL)};
    ek_log_here(s->log);
    const int rc = pthread_create(out, NULL, begin, s);
    if (rc) free(s);
    return rc;
}

/* --- the writer: waiting lines are in a ring of bytes --- */

enum { RING = 256 << 10, MAX_LINE = 2048, AT_ONCE = 16 << 10 }; /* bytes; AT_ONCE: lines that are written together */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake, drained;
    char ring[RING];
    size_t begin, n;       /* waiting bytes: n, from begin on */
    uint64_t lost, untold; /* lost: lines in all; untold: lost lines that no line has reported yet */
    bool running, stopping, writing, bounded;
    pthread_t thread;
    uintptr_t generation; /* the thread's number; a thread that is still waiting after a stop ends when it wakes */
} out = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER, .drained = PTHREAD_COND_INITIALIZER};

/* Waits at most `seconds` for room, or without limit (-1). */
static bool write_all(const char *p, size_t n, double seconds)
{
    double end = ek_now() + seconds;
    while (n > 0) {
        struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};
        int left = seconds < 0 ? -1 : end > ek_now() ? (int)((end - ek_now()) * 1000) + 1 : 0;
        int ready = seconds < 0 ? 1 : poll(&room, 1, left);
        if (ready == 0) return false;
        ssize_t k = ready < 0 ? -1 : write(STDERR_FILENO, p, n);
        if (k < 0 && errno == EAGAIN && seconds < 0) poll(&room, 1, -1); /* another program set this */
        else if (k < 0 && errno != EINTR && errno != EAGAIN) return false;
        if (k > 0) p += k, n -= (size_t)k;
    }
    return true;
}

/* The caller holds the lock. */
static bool push(const char *line, size_t n)
{
    if (n > RING - out.n) return false;
    size_t at = (out.begin + out.n) % RING, first = n < RING - at ? n : RING - at;
    memcpy(out.ring + at, line, first);
    memcpy(out.ring, line + first, n - first);
    out.n += n;
    return true;
}

static void push_lost(void)
{
    char line[160];
    int n = snprintf(line, sizeof line,
                     "evenkeel: warning: event=log_lost lines=%llu: standard error was not read fast enough\n",
                     (unsigned long long)out.untold);
    if (out.untold > 0 && push(line, (size_t)n)) out.untold = 0;
}

/* Takes the first whole lines. */
static size_t pop(char lines[AT_ONCE])
{
    const size_t max = out.n < AT_ONCE ? out.n : AT_ONCE, first = max < RING - out.begin ? max : RING - out.begin;
    memcpy(lines, out.ring + out.begin, first);
    memcpy(lines + first, out.ring, max - first);
    size_t n = max;
    while (lines[n - 1] != '\n') n--;
    out.begin = (out.begin + n) % RING;
    out.n -= n;
    return n;
}

static uint64_t count_lines(const char *s, size_t n)
{
    uint64_t lines = 0;
    for (size_t i = 0; i < n; i++) lines += s[i] == '\n';
    return lines;
}

static void *write_lines(void *arg)
{
    char lines[AT_ONCE];
    pthread_mutex_lock(&out.lock);
    while ((uintptr_t)arg == out.generation) {
        if (out.n == 0) push_lost();
        if (out.n == 0) {
            pthread_cond_broadcast(&out.drained);
            if (out.stopping) break;
            pthread_cond_wait(&out.wake, &out.lock);
            continue;
        }
        size_t n = pop(lines);
        out.writing = true;
        pthread_mutex_unlock(&out.lock);
        bool good = write_all(lines, n, -1);
        pthread_mutex_lock(&out.lock);
        if ((uintptr_t)arg != out.generation) break;
        out.writing = false;
        if (!good) out.lost += count_lines(lines, n); /* no reader can be told */
    }
    pthread_mutex_unlock(&out.lock);
    return NULL;
}

void ek_log_start(void)
{
    pthread_mutex_lock(&out.lock);
    out.stopping = false;
    if (!out.running) {
        void *generation = (void *)++out.generation;
        out.running = out.bounded = pthread_create(&out.thread, NULL, write_lines, generation) == 0;
    }
    pthread_mutex_unlock(&out.lock);
}

void ek_log_stop(double seconds)
{
    const double end = ek_now() + seconds;
    pthread_mutex_lock(&out.lock);
    if (!out.running) {
        pthread_mutex_unlock(&out.lock);
        return;
    }
    out.stopping = true;
    out.running = false;
    pthread_cond_signal(&out.wake);
    bool late = false;
    while (!late && (out.n > 0 || out.writing || out.untold > 0)) late = !ek_wait_until(&out.drained, &out.lock, end);
    pthread_t thread = out.thread;
    if (late) out.n = 0, out.untold = 0, out.writing = false, out.generation++;
    pthread_mutex_unlock(&out.lock);
    if (late) pthread_detach(thread); /* the thread waits for a reader; the end of the process ends it */
    else pthread_join(thread, NULL);
}

uint64_t ek_log_lost(void)
{
    pthread_mutex_lock(&out.lock);
    uint64_t n = out.lost;
    pthread_mutex_unlock(&out.lock);
    return n;
}

/* False: no thread writes for the caller. */
static bool hand_over(const char *line, size_t n)
{
    pthread_mutex_lock(&out.lock);
    bool running = out.running, sleeps = out.n == 0 && !out.writing;
    if (running) {
        push_lost();
        if (out.untold > 0 || !push(line, n)) out.lost++, out.untold++;
    }
    pthread_mutex_unlock(&out.lock);
    if (running && sleeps) pthread_cond_signal(&out.wake);
    return running;
}

void ek_log_last_words(const char *text, size_t n)
{
    ek_log_stop(1);
    pthread_mutex_lock(&out.lock);
    bool bounded = out.bounded;
    pthread_mutex_unlock(&out.lock);
    write_all(text, n, bounded ? 1 : -1);
}

void ek_log(ek_log_level level, const char *fmt, ...)
{
    static const char *const prefix[] = {"error: ", "warning: ", "", "", ""};
    if (level > limit) return;
    char line[MAX_LINE], said[1984];
    int n = snprintf(line, sizeof line, "evenkeel: %s", prefix[level]);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(said, sizeof said, fmt, ap);
    va_end(ap);
    /* The text contains names of clients, models and files. Each line has to stay one line and must not control a
     * terminal. */
    size_t len = (size_t)n + ek_plain(line + n, sizeof line - (size_t)n - 1, said, strlen(said));
    if (atomic_load(&elsewhere)) {
        to_sinks(level, line + n);
        return;
    }
    line[len++] = '\n';
    /* One write per line, so that lines of two threads never mix. */
    if (!hand_over(line, len) && write(STDERR_FILENO, line, len) < 0) return;
}

void ek_progress(const char *what, double done, double total)
{
    static int tty = -1;
    static double last, begun;
    static char of[80];
    static bool shown;
    if (atomic_load(&elsewhere)) return;
    if (tty < 0) tty = isatty(STDERR_FILENO);
    if (!tty) return;
    double now = ek_now();
    bool end = done >= total;
    if (strcmp(what, of) != 0) {
        snprintf(of, sizeof of, "%s", what);
        begun = now;
        shown = false;
    }
    if (end) of[0] = '\0';
    if (end && shown) fputs("\r\033[K", stderr);
    if (end || now - begun < 0.5 || now - last < 0.1) return;
    last = now;
    shown = true;
    fprintf(stderr, "\r%s %3.0f %%", what, total > 0 ? 100 * done / total : 100);
    fflush(stderr);
}
