/* A video is first counted, packet by packet, then decoded up to the last needed frame. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "media/video/video.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "media/limits.h"
#include "media/video/ffmpeg.h"
#include "media/video/output.h"

enum { PIECE = 64 << 10 };

/* --- the choice of frames --- */

ek_err ek_video_count(int *n, const ek_video_info *info, const ek_video_opts *o)
{
    double want = o->fps > 0      ? floor((double)info->frames / info->fps * o->fps)
                  : o->frames > 0 ? o->frames
                                  : EK_VIDEO_SAMPLES;
    if (want > info->frames) want = info->frames;
    if (want < 1) want = 1;
    if (want > o->max)
        return ek_fail(EK_EINVAL, "%.0f frames are taken of a video of %d at %.4g per second, and %d may be", want,
                       info->frames, info->fps, o->max);
    *n = (int)want;
    return EK_OK;
}

int ek_video_index(const ek_video_info *info, int i, int n)
{
    return (int)((int64_t)i * info->frames / n);
}

/* --- counting --- */

static ek_err read_packets(ek_child *c, ek_packets *p)
{
    char *piece = ek_alloc(PIECE);
    ek_err err = EK_OK;
    for (size_t n = 1; !err && n > 0;) {
        err = ek_child_read(c, piece, PIECE, &n);
        ek_packets_add(p, piece, n);
        if (!err && p->n > EK_VIDEO_MAX_FRAMES)
            err = ek_fail(EK_ETOOLARGE, "video of more than %d frames", EK_VIDEO_MAX_FRAMES);
    }
    free(piece);
    return err;
}

static ek_err check_info(ek_video_info *out, const ek_packets *p, const ek_container *k)
{
    if (p->n < 1) return ek_fail(EK_EINVAL, "%s file without a frame in it", k->name);
    if (p->width < 0 || p->height < 0 || p->width > EK_IMAGE_MAX_SIDE || p->height > EK_IMAGE_MAX_SIDE ||
        p->width * p->height > EK_IMAGE_MAX_PIXELS)
        return ek_fail(EK_ETOOLARGE, "%s video of %lld x %lld pixels, a frame has at most %d, a side %d", k->name,
                       (long long)p->width, (long long)p->height, EK_IMAGE_MAX_PIXELS, EK_IMAGE_MAX_SIDE);
    *out = (ek_video_info){.format = k->name,
                           .frames = (int)p->n,
                           .fps = ek_packets_fps(p),
                           .width = (int)p->width,
                           .height = (int)p->height};
    if ((double)out->frames / out->fps <= EK_VIDEO_MAX_SECONDS) return EK_OK;
    return ek_fail(EK_ETOOLARGE, "%s video of %.0f seconds, at most %d", k->name, (double)out->frames / out->fps,
                   EK_VIDEO_MAX_SECONDS);
}

static ek_err count_frames(ek_video_info *out, const ek_ffmpeg *f, const ek_container *k, int file)
{
    static const char *const output[] = {"-c", "copy", "-f", "framecrc", "pipe:1", NULL};
    ek_packets p = {0};
    ek_child c;
    ek_call what = {.n = 0};
    ek_call_begin(&what, f, k);
    ek_call_add(&what, output);
    EK_TRY(ek_call_start(&c, &what, file));
    EK_TRY(ek_call_end(&c, read_packets(&c, &p), k, true));
    if (!ek_packets_end(&p)) return ek_fail(EK_EIO, "%s writes something else than packets", f->path);
    return check_info(out, &p, k);
}

/* --- decoding --- */

/* Colours by exact arithmetic, which is the same on every processor. */
static const char scaling[] = "bilinear+accurate_rnd+full_chroma_int+bitexact";

/* "select=eq(n\,0)+eq(n\,7)…" */
static void write_filter(ek_buf *out, const ek_video_info *info, int n)
{
    ek_buf_str(out, "select=");
    for (int i = 0; i < n; i++) ek_buf_fmt(out, "%seq(n\\,%d)", i ? "+" : "", ek_video_index(info, i, n));
}

typedef struct frames {
    ek_child *child;
    char *piece;
    size_t at, n; /* of piece */
} frames;

/* ek_ppm_read_fn */
static ek_err next_bytes(void *arg, void *to, size_t n, size_t *got)
{
    frames *f = arg;
    if (f->at == f->n) {
        f->at = 0;
        EK_TRY(ek_child_read(f->child, f->piece, PIECE, &f->n));
    }
    *got = f->n - f->at < n ? f->n - f->at : n;
    memcpy(to, f->piece + f->at, *got);
    f->at += *got;
    return EK_OK;
}

static ek_err read_frames(ek_child *c, const ek_video_info *info, int n, const ek_video_sink *to, int *n_read)
{
    frames f = {.child = c, .piece = ek_alloc(PIECE)};
    ek_err err = EK_OK;
    for (*n_read = 0; !err && *n_read < n; (*n_read)++) {
        ek_image image;
        err = ek_ppm_read(&image, next_bytes, &f);
        if (err || !image.rgb) break;
        err = to->frame(to->arg, *n_read, n, ek_video_index(info, *n_read, n) / info->fps, &image);
        ek_image_free(&image);
    }
    free(f.piece);
    return err;
}

static ek_err decode(const ek_ffmpeg *f, const ek_video_info *info, const ek_container *k, int file, int n,
                     const ek_video_sink *to)
{
    ek_buf filter = {0};
    ek_child c;
    ek_call what = {.n = 0};
    int n_read;
    char count[16];
    write_filter(&filter, info, n);
    snprintf(count, sizeof count, "%d", n);
    const char *const output[] = {"-vf",
                                  ek_buf_text(&filter),
                                  f->has_fps_mode ? "-fps_mode" : "-vsync",
                                  "passthrough",
                                  "-frames:v",
                                  count,
                                  "-threads",
                                  "1",
                                  "-sws_flags",
                                  scaling,
                                  "-pix_fmt",
                                  "rgb24",
                                  "-c:v",
                                  "ppm",
                                  "-f",
                                  "image2pipe",
                                  "pipe:1",
                                  NULL};
    ek_call_begin(&what, f, k);
    ek_call_add(&what, output);
    ek_err err = ek_call_start(&c, &what, file);
    ek_buf_fini(&filter);
    EK_TRY(err);
    EK_TRY(ek_call_end(&c, read_frames(&c, info, n, to, &n_read), k, false));
    if (n_read == n) return EK_OK;
    return ek_fail(EK_EPARSE, "damaged %s video: frame %d of %d cannot be decoded", k->name,
                   ek_video_index(info, n_read, n) + 1, info->frames);
}

/* --- the whole file --- */

static ek_err read_file(const ek_ffmpeg *f, const ek_container *k, int file, const ek_video_opts *o,
                        const ek_video_sink *to)
{
    ek_video_info info;
    int n = 0;
    EK_TRY(count_frames(&info, f, k, file));
    EK_TRY(ek_video_count(&n, &info, o));
    if (to->info) EK_TRY(to->info(to->arg, &info, n));
    return decode(f, &info, k, file, n, to);
}

ek_err ek_video_read(const ek_ffmpeg *f, const void *bytes, size_t n, const ek_video_opts *o, const ek_video_sink *to)
{
    const ek_container *k;
    int file;
    EK_TRY(ek_container_check(&k, bytes, n));
    EK_TRY(ek_child_file(&file, bytes, n, "a video"));
    ek_err err = read_file(f, k, file, o, to);
    close(file);
    return err;
}
