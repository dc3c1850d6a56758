/* Where pictures say that they are to be turned, besides EXIF of a camera, and what may be damaged around their pixels:
 * the picture is the one that Pillow shows (exif_transpose, 12.3). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include <png.h>
#include <zlib.h>

#include "base/clock.h"
#include "base/hash/hash.h"
#include "draw.h"
#include "media/header.h"

enum { W = 24, H = 17 };

#define XMP(how) "<x:xmpmeta><rdf:Description " how "/></x:xmpmeta>"
#define RAW(o)   "\nexif\n      26\n4d4d002a000000080001\n0112000300000001000" #o "\n000000000000\n"

/* A chunk of n bytes at `at` of a PNG. */
static void insert(ek_buf *png, size_t at, const char *name, const void *data, size_t n)
{
    ek_buf b = {0};
    ek_buf_add(&b, png->data, at);
    for (int i = 24; i >= 0; i -= 8) ek_buf_char(&b, (char)(n >> i));
    ek_buf_str(&b, name);
    ek_buf_add(&b, data, n);
    const uint32_t crc = ek_crc32(0, b.data + at + 4, n + 4);
    for (int i = 24; i >= 0; i -= 8) ek_buf_char(&b, (char)(crc >> i));
    ek_buf_add(&b, png->data + at, png->len - at);
    ek_buf_fini(png);
    *png = b;
}

static void put_text(ek_buf *png, bool behind, const char *name, const char *key, const char *between, size_t n_between,
                     const char *text, bool packed)
{
    ek_buf b = {0};
    uint8_t *small = malloc(compressBound(strlen(text)));
    uLongf n = compressBound(strlen(text));
    assert_int_equal(compress(small, &n, (const Bytef *)text, strlen(text)), Z_OK);
    ek_buf_add(&b, key, strlen(key) + 1);
    ek_buf_add(&b, between, n_between);
    ek_buf_add(&b, packed ? (char *)small : text, packed ? n : strlen(text));
    insert(png, behind ? png->len - 12 : 33, name, b.data, b.len);
    free(small);
    ek_buf_fini(&b);
}

static int orientation_of(const ek_buf *file, const char *what)
{
    ek_image_info info;
    ek_image image;
    if (ek_image_probe(&info, file->data, file->len)) fail_msg("%s: %s", what, ek_err_text());
    if (ek_image_decode(&image, file->data, file->len, EK_ALPHA_DROP)) fail_msg("%s: %s", what, ek_err_text());
    assert_int_equal(image.width, info.orientation < 5 ? W : H);
    ek_image_free(&image);
    return info.orientation;
}

static void texts_of_png(void **state)
{
    (void)state;
    static const struct {
        const char *name, *key, *between;
        size_t n_between;
        const char *text;
        bool packed;
        int want;
    } rows[] = {
        {"tEXt", "Raw profile type exif", "", 0, RAW(6), false, 6},
        {"zTXt", "Raw profile type exif", "", 1, RAW(8), true, 8},
        {"iTXt", "Raw profile type exif", "\0\0en\0\0", 6, RAW(3), false, 3},
        {"iTXt", "Raw profile type exif", "\1\0\0\0", 4, RAW(5), true, 5},
        {"zTXt", "Raw profile type exif", "\1", 1, RAW(8), true, 1}, /* an unknown method */
        {"tEXt", "Raw profile type exif", "", 0, "\nexif\n26\nxyz", false, 1},
        {"tEXt", "Raw profile type exif", "", 0, "\nexif\n", false, 1},
        {"tEXt", "Raw profile type exif", "", 0, "", false, 1},
        {"tEXt", "Raw profile type exif", "", 0, RAW(9), false, 1},
        {"tEXt", "Raw profile type iptc", "", 0, RAW(6), false, 1},
        {"iTXt", "XML:com.adobe.xmp", "\0\0\0\0", 4, XMP("tiff:Orientation=\"6\""), false, 6},
        {"iTXt", "XML:com.adobe.xmp", "\1\0\0\0", 4, XMP("tiff:Orientation=\"7\""), true, 7},
        {"tEXt", "XML:com.adobe.xmp", "", 0, XMP("><tiff:Orientation>4</tiff:Orientation><a"), false, 4},
        {"zTXt", "XML:com.adobe.xmp", "", 1, XMP("tiff:Orientation=\"2\""), true, 2},
        {"iTXt", "XML:com.adobe.xmp", "\0\0\0\0", 4, XMP("tiff:Orientation='6'"), false, 1},
        {"iTXt", "XML:com.adobe.xmp", "\0\0\0\0", 4, XMP("tiff:Orientation=\"9\""), false, 1},
        {"iTXt", "XML:com.adobe.xmp", "\0\0\0\0", 4, XMP("tiff:OrientationX=\"6\" tiff:Orientation=\"3\""), false, 3},
        {"iTXt", "XML:com.adobe.xmp", "\0\0\0\0", 4, "tiff:Orientation=\"", false, 1},
        {"iTXt", "XML:com.adobe.xmp", "\0", 1, "", false, 1},
        {"iTXt", "Comment", "\0\0\0\0", 4, XMP("tiff:Orientation=\"6\""), false, 1},
    };
    ek_image image = draw(W, H);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int behind = 0; behind < 2; behind++)
            for (int exif = 0; exif < 10; exif++) {
                ek_buf b = {0};
                put_png(&b, image.rgb, W, H, PNG_COLOR_TYPE_RGB, 8, behind, exif);
                put_text(&b, behind, rows[i].name, rows[i].key, rows[i].between, rows[i].n_between, rows[i].text,
                         rows[i].packed);
                /* A chunk of EXIF counts first, also where its number is none. */
                const int want = exif == 0 ? rows[i].want : exif == 9 ? 1 : exif;
                const int got = orientation_of(&b, rows[i].text);
                if (got != want) fail_msg("%s of %s, EXIF %d: %d, not %d", rows[i].key, rows[i].name, exif, got, want);
                ek_buf_fini(&b);
            }
    /* XMP where EXIF is there and says nothing of it; EXIF in text before XMP. */
    ek_buf b = {0};
    put_png(&b, image.rgb, W, H, PNG_COLOR_TYPE_RGB, 8, false, 0);
    insert(&b, 33, "eXIf", "MM\0*\0\0\0\10\0\0\0\0\0\0", 14);
    put_text(&b, true, "iTXt", "XML:com.adobe.xmp", "\0\0\0\0", 4, XMP("tiff:Orientation=\"6\""), false);
    assert_int_equal(orientation_of(&b, "EXIF without it"), 6);
    ek_buf_clear(&b);
    put_png(&b, image.rgb, W, H, PNG_COLOR_TYPE_RGB, 8, false, 0);
    put_text(&b, false, "iTXt", "XML:com.adobe.xmp", "\0\0\0\0", 4, XMP("tiff:Orientation=\"6\""), false);
    put_text(&b, false, "tEXt", "Raw profile type exif", "", 0, RAW(8), false);
    assert_int_equal(orientation_of(&b, "both"), 8);
    ek_buf_fini(&b);
    ek_image_free(&image);
}

static void put_app1(ek_buf *jpeg, const char *head, size_t n_head, const char *text)
{
    ek_buf b = {0};
    const size_t n = 2 + n_head + strlen(text);
    ek_buf_add(&b, jpeg->data, 2);
    ek_buf_str(&b, "\xFF\xE1"), ek_buf_char(&b, (char)(n >> 8)), ek_buf_char(&b, (char)n);
    ek_buf_add(&b, head, n_head), ek_buf_str(&b, text);
    ek_buf_add(&b, jpeg->data + 2, jpeg->len - 2);
    ek_buf_fini(jpeg);
    *jpeg = b;
}

static void xmp_of_jpeg_and_webp(void **state)
{
    (void)state;
    static const char head[] = "http://ns.adobe.com/xap/1.0/";
    ek_image image = draw(W, H);
    for (int exif = 0; exif < 10; exif++) {
        ek_buf b = {0};
        put_jpeg(&b, image.rgb, W, H, 3, exif, true, false);
        put_app1(&b, head, sizeof head, XMP("tiff:Orientation=\"6\""));
        assert_int_equal(orientation_of(&b, "JPEG"), exif == 0 ? 6 : exif == 9 ? 1 : exif);
        ek_buf_clear(&b);
        if (exif) put_webp_still(&b, &image, exif);
        else put_webp_still(&b, &image, 1), memcpy(b.data + b.len - 30, "NONE", 4);
        const char text[] = XMP("tiff:Orientation=\"8\"") " ";
        const size_t n = (sizeof text - 1) & ~(size_t)1;
        ek_buf_str(&b, "XMP "), ek_buf_char(&b, (char)n), ek_buf_add(&b, "\0\0\0", 3), ek_buf_add(&b, text, n);
        b.data[4] = (char)(b.len - 8), b.data[5] = (char)((b.len - 8) >> 8);
        assert_int_equal(orientation_of(&b, "WebP"), exif == 0 ? 8 : exif == 9 ? 1 : exif);
        ek_buf_fini(&b);
    }
    ek_image_free(&image);
}

/* Chunks behind the pixels may be cut, damaged or absent, and anything may follow; the pixels may not. */
static void what_stands_behind_png(void **state)
{
    (void)state;
    ek_image image = draw(W, H);
    for (int interlaced = 0; interlaced < 2; interlaced++) {
        ek_buf b = {0}, cut = {0};
        put_png(&b, image.rgb, W, H, PNG_COLOR_TYPE_RGB, 8, interlaced, 0);
        const size_t end = b.len - 12; /* of the pixels with their checksum */
        for (size_t n = 0; n <= b.len; n++) {
            ek_image got;
            ek_buf_clear(&cut), ek_buf_add(&cut, b.data, n);
            char *exact = malloc(n + 1);
            memcpy(exact, b.data, n);
            const ek_err err = ek_image_decode(&got, exact, n, EK_ALPHA_DROP);
            if (n >= end - 4 && err) fail_msg("%zu of %zu bytes: %s", n, b.len, ek_err_text());
            if (n < end - 8 && !err) fail_msg("%zu of %zu bytes are read", n, b.len);
            if (!err) assert_memory_equal(got.rgb, image.rgb, ek_image_bytes(&image));
            ek_image_free(&got);
            free(exact);
        }
        static const char *const tails[] = {"garbage", "\0\0\0\7tEXtabc", "\0\0\0\0IEND1234", "\0\0\0\0IEN",
                                            "\xFF\xFF\xFF\xFFtEXt"};
        static const size_t lengths[] = {7, 11, 12, 7, 8};
        for (size_t k = 0; k < sizeof tails / sizeof *tails; k++) {
            ek_buf_clear(&cut), ek_buf_add(&cut, b.data, end), ek_buf_add(&cut, tails[k], lengths[k]);
            assert_pixels(&cut, &image);
            ek_buf_clear(&cut), ek_buf_add(&cut, b.data, b.len), ek_buf_add(&cut, tails[k], lengths[k]);
            assert_pixels(&cut, &image);
        }
        ek_buf_clear(&cut), ek_buf_add(&cut, b.data, b.len);
        cut.data[end - 1] ^= 1; /* the checksum of the pixels */
        assert_refused(&cut, EK_EPARSE, "CRC", false);
        ek_buf_clear(&cut), ek_buf_add(&cut, b.data, end - 2);
        cut.data[end - 8] ^= 1; /* that of zlib, where the chunk's is cut */
        assert_refused(&cut, EK_EPARSE, "damaged PNG", false);
        ek_buf_fini(&b), ek_buf_fini(&cut);
    }
    ek_image_free(&image);
}

/* The server reads headers on its own threads: time is linear in the file, however small its texts are. */
static void many_small_texts_of_png(void **state)
{
    (void)state;
    enum { N = 500000 };
    static const char text[] = "Raw profile type exif\0\nexif\n1\n00";
    ek_image image = draw(W, H);
    ek_buf b = {0}, c = {0};
    ek_image_info info;
    put_png(&b, image.rgb, W, H, PNG_COLOR_TYPE_RGB, 8, false, 0);
    ek_buf_add(&c, b.data, b.len);
    insert(&c, 33, "tEXt", text, sizeof text - 1);
    const size_t n = c.len - b.len;
    ek_buf chunk = {0};
    ek_buf_add(&chunk, c.data + 33, n);
    ek_buf_clear(&c), ek_buf_add(&c, b.data, 33);
    for (int i = 0; i < N; i++) ek_buf_add(&c, chunk.data, n);
    ek_buf_add(&c, b.data + 33, b.len - 33);
    const double begin = ek_thread_time();
    assert_int_equal(ek_image_probe(&info, c.data, c.len), EK_OK);
    const double took = ek_thread_time() - begin;
    print_message("measured: %d texts, %.1f MB, in %.1f ms\n", N, (double)c.len / 1e6, took * 1e3);
    assert_int_equal(info.orientation, 1);
    assert_true(took < 0.15);
    ek_image_free(&image);
    ek_buf_fini(&b), ek_buf_fini(&c), ek_buf_fini(&chunk);
}

static void stray_bytes_before_jpeg_markers(void **state)
{
    (void)state;
    static const char *const stray[] = {"\0", "abc", "\xFF\xFF", "\xFF\0", "a\xFF\0b\xFF"};
    static const size_t n[] = {1, 3, 2, 2, 5};
    ek_image image = draw(W, H), want;
    ek_buf b = {0}, c = {0};
    put_jpeg(&b, image.rgb, W, H, 3, 6, true, false);
    assert_int_equal(ek_image_decode(&want, b.data, b.len, EK_ALPHA_DROP), EK_OK);
    for (size_t at = 2; (uint8_t)b.data[at + 1] != 0xDA;
         at += 2 + ((size_t)(uint8_t)b.data[at + 2] << 8 | (uint8_t)b.data[at + 3]))
        for (size_t k = at == 2 ? 2 : 0; k < (at == 2 ? 3 : sizeof n / sizeof *n); k++) { /* FF D8 FF is the mark */
            ek_buf_clear(&c);
            ek_buf_add(&c, b.data, at), ek_buf_add(&c, stray[k], n[k]), ek_buf_add(&c, b.data + at, b.len - at);
            assert_pixels(&c, &want);
        }
    ek_image_free(&image), ek_image_free(&want);
    ek_buf_fini(&b), ek_buf_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_of_png),
        cmocka_unit_test(xmp_of_jpeg_and_webp),
        cmocka_unit_test(what_stands_behind_png),
        cmocka_unit_test(many_small_texts_of_png),
        cmocka_unit_test(stray_bytes_before_jpeg_markers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
