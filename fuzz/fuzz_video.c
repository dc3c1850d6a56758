/* What a program that reads a stranger's file may write to us: lists of packets and frames. Where its bytes are cut
 * must not matter; whatever it is, sizes stay within the limits and refusals are one line. And what a file is by its
 * first bytes: a kind has a name, a list of files or addresses has none. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "media/limits.h"
#include "media/video/output.h"
#include "media/video/video.h"

enum { MAX_PIXELS = 1 << 16 };

typedef struct pipe_end {
    const uint8_t *p;
    size_t n, step;
} pipe_end;

static ek_err next(void *arg, void *to, size_t n, size_t *got)
{
    pipe_end *e = arg;
    *got = n < e->step ? n : e->step;
    if (*got > e->n) *got = e->n;
    memcpy(to, e->p, *got);
    e->p += *got, e->n -= *got;
    return EK_OK;
}

static void check_packets(const uint8_t *data, size_t n)
{
    ek_packets whole = {0}, cut = {0};
    ek_packets_add(&whole, (const char *)data, n);
    for (size_t at = 0; at < n; at += 1 + data[at] % 7) {
        size_t end = at + 1 + data[at] % 7;
        ek_packets_add(&cut, (const char *)data + at, (end < n ? end : n) - at);
    }
    const bool good = ek_packets_end(&whole);
    if (good != ek_packets_end(&cut)) __builtin_trap();
    if (!good) return;
    if (whole.n != cut.n || whole.first != cut.first || whole.last != cut.last || whole.width != cut.width)
        __builtin_trap();
    if (whole.n < 0 || whole.first > whole.begins || whole.begins > whole.last) __builtin_trap();
    const double fps = ek_packets_fps(&whole);
    if (!(fps > 0) || !isfinite(fps)) __builtin_trap();
    if (whole.n < 1 || whole.n > EK_VIDEO_MAX_FRAMES) return;
    const ek_video_info info = {.frames = (int)whole.n, .fps = fps};
    int taken, last = -1;
    if (ek_video_count(&taken, &info, &(ek_video_opts){.max = 32})) __builtin_trap();
    if (taken < 1 || taken > 32 || taken > whole.n) __builtin_trap();
    for (int i = 0; i < taken; i++) {
        const int index = ek_video_index(&info, i, taken);
        if (index <= last || index >= whole.n) __builtin_trap();
        last = index;
    }
}

/* A header that says more than it has takes memory for what it says: such are left out. */
static bool is_small(const uint8_t *data, size_t n)
{
    char head[24] = "";
    memcpy(head, data, n < sizeof head - 1 ? n : sizeof head - 1);
    for (char *c = head; *c; c++)
        if (*c == '\n') *c = ' ';
    char *end;
    if (strncmp(head, "P6 ", 3) != 0) return true;
    const long w = strtol(head + 3, &end, 10), h = strtol(end, NULL, 10);
    return w * h <= MAX_PIXELS || w > EK_IMAGE_MAX_SIDE || h > EK_IMAGE_MAX_SIDE;
}

static void check_frames(const uint8_t *data, size_t n)
{
    pipe_end whole = {data, n, n}, cut = {data, n, 1 + n % 5};
    for (;;) {
        ek_image a, b;
        if (!is_small(whole.p, whole.n)) return;
        const ek_err err = ek_ppm_read(&a, next, &whole);
        if (ek_ppm_read(&b, next, &cut) != err || whole.n != cut.n) __builtin_trap();
        if (err) {
            if (a.rgb || b.rgb || strchr(ek_err_text(), '\n')) __builtin_trap();
            if (err != EK_EPARSE && err != EK_ETOOLARGE) __builtin_trap();
            return;
        }
        if (!a.rgb != !b.rgb) __builtin_trap();
        if (!a.rgb) return;
        if (a.width < 1 || a.height < 1 || a.width > EK_IMAGE_MAX_SIDE || a.height > EK_IMAGE_MAX_SIDE)
            __builtin_trap();
        if (a.width != b.width || a.height != b.height || memcmp(a.rgb, b.rgb, ek_image_bytes(&a)) != 0)
            __builtin_trap();
        ek_image_free(&a);
        ek_image_free(&b);
    }
}

static void check_kind(const uint8_t *data, size_t n)
{
    const char *type = ek_video_type(data, n);
    if (!type) return;
    if (strncmp(type, "video/", 6) != 0) __builtin_trap();
    if (data[0] == '#' || data[0] == '<' || data[0] == '[' || !memcmp(data, "ffconcat", n < 8 ? n : 8)) {
        /* only a box of MP4 may begin so, by its length */
        if (strcmp(type, "video/mp4") != 0) __builtin_trap();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    check_packets(data, n);
    check_frames(data, n);
    check_kind(data, n);
    return 0;
}
