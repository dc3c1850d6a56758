/* What ffmpeg's `framecrc` writes of a file: a line per packet of its video, behind lines that begin with #. The text
 * is a stranger's: anything else is an error. Pure; for a fuzzer as it stands. */
#ifndef EK_MEDIA_VIDEO_PACKETS_H
#define EK_MEDIA_VIDEO_PACKETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zero-initialise. */
typedef struct ek_packets {
    char line[256];
    size_t n_line;
    bool wrong;            /* there was a line that is none of them */
    int64_t tick, per;     /* a tick of its clock is tick / per seconds; 0: not said */
    int64_t width, height; /* 0: not said */
    int64_t n;             /* packets that are shown */
    bool timed;            /* one of them says when it is shown: */
    int64_t first, last;   /* ticks at which the earliest begins and the latest ends */
    int64_t begins;        /* at which the latest begins */
} ek_packets;

/* The next bytes, cut anywhere. */
void ek_packets_add(ek_packets *p, const char *bytes, size_t n);
/* At the end: whether all was understood. */
bool ek_packets_end(ek_packets *p);
/* Frames per second on average, of one packet or more; 24 where the clock says nothing. */
double ek_packets_fps(const ek_packets *p);

#endif
