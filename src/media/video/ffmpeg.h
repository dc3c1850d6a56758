/* The operator's ffmpeg, and one run of it over one file. Inside src/media/video. */
#ifndef EK_MEDIA_VIDEO_FFMPEG_H
#define EK_MEDIA_VIDEO_FFMPEG_H

#include "media/locked/child.h"
#include "media/video/container.h"
#include "media/video/video.h"

struct ek_ffmpeg {
    char *path;
    char text[256];
    bool has_fd;       /* it opens descriptors; otherwise the same by a name in /proc */
    bool has_fps_mode; /* the option is not called vsync */
};

/* Words of a command line; borrowed. Zero-initialise. */
typedef struct ek_call {
    const char *argv[48];
    int n;
} ek_call;

void ek_call_add(ek_call *c, const char *const *words); /* NULL at the end */
/* The program, its bounds, and the video in descriptor 0: all that stands before an output. */
void ek_call_begin(ek_call *c, const ek_ffmpeg *f, const ek_container *k);

/* file: descriptor 0 of the run, borrowed. Errors of ek_child_start. */
ek_err ek_call_start(ek_child *c, const ek_call *what, int file);
/* The end of a run, and why it was no good: err is what reading it came to. strict: words on standard error are an
 * error, too. */
ek_err ek_call_end(ek_child *c, ek_err err, const ek_container *k, bool strict);

/* ffmpeg's last words, which are about a stranger's file: one line of them, bounded, printable. */
const char *ek_call_says(const ek_child *c, char room[120]);

#endif
