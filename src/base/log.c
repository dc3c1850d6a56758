#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/plain.h"

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

void ek_log(ek_log_level level, const char *fmt, ...)
{
    static const char *const prefix[] = {"error: ", "warning: ", "", ""};
    if (level > limit) return;
    char line[2048], said[1984];
    int n = snprintf(line, sizeof line, "evenkeel: %s", prefix[level]);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(said, sizeof said, fmt, ap);
    va_end(ap);
    /* Names of clients, models and files are in it: a line is one line, and nothing that a terminal obeys. */
    size_t len = (size_t)n + ek_plain(line + n, sizeof line - (size_t)n - 1, said, strlen(said));
    line[len++] = '\n';
    /* One write a line, so that lines of two threads never mix. */
    if (write(STDERR_FILENO, line, len) < 0) return;
}

void ek_progress(const char *what, double done, double total)
{
    static int tty = -1;
    static double last;
    if (tty < 0) tty = isatty(STDERR_FILENO);
    if (!tty) return;
    double now = ek_now();
    bool end = done >= total;
    if (!end && now - last < 0.1) return;
    last = now;
    fprintf(stderr, "\r%s %3.0f %%%s", what, total > 0 ? 100 * done / total : 100, end ? "\n" : "");
    fflush(stderr);
}
