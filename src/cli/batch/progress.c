#include "cli/batch/progress.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"

enum { BAR = 24, NARROW = 72 };
static const double TTY_SECONDS = 0.1, LINE_SECONDS = 10;

void ek_progress_init(ek_progress *p)
{
    const double now = ek_now();
    *p = (ek_progress){.tty = isatty(STDERR_FILENO), .begun = now, .shown = now};
}

static void time_text(char out[16], double seconds)
{
    const int s = seconds < 359999 ? (int)(seconds + 0.5) : 359999;
    if (s >= 3600) snprintf(out, 16, "%d:%02d:%02d", s / 3600, s / 60 % 60, s % 60);
    else snprintf(out, 16, "%d:%02d", s / 60, s % 60);
}

void ek_progress_text(char *out, size_t room, const ek_batch_progress *p, double passed, int width)
{
    char left[16] = "-:--", bar[BAR + 4] = "", errors[40] = "";
    const size_t here = p->done - p->before;
    const double rate = passed > 0.5 ? (double)here / passed : 0,
                 share = p->lines ? (double)p->done / (double)p->lines : 1;
    if (rate > 0) time_text(left, (double)(p->lines - p->done) / rate);
    if (width >= NARROW + BAR) {
        for (int i = 0; i < BAR; i++) bar[i + 1] = i < (int)(share * BAR) ? '#' : '.';
        bar[0] = '[', bar[BAR + 1] = ']', bar[BAR + 2] = ' ';
    }
    if (p->errors) snprintf(errors, sizeof errors, ", %zu errors", p->errors);
    int n = snprintf(out, room, "%s%d %%, %zu of %zu lines, %.*f lines/s, %s left%s", bar, (int)(share * 100), p->done,
                     p->lines, rate < 10 ? 2 : 0, rate, left, errors);
    if (width > 0 && n >= width && (size_t)width <= room) out[width - 1] = '\0'; /* the last column wraps on some */
}

static int width_of(void)
{
    struct winsize w;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

void ek_progress_clear(ek_progress *p)
{
    if (p->drawn) fprintf(stderr, "\r\x1b[K");
    p->drawn = false;
    fflush(stderr);
}

void ek_progress_show(ek_progress *p, const ek_batch_progress *now)
{
    char text[256];
    const double t = ek_now();
    if (t - p->shown < (p->tty ? TTY_SECONDS : LINE_SECONDS)) return;
    p->shown = t;
    ek_progress_text(text, sizeof text, now, t - p->begun, p->tty ? width_of() : 0);
    if (p->tty) fprintf(stderr, "\r%s\x1b[K", text);
    else fprintf(stderr, "%s\n", text);
    p->drawn = p->tty;
    fflush(stderr);
}
