/* The output of ffmpeg, which is untrusted: anything else than described here is an error. Pure, and fuzzed as it is.
 */
#ifndef EK_MEDIA_VIDEO_OUTPUT_H
#define EK_MEDIA_VIDEO_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "media/image.h"

/* Packets: the output of `framecrc`, lines that begin with #, then one line per packet of the video. Zero-initialise.
 */
typedef struct ek_packets {
    char line[256];
    size_t n_line;
    bool wrong;            /* an invalid line was read */
    int64_t tick, per;     /* a tick of its clock is tick / per seconds; 0: unknown */
    int64_t width, height; /* 0: unknown */
    int64_t n;             /* shown packets */
    bool timed;            /* some packet has a time */
    int64_t first, last;   /* ticks: the earliest start and the latest end */
    int64_t begins;        /* ticks: the latest start */
} ek_packets;

/* Takes the next bytes, which may end anywhere. */
void ek_packets_add(ek_packets *p, const char *bytes, size_t n);
/* Call at the end: whether all lines were valid. */
bool ek_packets_end(ek_packets *p);
/* Average frames per second, for at least one packet; 24 without a clock. */
double ek_packets_fps(const ek_packets *p);

/* Frames: P6 with 255, one after the other. Sizes are checked before memory is taken. */

/* Reads at most n bytes to `to`; *got: their number, 0 at the end. */
typedef ek_err ek_ppm_read_fn(void *arg, void *to, size_t n, size_t *got);

/* Reads the next frame; out->rgb is NULL at the end. EPARSE, ETOOLARGE, ENOMEM, and read's errors. Takes no byte after
 * the frame. */
ek_err ek_ppm_read(ek_image *out, ek_ppm_read_fn *read, void *arg);

#endif
