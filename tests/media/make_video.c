#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "make_video.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"

void temp_name(char *to, size_t n, const char *stem)
{
    const int at = snprintf(to, n, "/tmp/ek-%s-", stem);
    memset(to + at, 'X', 6);
    to[at + 6] = 0;
}

const char *ffmpeg_path(void)
{
    return access("/usr/bin/ffmpeg", X_OK) == 0 ? "/usr/bin/ffmpeg" : NULL;
}

/* words: blanks between them; the files are in and out of a folder of its own. */
static void run(ek_buf *out, const void *in, size_t n, const char *before, const char *words)
{
    char folder[64], line[1024], from[80], to[80];
    temp_name(folder, sizeof folder, "video");
    assert_non_null(mkdtemp(folder));
    snprintf(from, sizeof from, "%s/in", folder);
    snprintf(to, sizeof to, "%s/out", folder);
    FILE *f = fopen(from, "wb");
    assert_true(f && fwrite(in, 1, n, f) == n && fclose(f) == 0);
    snprintf(line, sizeof line, "%s -hide_banner -nostdin -loglevel error -threads 1 %s -i %s %s -y %s", ffmpeg_path(),
             before, from, words, to);
    if (system(line) != 0) fail_msg("%s", line);
    assert_int_equal(ek_file_read(out, to, 64 << 20), EK_OK);
    unlink(from), unlink(to), rmdir(folder);
}

void make_video(ek_buf *out, int width, int height, int n, const uint8_t *level, const char *rate, const char *words)
{
    const size_t frame = 3 * (size_t)width * (size_t)height;
    uint8_t *all = malloc(frame * (size_t)n);
    char before[128];
    for (int i = 0; i < n; i++)
        for (int y = 0; y < height; y++)
            for (int x = 0; x < width; x++) {
                uint8_t *p = all + frame * (size_t)i + 3 * (size_t)(y * width + x);
                const bool red = 2 * x < width && 2 * y < height;
                p[0] = red ? 255 : level[i];
                p[1] = p[2] = red ? 0 : level[i];
            }
    snprintf(before, sizeof before, "-f rawvideo -pix_fmt rgb24 -s %dx%d -r %s", width, height, rate);
    run(out, all, frame * (size_t)n, before, words);
    free(all);
}

void make_copy(ek_buf *out, const ek_buf *in, const char *words)
{
    run(out, in->data, in->len, "", words);
}

void make_sound_file(ek_buf *out, const char *words)
{
    static const uint8_t silence[2 * 16000];
    run(out, silence, sizeof silence, "-f s16le -ar 16000 -ac 1", words);
}
