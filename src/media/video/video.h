/* Videos as files, by an ffmpeg of the operator's: frames with the seconds at which they stand.
 *
 * What a file is, is found here, from its first bytes: ffmpeg is told which of its readers to use and never looks for
 * one itself, so that lists of other files or addresses (HLS, DASH, concat, subtitles) are none. It runs locked up, for
 * one file, and ends with the request (media/locked/child.h). What it writes is read as a stranger's. Any thread. */
#ifndef EK_MEDIA_VIDEO_H
#define EK_MEDIA_VIDEO_H

#include "media/image.h"

enum {
    EK_VIDEO_SAMPLES = 32,         /* frames that stand for a video */
    EK_VIDEO_MAX_FRAMES = 1000000, /* of a video; all up to the last sample are decoded */
    EK_VIDEO_MAX_SECONDS = 360000, /* 100 hours */
    EK_VIDEO_CPU_SECONDS = 60,     /* of processor time that ffmpeg has for one file, counting and decoding each */
    EK_VIDEO_WALL_SECONDS = 120    /* on the clock */
};

typedef struct ek_ffmpeg ek_ffmpeg;

/* path: of the program; NULL: /usr/bin/ffmpeg or /usr/local/bin/ffmpeg. Runs it once, locked up as later. ENOTFOUND,
 * EIO and EUNSUPPORTED in a sentence. */
ek_err ek_ffmpeg_open(ek_ffmpeg **out, const char *path);
void ek_ffmpeg_close(ek_ffmpeg *f); /* NULL is allowed */
/* "/usr/bin/ffmpeg 5.1.6, locked up by seccomp, Landlock" */
const char *ek_ffmpeg_text(const ek_ffmpeg *f);
/* Whether the kernel keeps it from files that are not its own. */
bool ek_ffmpeg_has_landlock(void);

/* "video/mp4" and the like, by a file's first bytes; NULL: no video that is read. */
const char *ek_video_type(const void *bytes, size_t n);
const char *ek_video_formats(void); /* "MP4 (MOV), WebM (Matroska), …" */

/* What was counted before anything is decoded. */
typedef struct ek_video_info {
    const char *format;
    int frames;        /* packets that become one each */
    double fps;        /* on average; 24 where the file does not say it */
    int width, height; /* as stored */
} ek_video_info;

/* What was asked of a video. */
typedef struct ek_video_opts {
    double fps; /* frames per second of it that are taken; 0: */
    int frames; /* so many, or all where it has fewer; 0: EK_VIDEO_SAMPLES */
    int max;    /* frames; more are EINVAL */
} ek_video_opts;

/* How many frames are taken; frame i of n is the video's frame i N / n, rounded down, as transformers samples them.
 * With fps: N / rate x fps, rounded down, at least 1 and at most N. EINVAL where they are more than max. */
ek_err ek_video_count(int *n, const ek_video_info *info, const ek_video_opts *o);
int ek_video_index(const ek_video_info *info, int i, int n);

/* Called for each frame, in order: frame i of n, upright, its pixels only for now. Stops at an error, which is returned
 * as it is. */
typedef ek_err ek_video_frame_fn(void *arg, int i, int n, double seconds, const ek_image *image);
/* Called once before that: EK_OK, or the error that it ends with. May be NULL. */
typedef ek_err ek_video_info_fn(void *arg, const ek_video_info *info, int n);

typedef struct ek_video_sink {
    ek_video_info_fn *info;
    ek_video_frame_fn *frame;
    void *arg;
} ek_video_sink;

/* EINVAL: no video of a known kind, or nothing in it that could be shown; EPARSE: damaged or cut; ETOOLARGE: a limit;
 * ECANCELLED: not wanted any more (base/clock.h); ENOMEM; EIO: ffmpeg cannot be started. */
ek_err ek_video_read(const ek_ffmpeg *f, const void *bytes, size_t n, const ek_video_opts *o, const ek_video_sink *to);

#endif
