/* Video files, read by the operator's ffmpeg: frames with their times in seconds.
 *
 * This code recognises a file's kind by its first bytes and gives ffmpeg the name of the reader. ffmpeg never looks for
 * a reader itself, so that lists of other files or addresses (HLS, DASH, concat, subtitles) are not read. ffmpeg runs
 * in a sandbox over one file, and ends with the request (media/locked/child.h). Its output is untrusted. Any thread. */
#ifndef EK_MEDIA_VIDEO_H
#define EK_MEDIA_VIDEO_H

#include "media/image.h"

enum {
    EK_VIDEO_SAMPLES = 32,         /* default frames per video */
    EK_VIDEO_MAX_FRAMES = 1000000, /* maximum frames of a video; all up to the last sample are decoded */
    EK_VIDEO_MAX_SECONDS = 360000, /* 100 hours */
    EK_VIDEO_CPU_SECONDS = 60,     /* ffmpeg's processor time for one file, for counting and for decoding each */
    EK_VIDEO_WALL_SECONDS = 120    /* seconds of real time, likewise */
};

typedef struct ek_ffmpeg ek_ffmpeg;

/* path: the program; NULL: /usr/bin/ffmpeg or /usr/local/bin/ffmpeg. Runs it once in the sandbox. ENOTFOUND, EIO and
 * EUNSUPPORTED with a sentence. */
ek_err ek_ffmpeg_open(ek_ffmpeg **out, const char *path);
void ek_ffmpeg_close(ek_ffmpeg *f); /* NULL is allowed */
/* "/usr/bin/ffmpeg 5.1.6, locked up by seccomp, Landlock" */
const char *ek_ffmpeg_text(const ek_ffmpeg *f);
/* Whether the kernel's Landlock keeps ffmpeg from other files. */
bool ek_ffmpeg_has_landlock(void);

/* "video/mp4" and the like, by a file's first bytes; NULL: no readable video. */
const char *ek_video_type(const void *bytes, size_t n);

/* The result of counting, before anything is decoded. */
typedef struct ek_video_info {
    const char *format;
    int frames;        /* packets that become one frame each */
    double fps;        /* on average; 24 if the file does not say */
    int width, height; /* as stored */
} ek_video_info;

/* The client's wishes. */
typedef struct ek_video_opts {
    double fps; /* frames to take per second of the video; 0: use `frames` */
    int frames; /* number of frames to take, or all if there are fewer; 0: EK_VIDEO_SAMPLES */
    int max;    /* maximum frames; EINVAL beyond it */
} ek_video_opts;

/* The number n of frames to take. Frame i of n is the video's frame i N / n, rounded down, as in transformers. With
 * fps: n = N / rate x fps, rounded down, at least 1 and at most N. EINVAL if n exceeds max. */
ek_err ek_video_count(int *n, const ek_video_info *info, const ek_video_opts *o);
int ek_video_index(const ek_video_info *info, int i, int n);

/* Called for each frame, in order: frame i of n, upright; its pixels are valid during the call. An error stops the
 * frames and is returned unchanged. */
typedef ek_err ek_video_frame_fn(void *arg, int i, int n, double seconds, const ek_image *image);
/* Called once before the frames; an error ends the reading. May be NULL. */
typedef ek_err ek_video_info_fn(void *arg, const ek_video_info *info, int n);

typedef struct ek_video_sink {
    ek_video_info_fn *info;
    ek_video_frame_fn *frame;
    void *arg;
} ek_video_sink;

/* EINVAL: no video of a known kind, or nothing to show; EPARSE: damaged or truncated; ETOOLARGE: a limit; ECANCELLED:
 * the request was dropped (base/clock.h); ENOMEM; EIO: ffmpeg cannot be started. */
ek_err ek_video_read(const ek_ffmpeg *f, const void *bytes, size_t n, const ek_video_opts *o, const ek_video_sink *to);

#endif
