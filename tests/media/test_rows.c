/* Pictures that are resized while their rows are decoded: the bytes of decoding first and resizing then, and memory
 * that does not grow with the picture. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <png.h>

#include "base/alloc.h"
#include "draw.h"
#include "media/limits.h"
#include "media/picture.h"

/* The definition: turned upright, each output sample out of all of its inputs, by a pass along the rows and one over
 * them. The weights are those of ek_image_resize, which is given one row, or one column, at a time. */
static ek_image in_two_passes(const ek_image *in, int width, int height, ek_resizer how)
{
    ek_image between, out, line, done;
    assert_int_equal(ek_image_make(&between, width, in->height), EK_OK);
    assert_int_equal(ek_image_make(&out, width, height), EK_OK);
    for (int y = 0; y < in->height; y++) {
        line = (ek_image){in->width, 1, in->rgb + 3 * (size_t)y * (size_t)in->width};
        assert_int_equal(ek_image_resize(&done, &line, width, 1, how), EK_OK);
        memcpy(between.rgb + 3 * (size_t)y * (size_t)width, done.rgb, 3 * (size_t)width);
        ek_image_free(&done);
    }
    uint8_t *column = malloc(3 * (size_t)in->height);
    for (int x = 0; x < width; x++) {
        for (int y = 0; y < in->height; y++)
            memcpy(column + 3 * y, between.rgb + 3 * ((size_t)x + (size_t)y * (size_t)width), 3);
        line = (ek_image){1, in->height, column};
        assert_int_equal(ek_image_resize(&done, &line, 1, height, how), EK_OK);
        for (int y = 0; y < height; y++)
            memcpy(out.rgb + 3 * ((size_t)x + (size_t)y * (size_t)width), done.rgb + 3 * y, 3);
        ek_image_free(&done);
    }
    free(column);
    ek_image_free(&between);
    return out;
}

static void assert_rows(const ek_buf *file, ek_alpha alpha, int width, int height)
{
    for (int how = 0; how < 2; how++) {
        ek_image whole, want, got;
        assert_int_equal(ek_image_decode(&whole, file->data, file->len, alpha), EK_OK);
        want = in_two_passes(&whole, width, height, (ek_resizer)how);
        if (ek_image_decode_resized(&got, file->data, file->len, NULL, alpha, width, height, (ek_resizer)how))
            fail_msg("%s", ek_err_text());
        assert_true(got.width == width && got.height == height);
        assert_memory_equal(got.rgb, want.rgb, ek_image_bytes(&want));
        ek_image_free(&whole);
        ek_image_free(&want);
        ek_image_free(&got);
    }
}

/* Smaller, larger, one of each, as they are; every orientation. */
static void turned_pictures_are_resized_alike(void **state)
{
    (void)state;
    static const int size[][2] = {{24, 19}, {96, 140}, {48, 20}, {10, 90}, {61, 37}, {37, 61}, {61, 90}, {1, 1}};
    ek_image image = draw(61, 37);
    for (int o = 1; o <= 8; o++)
        for (size_t i = 0; i < sizeof size / sizeof *size; i++)
            for (int kind = (int)i % 2; kind < 4; kind += 2) {
                ek_buf b = {0};
                if (kind < 2) put_png(&b, image.rgb, 61, 37, PNG_COLOR_TYPE_RGB, 8, kind == 1, o);
                else put_jpeg(&b, image.rgb, 61, 37, 3, o, false, kind == 3);
                assert_rows(&b, EK_ALPHA_DROP, size[i][0], size[i][1]);
                ek_buf_fini(&b);
            }
    ek_image_free(&image);
}

static void every_decoder_goes_through_rows(void **state)
{
    (void)state;
    ek_image image = draw(50, 40);
    uint8_t *rgba = malloc(4 * 50 * 40);
    for (int i = 0; i < 4 * 50 * 40; i++) rgba[i] = (uint8_t)(i * 7 + (i >> 5));
    for (int kind = 0; kind < 12; kind++) {
        ek_buf b = {0};
        switch (kind) {
        case 0: put_webp(&b, &image); break;
        case 1: put_webp_still(&b, &image, 6); break;
        case 2: put_webp_animated(&b, &image); break;
        case 3:
        case 4: put_gif(&b, 60, 50, 4, 7, 40, 30, kind == 4, -1); break;
        case 5:
        case 6: put_gif(&b, 60, 50, 4, 7, 40, 30, kind == 6, 3); break;
        case 7:
        case 8: put_png(&b, rgba, 50, 40, PNG_COLOR_TYPE_RGB_ALPHA, 8, kind == 8, 5); break;
        case 9: put_jpeg(&b, image.rgb, 50, 40, 1, 0, false, false); break;
        case 10: put_jpeg(&b, rgba, 50, 40, 4, 7, false, false); break;
        default: put_png(&b, image.rgb, 50, 40, PNG_COLOR_TYPE_GRAY, 8, false, 0);
        }
        for (int alpha = 0; alpha < 2; alpha++) {
            assert_rows(&b, (ek_alpha)alpha, 33, 21);
            assert_rows(&b, (ek_alpha)alpha, 90, 70);
        }
        ek_buf_fini(&b);
    }
    free(rgba);
    ek_image_free(&image);
}

/* A file that ends early gives nothing at all. */
static void a_cut_file_leaves_nothing(void **state)
{
    (void)state;
    ek_image image = draw(64, 64), got;
    ek_picture p;
    const ek_picture_opts o = {.budget = 70};
    for (int kind = 0; kind < 2; kind++) {
        ek_buf b = {0};
        if (kind == 0) put_png(&b, image.rgb, 64, 64, PNG_COLOR_TYPE_RGB, 8, false, 0);
        else put_jpeg(&b, image.rgb, 64, 64, 3, 0, false, false);
        assert_int_equal(ek_image_decode_resized(&got, b.data, b.len / 2, NULL, EK_ALPHA_DROP, 48, 48, EK_RESIZE_TORCH),
                         EK_EPARSE);
        assert_null(got.rgb);
        assert_int_equal(ek_picture_read(&p, b.data, b.len / 2, &o), EK_EPARSE);
        assert_null(p.image.rgb);
        ek_buf_fini(&b);
    }
    ek_image_free(&image);
}

/* --- memory --- */

enum { SIDE = 8000 }; /* SIDE x SIDE is as many pixels as there may be */

/* A malloc that keeps freed memory would give the same 64 MB to what is measured, which then seems to take none. */
static void put_large(ek_buf *to, int kind, int orientation)
{
    uint8_t *grey = ek_alloc_big((size_t)SIDE * SIDE);
    assert_non_null(grey);
    for (size_t i = 0; i < (size_t)SIDE * SIDE; i++) grey[i] = (uint8_t)(i >> 12);
    if (kind == 0) put_png(to, grey, SIDE, SIDE, PNG_COLOR_TYPE_GRAY, 8, false, orientation);
    else put_jpeg(to, grey, SIDE, SIDE, 1, orientation, false, false);
    ek_free_big(grey, (size_t)SIDE * SIDE);
}

/* kB of a line of /proc/self/status. */
static size_t status_kb(const char *name)
{
    char line[256];
    size_t kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, name, strlen(name))) kb = strtoul(line + strlen(name), NULL, 10);
    if (f) fclose(f);
    return kb;
}

/* Bytes that reading takes at its peak, in a process of its own; what it was told it would be comes with it. */
static size_t peak_of(const ek_buf *file, size_t *reported)
{
    int p[2];
    assert_int_equal(pipe(p), 0);
    pid_t pid = fork();
    if (pid == 0) {
        const ek_picture_opts o = {.budget = 280};
        ek_picture_cost cost;
        ek_picture picture;
        size_t out[2] = {0, 0};
        int reset = open("/proc/self/clear_refs", O_WRONLY);
        const size_t before = status_kb("VmRSS:");
        bool good = reset >= 0 && write(reset, "5", 1) == 1 &&
                    ek_picture_probe(&cost, file->data, file->len, &o) == EK_OK &&
                    ek_picture_read(&picture, file->data, file->len, &o) == EK_OK;
        if (good) out[0] = (status_kb("VmHWM:") - before) << 10, out[1] = cost.memory;
        good = write(p[1], out, sizeof out) == sizeof out && good;
        _exit(!good);
    }
    size_t got[2] = {0, 0};
    int status = 1;
    assert_int_equal(read(p[0], got, sizeof got), sizeof got);
    waitpid(pid, &status, 0);
    close(p[0]), close(p[1]);
    assert_int_equal(status, 0);
    *reported = got[1];
    return got[0];
}

static void the_largest_picture_is_never_whole(void **state)
{
    (void)state;
#ifdef EK_SANITIZED
    skip();
#endif
    const size_t mib = (size_t)1 << 20;
    for (int kind = 0; kind < 2; kind++) {
        const int o = kind ? 6 : 1;
        ek_buf b = {0};
        size_t reported;
        put_large(&b, kind, o);
        const size_t peak = peak_of(&b, &reported);
        printf("measured: %s of 64,000,000 pixels, orientation %d: %.1f MiB, at most %.1f were told\n",
               kind ? "JPEG" : "PNG", o, (double)peak / (double)mib, (double)reported / (double)mib);
        assert_true(reported < 12 * mib);       /* as RGB it has 183 */
        assert_true(peak < reported + 4 * mib); /* pages of code that are touched for the first time */
        ek_buf_fini(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turned_pictures_are_resized_alike),
        cmocka_unit_test(every_decoder_goes_through_rows),
        cmocka_unit_test(a_cut_file_leaves_nothing),
        cmocka_unit_test(the_largest_picture_is_never_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
