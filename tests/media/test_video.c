/* Videos as files: which frames stand for them, and what is refused, in one sentence each. What needs no ffmpeg runs
 * without one. */
/* tier: all */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "draw.h"
#include "make_video.h"
#include "media/limits.h"
#include "media/video/output.h"
#include "media/video/video.h"

static ek_ffmpeg *ffmpeg;

/* What came of a video. */
typedef struct seen {
    ek_video_info info;
    int n, width, height;
    uint8_t level[64], red[64]; /* of a corner that is grey; whether the first one is red */
    double seconds[64];
} seen;

static ek_err note_info(void *arg, const ek_video_info *info, int n)
{
    seen *s = arg;
    s->info = *info;
    s->n = -n;
    return EK_OK;
}

static ek_err note_frame(void *arg, int i, int n, double seconds, const ek_image *image)
{
    seen *s = arg;
    const uint8_t *grey = image->rgb +
                          3 * (size_t)(image->width - 1); /* one of two corners is not red, however turned */
    if (grey[0] > grey[1] + 100) grey = image->rgb + ek_image_bytes(image) - 3;
    assert_true(i < 64 && i < n);
    s->width = image->width, s->height = image->height;
    s->level[i] = grey[1];
    s->red[i] = image->rgb[0] > 200 && image->rgb[1] < 60;
    s->seconds[i] = seconds;
    s->n = i + 1;
    return EK_OK;
}

static ek_err look(seen *s, const ek_buf *file, double fps)
{
    const ek_video_opts o = {.fps = fps, .max = EK_MEDIA_MAX_FRAMES};
    const ek_video_sink to = {note_info, note_frame, s};
    *s = (seen){.n = 0};
    return ek_video_read(ffmpeg, ek_buf_text(file), file->len, &o, &to);
}

static void see(seen *s, const ek_buf *file, double fps)
{
    if (look(s, file, fps)) fail_msg("%s", ek_err_text());
}

static void assert_says(ek_err got, ek_err want, const char *words)
{
    const char *text = ek_err_text();
    if (got != want || !strstr(text, words) || strchr(text, '\n')) fail_msg("%d: %s; not %s", got, text, words);
}

static void levels(uint8_t *level, int n, int step)
{
    for (int i = 0; i < n; i++) level[i] = (uint8_t)(i * step);
}

/* --- without ffmpeg --- */

static void frames_are_counted_and_chosen_as_transformers_does(void **state)
{
    (void)state;
    static const struct {
        int frames;
        double rate, fps;
        int n, second, last; /* index of frames 1 and n - 1 */
    } c[] = {{100, 25, 0, 32, 3, 96},
             {32, 25, 0, 32, 1, 31},
             {31, 25, 0, 31, 1, 30},
             {33, 25, 0, 32, 1, 31},
             {1000000, 30, 0, 32, 31250, 968750},
             {300, 30, 2, 20, 15, 285},
             {300, 29.97, 2, 20, 15, 285},
             {10, 30, 1000, 10, 1, 9}};
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        const ek_video_info info = {.frames = c[i].frames, .fps = c[i].rate};
        const ek_video_opts o = {.fps = c[i].fps, .max = 32};
        int n;
        assert_int_equal(ek_video_count(&n, &info, &o), EK_OK);
        assert_int_equal(n, c[i].n);
        assert_int_equal(ek_video_index(&info, 0, n), 0);
        assert_int_equal(ek_video_index(&info, 1, n), c[i].second);
        assert_int_equal(ek_video_index(&info, n - 1, n), c[i].last);
    }
    const ek_video_info one = {.frames = 1, .fps = 24}, hour = {.frames = 108000, .fps = 30};
    int n;
    assert_int_equal(ek_video_count(&n, &one, &(ek_video_opts){.fps = 0.5, .max = 1}), EK_OK);
    assert_int_equal(n, 1);
    assert_says(ek_video_count(&n, &hour, &(ek_video_opts){.fps = 1, .max = 32}), EK_EINVAL, "3600 frames");
    assert_says(ek_video_count(&n, &hour, &(ek_video_opts){.max = 31}), EK_EINVAL, "and 31 may be");
}

static bool count(ek_packets *p, const char *text)
{
    *p = (ek_packets){0};
    ek_packets_add(p, text, strlen(text));
    return ek_packets_end(p);
}

static void packets_say_how_many_frames_there_are(void **state)
{
    (void)state;
    static const char text[] = "#software: Lavf59\n#tb 0: 1/15360\n#media_type 0: video\n#codec_id 0: h264\n"
                               "#dimensions 0: 640x480\n#sar 0: 1/1\n"
                               "0,      -1024,          0,      512,     6114, 0x8bc2d0a3\n"
                               "0,       -512,       1024,      512,      200, 0x8bc2d0a3, F=0x0\n"
                               "0,          0,        512,      512,      200, 0x8bc2d0a3, F=0x0, S=1, 8, 0x00a80007\n"
                               "0,          0,       -512,      512,      200, 0x8bc2d0a3, F=0x5\n";
    ek_packets p;
    assert_true(count(&p, text));
    assert_int_equal(p.n, 3);
    assert_true(p.width == 640 && p.height == 480 && p.first == 0 && p.last == 1536);
    assert_true(ek_packets_fps(&p) == 30);
    for (size_t cut = 0; cut <= strlen(text); cut++) {
        ek_packets part = {0};
        ek_packets_add(&part, text, cut);
        ek_packets_add(&part, text + cut, strlen(text) - cut);
        assert_true(ek_packets_end(&part) && part.n == 3 && part.last == 1536);
    }
    assert_true(
        count(&p, "0, -9223372036854775808, -9223372036854775808, 1, 9, 0x0\n0, 4, -9223372036854775808, 1, 9, 0x0\n"));
    assert_true(p.n == 2 && p.first == 4 && p.last == 5); /* times that are not known */
    assert_true(count(&p, ""));
    assert_true(p.n == 0 && ek_packets_fps(&p) == 24);
    assert_true(count(&p, "#tb 0: 1/1000\n0, 0, 0, 0, 9, 0x0\n0, 40, 40, 0, 9, 0x0\n0, 80, 80, 0, 9, 0x0\n"));
    assert_true(fabs(ek_packets_fps(&p) - 25) < 1e-9); /* the last is as long as the others */
    static const char *const wrong[] = {"x\n",
                                        "0, 1, 2, 3\n",
                                        "1, 0, 0, 0, 0, 0x0\n",
                                        "0, 0, 99999999999999999999, 1, 1, 0\n",
                                        "0, 0, 0, -1, 1, 0\n",
                                        "#tb 0: 0/25\n",
                                        "#tb 0: 1/0\n",
                                        "#dimensions 0: x\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_false(count(&p, wrong[i]));
}

typedef struct text_reader {
    const char *s;
    size_t n, step;
} text_reader;

static ek_err read_text(void *arg, void *to, size_t n, size_t *got)
{
    text_reader *r = arg;
    *got = n < r->step ? n : r->step;
    if (*got > r->n) *got = r->n;
    memcpy(to, r->s, *got);
    r->s += *got, r->n -= *got;
    return EK_OK;
}

static void frames_come_out_of_pipes(void **state)
{
    (void)state;
    static const char two[] = "P6\n2 1\n255\nabcdefP6\n1 1\n255\nxyz";
    for (size_t step = 1; step < 9; step++) {
        text_reader r = {two, sizeof two - 1, step};
        ek_image a, b, c;
        assert_int_equal(ek_ppm_read(&a, read_text, &r), EK_OK);
        assert_true(a.width == 2 && a.height == 1);
        assert_memory_equal(a.rgb, "abcdef", 6);
        assert_int_equal(ek_ppm_read(&b, read_text, &r), EK_OK);
        assert_memory_equal(b.rgb, "xyz", 3);
        assert_int_equal(ek_ppm_read(&c, read_text, &r), EK_OK);
        assert_null(c.rgb);
        ek_image_free(&a);
        ek_image_free(&b);
    }
    static const struct {
        const char *s, *says;
        ek_err err;
    } wrong[] = {
        {"P5\n1 1\n255\nx", "no picture", EK_EPARSE},      {"P6\n1 1\n65535\nxxxxxx", "no picture", EK_EPARSE},
        {"P6\n0 1\n255\n", "no picture", EK_EPARSE},       {"P6\n-1 1\n255\n", "no picture", EK_EPARSE},
        {"P6\n999999 1\n255\n", "no picture", EK_EPARSE},  {"P6\n32768 32768\n255\n", "32768 x 32768", EK_ETOOLARGE},
        {"P6\n32769 1\n255\n", "32769 x 1", EK_ETOOLARGE}, {"P6\n2 1\n255\nabc", "ends inside", EK_EPARSE},
        {"P6 1 1 255 xyz", "no picture", EK_EPARSE},       {"P", "no picture", EK_EPARSE}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        text_reader r = {wrong[i].s, strlen(wrong[i].s), 4};
        ek_image a;
        assert_says(ek_ppm_read(&a, read_text, &r), wrong[i].err, wrong[i].says);
        assert_null(a.rgb);
    }
}

/* ffmpeg is not asked what a file is: what names other files or addresses is none of its kinds. */
static void lists_of_files_are_no_videos(void **state)
{
    (void)state;
    static const char *const text[] = {"#EXTM3U\n#EXT-X-MEDIA-SEQUENCE:0\n#EXTINF:1.0,\nfile:///etc/passwd\n",
                                       "ffconcat version 1.0\nfile /etc/passwd\n",
                                       "<?xml version=\"1.0\"?><MPD></MPD>",
                                       "WEBVTT\n\n00:00.000 --> 00:01.000\nx\n",
                                       "[playlist]\nFile1=http://127.0.0.1/\n",
                                       "YUV4MPEG2 W1 H1 F1:1\nFRAME\nxxx",
                                       "\x89PNG\r\n\x1a\n",
                                       "RIFFxxxxWAVEfmt ",
                                       "RIFFxxxxWEBPVP8 ",
                                       "x"};
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        ek_buf b = {0};
        seen s;
        ek_buf_str(&b, text[i]);
        assert_null(ek_video_type(b.data, b.len));
        assert_says(look(&s, &b, 0), EK_EINVAL, "not a video of a known kind: it begins with the bytes ");
        ek_buf_fini(&b);
    }
    ek_buf none = {0};
    seen s;
    assert_says(look(&s, &none, 0), EK_EINVAL, "empty video");
    assert_string_equal(ek_video_type("\0\0\0\x18"
                                      "ftypisom",
                                      12),
                        "video/mp4");
    assert_string_equal(ek_video_type("\x1A\x45\xDF\xA3", 4), "video/webm");
}

static void programs_that_are_none_are_refused(void **state)
{
    (void)state;
    ek_ffmpeg *f;
    assert_says(ek_ffmpeg_open(&f, "/usr/nothing"), EK_ENOTFOUND, "/usr/nothing is no program");
    assert_null(f);
    assert_says(ek_ffmpeg_open(&f, "/usr"), EK_ENOTFOUND, "/usr is no program");
    assert_says(ek_ffmpeg_open(&f, "/bin/true"), EK_EUNSUPPORTED, "does not say that it is ffmpeg");
    assert_says(ek_ffmpeg_open(&f, "/bin/false"), EK_EIO, "does not run locked up");
    ek_ffmpeg_close(NULL);
}

/* --- with one --- */

#define NEEDS_FFMPEG() \
    if (!ffmpeg) skip()

static void every_kind_gives_its_frames(void **state)
{
    (void)state;
    NEEDS_FFMPEG();
    static const struct {
        const char *words, *type;
        int off; /* of 255, that a level may be */
        int n;
    } c[] = {{"-c:v png -pix_fmt rgb24 -f mov", "video/mp4", 0, 100},
             {"-c:v png -pix_fmt rgb24 -movflags faststart -f mp4", "video/mp4", 0, 40},
             {"-c:v ffv1 -pix_fmt bgr0 -f matroska", "video/webm", 0, 40},
             {"-c:v png -pix_fmt rgb24 -f avi", "video/x-msvideo", 0, 40},
             {"-c:v libx264 -preset ultrafast -qp 1 -bf 2 -f mp4", "video/mp4", 3, 50},
             {"-c:v libvpx -deadline realtime -b:v 4M -auto-alt-ref 0 -f webm", "video/webm", 6, 40},
             {"-c:v mpeg2video -qscale:v 1 -f mpegts", "video/mp2t", 6, 40},
             {"-c:v mpeg2video -qscale:v 1 -f mpeg", "video/mpeg", 6, 40},
             {"-c:v flv -qscale:v 1 -f flv", "video/x-flv", 6, 40},
             {"-c:v wmv2 -qscale:v 1 -f asf", "video/x-ms-wmv", 6, 40},
             {"-c:v libtheora -qscale:v 10 -f ogg", "video/ogg", 6, 40},
             {"-f gif", "video/gif", 40, 40}};
    uint8_t level[100];
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        ek_buf b = {0};
        seen s;
        levels(level, c[i].n, 250 / c[i].n);
        make_video(&b, 64, 48, c[i].n, level, "25", c[i].words);
        assert_string_equal(ek_video_type(b.data, b.len), c[i].type);
        if (look(&s, &b, 0)) fail_msg("%s: %s", c[i].words, ek_err_text());
        assert_int_equal(s.n, 32);
        assert_int_equal(s.info.frames, c[i].n);
        if (fabs(s.info.fps - 25) > 1) fail_msg("%s: %g per second", c[i].words, s.info.fps);
        assert_true(s.width == 64 && s.height == 48);
        for (int k = 0; k < 32; k++) {
            const int index = k * c[i].n / 32;
            if (abs(s.level[k] - level[index]) > c[i].off)
                fail_msg("%s: frame %d: %d, not %d", c[i].words, k, s.level[k], level[index]);
            assert_true(s.red[k]);
            assert_true(fabs(s.seconds[k] - index / s.info.fps) < 1e-9);
        }
        ek_buf_fini(&b);
    }
}

static void short_ones_give_all_and_rates_are_kept(void **state)
{
    (void)state;
    NEEDS_FFMPEG();
    uint8_t level[90];
    seen s;
    levels(level, 90, 2);
    for (int n = 1; n <= 33; n += 16) {
        ek_buf b = {0};
        make_video(&b, 32, 32, n, level, "30000/1001", "-c:v png -pix_fmt rgb24 -f mov");
        see(&s, &b, 0);
        assert_int_equal(s.n, n < 32 ? n : 32);
        assert_true(fabs(s.info.fps - 30000.0 / 1001) < 1e-6);
        for (int k = 0; k < s.n; k++) assert_int_equal(s.level[k], level[k * n / s.n]);
        ek_buf_fini(&b);
    }
    ek_buf b = {0};
    make_video(&b, 32, 32, 90, level, "30", "-c:v png -pix_fmt rgb24 -f mov");
    see(&s, &b, 2);
    assert_int_equal(s.n, 6);
    for (int k = 0; k < 6; k++) assert_int_equal(s.level[k], level[15 * k]);
    assert_says(look(&s, &b, 20), EK_EINVAL, "60 frames are taken of a video of 90 at 30 per second, and 32 may be");
    ek_buf_fini(&b);
}

static void phones_are_turned_upright(void **state)
{
    (void)state;
    NEEDS_FFMPEG();
    const uint8_t level[] = {10, 20};
    ek_buf b = {0}, turned = {0};
    seen s;
    make_video(&b, 64, 32, 2, level, "25", "-c:v png -pix_fmt rgb24 -f mov");
    make_copy(&turned, &b, "-c copy -metadata:s:v:0 rotate=180 -f mov");
    see(&s, &turned, 0);
    assert_true(s.width == 64 && s.height == 32 && !s.red[0]);
    ek_buf_fini(&turned);
    make_copy(&turned, &b, "-c copy -metadata:s:v:0 rotate=90 -f mov");
    see(&s, &turned, 0);
    assert_true(s.width == 32 && s.height == 64);
    ek_buf_fini(&turned);
    ek_buf_fini(&b);
}

static void the_same_file_gives_the_same_pixels(void **state)
{
    (void)state;
    NEEDS_FFMPEG();
    uint8_t level[40];
    seen a, b;
    ek_buf file = {0};
    levels(level, 40, 6);
    make_video(&file, 100, 76, 40, level, "24", "-c:v libx264 -preset ultrafast -crf 30 -f mp4");
    see(&a, &file, 0);
    see(&b, &file, 0);
    assert_memory_equal(a.level, b.level, sizeof a.level);
    assert_memory_equal(a.seconds, b.seconds, sizeof a.seconds);
    ek_buf_fini(&file);
}

static void put_be32(char *p, uint32_t v)
{
    p[0] = (char)(v >> 24), p[1] = (char)(v >> 16), p[2] = (char)(v >> 8), p[3] = (char)v;
}

static char *find_bytes(ek_buf *b, const char *what)
{
    char *p = memmem(b->data, b->len, what, 4);
    assert_non_null(p);
    return p;
}

/* Each ends in one sentence, soon, and nothing is left behind. */
static void what_is_broken_or_hostile_is_refused(void **state)
{
    (void)state;
    NEEDS_FFMPEG();
    uint8_t level[40];
    seen s;
    levels(level, 40, 6);
    ek_buf whole = {0}, b = {0};
    double begun = ek_now();
    make_video(&whole, 64, 48, 40, level, "25", "-c:v png -pix_fmt rgb24 -movflags faststart -f mov");
    ek_buf_add(&b, whole.data, whole.len * 2 / 3); /* cut in its pixels */
    assert_says(look(&s, &b, 0), EK_EPARSE, "damaged MP4 video: ");
    ek_buf_clear(&b);
    ek_buf_add(&b, whole.data, 400); /* cut in its header */
    assert_says(look(&s, &b, 0), EK_EPARSE, "damaged MP4 video: ");
    b.len = 100;
    assert_says(look(&s, &b, 0), EK_EINVAL, "MP4 file without a video in it");
    ek_buf_clear(&b);
    ek_buf_add(&b, whole.data, whole.len); /* two thousand million frames of one size */
    char *sizes = find_bytes(&b, "stsz");
    put_be32(sizes + 8, 1), put_be32(sizes + 12, 0x7fffffff);
    assert_int_not_equal(look(&s, &b, 0), EK_OK);
    ek_buf_clear(&b);
    ek_buf_add(&b, /* a kind's first bytes and noise */
               "\0\0\0\x18"
               "ftypisom\0\0\2\0isommp41",
               24);
    for (int i = 0; i < 5000; i++) ek_buf_char(&b, (char)(i * 37 + (i >> 3)));
    assert_int_not_equal(look(&s, &b, 0), EK_OK);
    ek_buf_clear(&b);
    make_video(&b, 64, 48, 40, level, "25", "-c:v ffv1 -pix_fmt bgr0 -f matroska");
    b.len = b.len * 2 / 3;
    assert_says(look(&s, &b, 0), EK_EPARSE, "damaged WebM video: ");
    ek_buf_clear(&b);
    make_sound_file(&b, "-c:a pcm_s16le -f mov");
    assert_says(look(&s, &b, 0), EK_EINVAL, "MP4 file without a video in it");
    ek_buf_clear(&b);
    assert_true(ek_now() - begun < 60);
    ek_buf_fini(&whole);
    ek_buf_fini(&b);
}

/* Makes the file's track one of another file, by an alias record as mov has it: where it lies from the root on. */
static void name_other(ek_buf *b, const char *path)
{
    static const char *const around[] = {"moov", "trak", "mdia", "minf", "dinf", "dref"};
    enum { FIXED = 150, HEAD = 8 };
    char alias[FIXED + 256] = {0};
    const size_t n = strlen(path), even = n + n % 2, size = FIXED + 4 + even + 4;
    char *at = find_bytes(b, "dref"), *url = memmem(at, 64, "url ", 4);
    assert_true(url && size <= sizeof alias && memmem(b->data, b->len, "mdat", 4) < (void *)at); /* no offset moves */
    alias[FIXED + 1] = 2, alias[FIXED + 3] = (char)n; /* an absolute path; -1 ends it */
    memcpy(alias + FIXED + 4, path, n);
    memset(alias + FIXED + 4 + even, 0xff, 2);
    for (size_t i = 0; i < sizeof around / sizeof *around; i++) {
        uint8_t *p = (uint8_t *)find_bytes(b, around[i]) - 4;
        const uint32_t old = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
        put_be32((char *)p, old + (uint32_t)size);
    }
    put_be32(url - 4, (uint32_t)(HEAD + 4 + size));
    memcpy(url, "alis", 4);
    url[7] = 0; /* not in this file */
    const size_t before = (size_t)(url + HEAD - b->data), behind = b->len - before;
    char *rest = malloc(behind);
    memcpy(rest, url + HEAD, behind);
    b->len = before;
    ek_buf_add(b, alias, size);
    ek_buf_add(b, rest, behind);
    free(rest);
}

/* The grey of a file's first frame, by an ffmpeg that is told to open what it names. */
static int level_with_others(const char *path)
{
    char line[512];
    uint8_t last[3 * 32 * 32] = {0};
    snprintf(line, sizeof line,
             "%s -loglevel error -enable_drefs 1 -use_absolute_path 1 -i %s -frames:v 1 -pix_fmt rgb24 -f rawvideo -",
             ffmpeg_path(), path);
    FILE *f = popen(line, "r");
    assert_non_null(f);
    const size_t n = fread(last, 1, sizeof last, f);
    pclose(f);
    return n == sizeof last ? last[n - 1] : -1;
}

static void write_file(const char *path, const ek_buf *b)
{
    FILE *f = fopen(path, "wb");
    assert_true(f && fwrite(b->data, 1, b->len, f) == b->len && fclose(f) == 0);
}

/* A file of QuickTime may say that its pixels lie in another file. */
static void other_files_are_not_opened(void **state)
{
    (void)state;
    NEEDS_FFMPEG();
    static const uint8_t own[] = {100, 110, 120}, others[] = {200, 210, 220};
    static const char form[] = "-c:v rawvideo -pix_fmt rgb24 -f mov"; /* frames lie in the same places */
    char other[64], path[64];
    ek_buf b = {0}, second = {0};
    seen s;
    temp_name(other, sizeof other, "other"), temp_name(path, sizeof path, "alias");
    const int fd[] = {mkstemp(other), mkstemp(path)};
    assert_true(fd[0] >= 0 && fd[1] >= 0);
    make_video(&b, 32, 32, 3, own, "25", form);
    make_video(&second, 32, 32, 3, others, "25", form);
    write_file(other, &second);
    see(&s, &b, 0);
    assert_int_equal(s.level[0], 100);
    name_other(&b, other);
    write_file(path, &b);
    assert_int_equal(level_with_others(path), 200); /* it can be opened */
    assert_int_not_equal(look(&s, &b, 0), EK_OK);
    assert_int_equal(s.level[0], 0);
    remove(other), remove(path);
    close(fd[0]), close(fd[1]);
    ek_buf_fini(&b), ek_buf_fini(&second);
}

/* The program may be anything that calls itself ffmpeg: what it writes is a stranger's. */
static ek_ffmpeg *fake(const char *counts, const char *decodes, char path[])
{
    FILE *f;
    temp_name(path, 64, "fake");
    int fd = mkstemp(path);
    assert_true(fd >= 0 && (f = fdopen(fd, "w")));
    fprintf(f,
            "#!/bin/sh\ncase \"$*\" in *-protocols*) echo 'ffmpeg version 6.1 x' >&2; printf 'Input:\\n  fd\\n';;\n"
            "*framecrc*) %s;;\n*) %s;;\nesac\n",
            counts, decodes);
    fchmod(fd, 0755);
    fclose(f);
    ek_ffmpeg *p;
    if (ek_ffmpeg_open(&p, path)) fail_msg("%s", ek_err_text());
    return p;
}

#define THREE "printf '#tb 0: 1/10\\n#dimensions 0: 1x1\\n0,0,0,1,1,0x0\\n0,1,1,1,1,0x0\\n0,2,2,1,1,0x0\\n'"

static void what_ffmpeg_writes_is_checked(void **state)
{
    (void)state;
    static const struct {
        const char *counts, *decodes;
        ek_err err;
        const char *says;
    } c[] = {{THREE, "printf 'P6\\n1 1\\n255\\nabaP6\\n1 1\\n255\\nabaP6\\n1 1\\n255\\naba'", EK_OK, ""},
             {THREE, "printf 'P6\\n1 1\\n255\\nabaP6\\n1 1\\n255\\naba'", EK_EPARSE, "frame 3 of 3 cannot be decoded"},
             {THREE, "printf 'P6\\n1 1\\n255\\nab'", EK_EPARSE, "ends inside a frame"},
             {THREE, "printf 'P6\\n30000 30000\\n255\\nab'", EK_ETOOLARGE, "30000 x 30000"},
             {THREE, "echo junk", EK_EPARSE, "no picture"},
             {THREE, "echo wrong >&2; exit 1", EK_EPARSE, "damaged MP4 video: wrong"},
             {THREE, "kill -9 $$; ulimit -c 0; exit 9", EK_EPARSE, "damaged MP4 video: "},
             {"echo junk", "exit 0", EK_EIO, "something else than packets"},
             {"printf '[mov,mp4 @ 0x1] moov\\001 is cut\\n' >&2; exit 1", "exit 0", EK_EPARSE,
              "damaged MP4 video: moov? is cut"},
             {"echo 'partial file' >&2", "exit 0", EK_EPARSE, "partial file"},
             {"exit 0", "exit 0", EK_EINVAL, "without a frame"},
             {"printf '#dimensions 0: 9000x9000\\n0,0,0,1,1,0x0\\n'", "exit 0", EK_ETOOLARGE, "9000 x 9000"},
             {"printf '#tb 0: 1000/1\\n0,0,0,999,1,0x0\\n'", "exit 0", EK_ETOOLARGE, "seconds, at most 360000"}};
    ek_ffmpeg *before = ffmpeg;
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        char path[64];
        ek_buf b = {0};
        seen s;
        ffmpeg = fake(c[i].counts, c[i].decodes, path);
        assert_non_null(strstr(ek_ffmpeg_text(ffmpeg), " 6.1, locked up by seccomp"));
        ek_buf_add(&b,
                   "\0\0\0\x18"
                   "ftypisom",
                   12);
        ek_err err = look(&s, &b, 0);
        if (c[i].err) assert_says(err, c[i].err, c[i].says);
        else if (err) fail_msg("%s", ek_err_text());
        else assert_true(s.n == 3 && fabs(s.seconds[2] - 0.2) < 1e-9);
        ek_ffmpeg_close(ffmpeg);
        ek_buf_fini(&b);
        remove(path);
    }
    ffmpeg = before;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_are_counted_and_chosen_as_transformers_does),
        cmocka_unit_test(packets_say_how_many_frames_there_are),
        cmocka_unit_test(frames_come_out_of_pipes),
        cmocka_unit_test(lists_of_files_are_no_videos),
        cmocka_unit_test(programs_that_are_none_are_refused),
        cmocka_unit_test(what_ffmpeg_writes_is_checked),
        cmocka_unit_test(every_kind_gives_its_frames),
        cmocka_unit_test(short_ones_give_all_and_rates_are_kept),
        cmocka_unit_test(phones_are_turned_upright),
        cmocka_unit_test(the_same_file_gives_the_same_pixels),
        cmocka_unit_test(what_is_broken_or_hostile_is_refused),
        cmocka_unit_test(other_files_are_not_opened),
    };
    if (ffmpeg_path() && ek_ffmpeg_open(&ffmpeg, NULL)) {
        fprintf(stderr, "%s\n", ek_err_text());
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ek_ffmpeg_close(ffmpeg);
    return failed;
}
