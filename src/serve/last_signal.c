#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/time.h>
#include <unistd.h>

#include "serve/server.h"

enum { SECOND = 400 /* ms in which streams get their error */ };

static struct sigaction before[2];
static volatile sig_atomic_t count;
static unsigned first;

static void end_within(long ms)
{
    const struct itimerval timer = {.it_value = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

/* setitimer and _exit are allowed here, whatever locks the interrupted thread holds. */
static void on_signal(int number)
{
    const struct sigaction *was = &before[number == SIGINT];
    if (count >= 2) _exit(128 + number);
    end_within(count++ ? SECOND : first * 1000L);
    if (was->sa_handler != SIG_DFL && was->sa_handler != SIG_IGN) was->sa_handler(number);
}

void ek_last_signal_watch(double seconds)
{
    static const int numbers[] = {SIGTERM, SIGINT};
    count = 0;
    first = seconds < 1e9 ? (unsigned)seconds + 1 : 0;
    for (int i = 0; i < 2; i++) {
        struct sigaction now;
        if (sigaction(numbers[i], NULL, &now) || now.sa_handler == on_signal) continue;
        before[i] = now;
        now.sa_handler = on_signal;
        sigaction(numbers[i], &now, NULL);
    }
}

void ek_last_signal_within(double seconds)
{
    const bool at_once = count >= 2 && seconds > 0;
    end_within(at_once ? SECOND : seconds > 0 ? ((long)seconds + 1) * 1000 : 0);
}
