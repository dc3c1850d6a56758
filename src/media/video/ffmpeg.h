/* The kind of a video file, the operator's ffmpeg, and a run of it over one file. Inside src/media/video. */
#ifndef EK_MEDIA_VIDEO_FFMPEG_H
#define EK_MEDIA_VIDEO_FFMPEG_H

#include "media/locked/child.h"
#include "media/video/video.h"

/* The kind of a file, by its first bytes. */
typedef struct ek_container {
    const char *name, *reader; /* our name; ffmpeg's name of its reader */
    const char *type;          /* as in data: URLs */
} ek_container;

/* EINVAL for an unknown kind; ETOOLARGE beyond the limit of bytes. */
ek_err ek_container_check(const ek_container **out, const uint8_t *p, size_t n);

struct ek_ffmpeg {
    char *path;
    char text[256];
    bool has_fd;       /* it can open descriptors; otherwise the file is named in /proc */
    bool has_fps_mode; /* the option is called fps_mode, not vsync */
};

/* The words of a command line; borrowed. Zero-initialise. */
typedef struct ek_call {
    const char *argv[48];
    int n;
} ek_call;

void ek_call_add(ek_call *c, const char *const *words); /* ends with NULL */
/* Adds the program, its bounds, and the video in descriptor 0: everything before an output. */
void ek_call_begin(ek_call *c, const ek_ffmpeg *f, const ek_container *k);

/* file: descriptor 0 of the run, borrowed. Errors of ek_child_start. */
ek_err ek_call_start(ek_child *c, const ek_call *what, int file);
/* The end of a run, with the reason of a failure. err: the result of reading its output. strict: words on standard
 * error are an error too. */
ek_err ek_call_end(ek_child *c, ek_err err, const ek_container *k, bool strict);

#endif
