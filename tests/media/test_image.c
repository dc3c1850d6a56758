/* Each decoder against pixels that were drawn, and each limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include <png.h>
#include <math.h>
#include <webp/encode.h>

#include "base/hash/hash.h"
#include "draw.h"
#include "media/header.h"
#include "media/limits.h"
#include "media/locked/helper.h"

/* What a viewer shows of a stored picture, by the sentences of EXIF 2.3: where row 0 and column 0 lie. */
static ek_image upright(const ek_image *in, int orientation)
{
    int w = in->width, h = in->height;
    ek_image out = draw(orientation < 5 ? w : h, orientation < 5 ? h : w);
    for (int y = 0; y < out.height; y++)
        for (int x = 0; x < out.width; x++) {
            int from_x[] = {x, w - 1 - x, w - 1 - x, x, y, y, w - 1 - y, w - 1 - y};
            int from_y[] = {y, y, h - 1 - y, h - 1 - y, x, h - 1 - x, h - 1 - x, x};
            int i = orientation - 1;
            memcpy(out.rgb + 3 * (x + y * out.width), in->rgb + 3 * (from_x[i] + from_y[i] * w), 3);
        }
    return out;
}

static void orientations_turn_upright(void **state)
{
    (void)state;
    ek_image image = draw(13, 7);
    for (int o = 1; o <= 8; o++)
        for (int interlaced = 0; interlaced < 2; interlaced++) {
            ek_buf b = {0};
            ek_image want = upright(&image, o);
            put_png(&b, image.rgb, 13, 7, PNG_COLOR_TYPE_RGB, 8, interlaced, o);
            assert_pixels(&b, &want);
            ek_image_free(&want);
            ek_buf_fini(&b);
        }
    ek_image_free(&image);
}

static void jpegs_turn_by_either_byte_order(void **state)
{
    (void)state;
    ek_image image = draw(24, 17), stored;
    for (int o = 0; o <= 9; o++)
        for (int motorola = 0; motorola < 2; motorola++) {
            ek_buf plain = {0}, turned = {0};
            put_jpeg(&plain, image.rgb, 24, 17, 3, 0, false, o & 1);
            put_jpeg(&turned, image.rgb, 24, 17, 3, o, motorola, o & 1);
            assert_int_equal(ek_image_decode(&stored, plain.data, plain.len, EK_ALPHA_DROP), EK_OK);
            ek_image want = upright(&stored, o < 1 || o > 8 ? 1 : o);
            assert_pixels(&turned, &want);
            ek_image_free(&want);
            ek_image_free(&stored);
            ek_buf_fini(&plain);
            ek_buf_fini(&turned);
        }
    ek_image_free(&image);
}

static void exif_is_bounded(void **state)
{
    (void)state;
    uint8_t t[] = {'I', 'I', '*', 0, 8, 0, 0, 0, 255, 255, 0x12, 1, 3, 0, 1, 0, 0, 0, 6, 0, 0, 0};
    assert_int_equal(ek_exif_orientation(t, sizeof t), 6);
    for (size_t n = 0; n < sizeof t; n++) {
        uint8_t *exact = malloc(n + 1); /* so that a sanitizer sees a read beyond the end */
        memcpy(exact, t, n);
        assert_int_equal(ek_exif_orientation(exact, n), 0);
        free(exact);
    }
    t[4] = 255, t[5] = 255, t[6] = 255, t[7] = 255;
    assert_int_equal(ek_exif_orientation(t, sizeof t), 0);
}

/* Each colour type and depth: what it means in RGB, by the rules of image.h. */
static void png_colours(void **state)
{
    (void)state;
    enum { W = 16, H = 5 };
    static const struct {
        int type, depth, channels;
    } kind[] = {{0, 1, 1}, {0, 2, 1}, {0, 4, 1}, {0, 8, 1}, {0, 16, 1}, {2, 8, 3}, {2, 16, 3}, {3, 1, 1},
                {3, 2, 1}, {3, 4, 1}, {3, 8, 1}, {4, 8, 2}, {4, 16, 2}, {6, 8, 4}, {6, 16, 4}};
    for (size_t k = 0; k < sizeof kind / sizeof *kind; k++)
        for (int interlaced = 0; interlaced < 2; interlaced++) {
            int type = kind[k].type, depth = kind[k].depth, channels = kind[k].channels;
            uint8_t rows[W * H * 8] = {0};
            size_t bit = 0;
            ek_image want = draw(W, H);
            for (int i = 0; i < W * H; i++) {
                unsigned v[4];
                for (int c = 0; c < channels; c++, bit += (size_t)depth) {
                    v[c] = ((unsigned)i * 2654435u + (unsigned)c * 40503u) >> 3 & ((1u << depth) - 1);
                    for (int b = 0; b < depth; b++)
                        rows[(bit + (size_t)b) / 8] |= (uint8_t)((v[c] >> (depth - 1 - b) & 1)
                                                                 << (7 - (bit + (size_t)b) % 8));
                }
                for (int c = 0; c < 3; c++) {
                    unsigned s = v[channels < 3 ? 0 : c];
                    unsigned palette[] = {v[0], 2 * v[0], 255 - v[0]};
                    want.rgb[3 * i + c] = (uint8_t)(type == 3     ? palette[c]
                                                    : depth == 16 ? s >> 8
                                                    : depth == 8  ? s
                                                                  : s * 255 / ((1u << depth) - 1));
                }
            }
            ek_buf b = {0};
            put_png(&b, rows, W, H, type, depth, interlaced, 0);
            assert_pixels(&b, &want);
            ek_buf_fini(&b);
            ek_image_free(&want);
        }
}

static void assert_on_white(const ek_buf *file, const uint8_t *want, size_t n)
{
    ek_image got;
    if (ek_image_decode(&got, file->data, file->len, EK_ALPHA_WHITE)) fail_msg("%s", ek_err_text());
    assert_int_equal(ek_image_bytes(&got), n);
    for (size_t i = 0; i < n; i++)
        if (got.rgb[i] != want[i]) fail_msg("sample %zu is %d, should be %d", i, got.rgb[i], want[i]);
    ek_image_free(&got);
}

static uint8_t on_white(unsigned v, unsigned alpha)
{
    return (uint8_t)floor((v * alpha + 255.0 * (255 - alpha)) / 255.0 + 0.5);
}

/* A chunk before the pixels, as encoders write tRNS. */
static void put_chunk(ek_buf *png, const char *name, const uint8_t *data, size_t n)
{
    ek_buf b = {0};
    size_t at = 8;
    while (memcmp(png->data + at + 4, "IDAT", 4) != 0) at += 12 + ek_be32((uint8_t *)png->data + at);
    ek_buf_add(&b, png->data, at);
    const uint8_t size[] = {0, 0, (uint8_t)(n >> 8), (uint8_t)n};
    ek_buf_add(&b, size, 4);
    const size_t from = b.len;
    ek_buf_add(&b, name, 4);
    ek_buf_add(&b, data, n);
    const uint32_t crc = ek_crc32(0, b.data + from, 4 + n);
    ek_buf_add(&b, (uint8_t[]){(uint8_t)(crc >> 24), (uint8_t)(crc >> 16), (uint8_t)(crc >> 8), (uint8_t)crc}, 4);
    ek_buf_add(&b, png->data + at, png->len - at);
    ek_buf_fini(png);
    *png = b;
}

/* Every kind of transparency, interlaced, turned and 16 bits deep too; without any the picture is what it was. */
static void transparency_on_white(void **state)
{
    (void)state;
    enum { W = 16, H = 16 };
    static const int kind[][2] = {{4, 8}, {4, 16}, {6, 8}, {6, 16}, {2, 8}, {3, 8}};
    for (size_t k = 0; k < sizeof kind / sizeof *kind; k++)
        for (int interlaced = 0; interlaced < 2; interlaced++)
            for (int orientation = 0; orientation <= 3; orientation += 3) {
                const int type = kind[k][0], bytes = kind[k][1] / 8;
                const int channels = type == 4 ? 2 : type == 6 ? 4 : type == 2 ? 3 : 1;
                uint8_t rows[W * H * 8] = {0}, want[W * H * 3];
                for (int i = 0; i < W * H; i++) {
                    unsigned v[4], at = (unsigned)(orientation == 3 ? W * H - 1 - i : i);
                    for (int c = 0; c < channels; c++) {
                        v[c] = ((unsigned)i * 2654435u + (unsigned)c * 40503u) >> 3 & 255;
                        if (type == 2) v[c] = i % 7 == 0 ? 77 : v[c];
                        if (type == 3 && i % 5 < 2) v[c] = (unsigned)i % 5;
                        rows[(i * channels + c) * bytes] = (uint8_t)v[c];
                    }
                    unsigned alpha = type == 4 ? v[1] : type == 6 ? v[3] : 255;
                    if (type == 3) alpha = v[0] == 0 ? 0 : v[0] == 1 ? 128 : 255; /* as put_png writes them */
                    if (type == 2 && v[0] == 77 && v[1] == 77 && v[2] == 77) alpha = 0;
                    const unsigned palette[] = {v[0], 2 * v[0] & 255, 255 - v[0]};
                    for (int c = 0; c < 3; c++)
                        want[3 * at + (unsigned)c] = on_white(type == 3 ? palette[c] : type == 4 ? v[0] : v[c], alpha);
                }
                ek_buf b = {0};
                put_png(&b, rows, W, H, type, kind[k][1], interlaced, orientation);
                if (type == 2) put_chunk(&b, "tRNS", (uint8_t[]){0, 77, 0, 77, 0, 77}, 6);
                assert_on_white(&b, want, sizeof want);
                ek_buf_fini(&b);
            }
    ek_image plain = draw(W, H);
    uint8_t rgba[W * H * 4], want[W * H * 3], *webp;
    for (int i = 0; i < W * H; i++) {
        memcpy(rgba + 4 * i, plain.rgb + 3 * i, 3), rgba[4 * i + 3] = (uint8_t)(i * 3);
        for (int c = 0; c < 3; c++) want[3 * i + c] = on_white(rgba[4 * i + c], rgba[4 * i + 3]);
    }
    ek_buf b = {0};
    size_t n = WebPEncodeLosslessRGBA(rgba, W, H, 4 * W, &webp);
    ek_buf_add(&b, webp, n);
    WebPFree(webp);
    assert_on_white(&b, want, sizeof want);
    for (int i = 0; i < 6; i++) { /* of no transparency */
        ek_buf_clear(&b);
        if (i < 2) put_png(&b, plain.rgb, W, H, 2, 8, i, 0);
        else if (i == 2) put_webp(&b, &plain);
        else put_gif(&b, W, H, 0, 0, W, H, i == 4, i == 5 ? 9 : -1);
        if (i >= 3)
            for (int p = 0; p < W * H; p++) {
                const int index = (p % W + 3 * (p / W)) % 16;
                memcpy(want + 3 * p, (uint8_t[]){(uint8_t)index, (uint8_t)(2 * index), (uint8_t)(255 - index)}, 3);
                if (i == 5 && index == 9) memset(want + 3 * p, 255, 3);
            }
        assert_on_white(&b, i < 3 ? plain.rgb : want, sizeof want);
    }
    ek_buf_clear(&b);
    put_webp_animated(&b, &plain); /* at (2, 4) of a canvas that is larger by 6 and 8 */
    uint8_t canvas[(W + 6) * (H + 8) * 3];
    memset(canvas, 255, sizeof canvas);
    for (int y = 0; y < H; y++) memcpy(canvas + 3 * ((y + 4) * (W + 6) + 2), plain.rgb + 3 * y * W, 3 * W);
    assert_on_white(&b, canvas, sizeof canvas);
    ek_buf_fini(&b);
    ek_image_free(&plain);
}

/* Grey and CMYK of one value are exact: a block with a constant term alone. */
static void jpeg_colours(void **state)
{
    (void)state;
    ek_image grey = draw(16, 16), print = draw(16, 16);
    uint8_t g[16 * 16], cmyk[16 * 16 * 4];
    memset(g, 200, sizeof g);
    memset(grey.rgb, 200, 3 * sizeof g);
    for (int i = 0; i < 16 * 16; i++) { /* Adobe's: 255 - ink; ink (0, 64, 128, 32) */
        memcpy(cmyk + 4 * i, (uint8_t[]){255, 191, 127, 223}, 4);
        memcpy(print.rgb + 3 * i, (uint8_t[]){223, 167, 111}, 3);
    }
    ek_buf a = {0}, b = {0};
    put_jpeg(&a, g, 16, 16, 1, 0, false, false);
    put_jpeg(&b, cmyk, 16, 16, 4, 0, false, false);
    assert_pixels(&a, &grey);
    assert_pixels(&b, &print);
    ek_buf_fini(&a);
    ek_buf_fini(&b);
    ek_image_free(&grey);
    ek_image_free(&print);
}

static void webp_without_loss(void **state)
{
    (void)state;
    ek_image image = draw(61, 33);
    ek_buf b = {0};
    put_webp(&b, &image);
    assert_pixels(&b, &image);
    ek_buf_fini(&b);
    ek_image_free(&image);
}

static void webp_containers(void **state)
{
    (void)state;
    ek_image image = draw(21, 10);
    for (int o = 1; o <= 8; o++) {
        ek_buf b = {0};
        ek_image want = upright(&image, o), got;
        put_webp_still(&b, &image, o);
        assert_pixels(&b, &want);
        for (size_t n = 0; n < b.len; n++) assert_int_not_equal(ek_image_decode(&got, b.data, n, EK_ALPHA_DROP), EK_OK);
        ek_image_free(&want);
        ek_buf_fini(&b);
    }
    ek_buf b = {0};
    ek_image want = draw(27, 18);
    memset(want.rgb, 0, ek_image_bytes(&want));
    for (int y = 0; y < 10; y++) memcpy(want.rgb + 3 * (2 + (y + 4) * 27), image.rgb + 3 * 21 * y, 3 * 21);
    put_webp_animated(&b, &image);
    assert_pixels(&b, &want);
    ek_image_info info;
    assert_int_equal(ek_image_probe(&info, b.data, b.len), EK_OK);
    assert_true(info.animated);
    ek_image_free(&want);
    ek_image_free(&image);
    ek_buf_fini(&b);
}

/* Lossy: each sample near what was drawn. Every cut file fails or shows the same picture. */
static void heic_and_avif(void **state)
{
    (void)state;
#ifndef EK_HAVE_HEIF
    skip();
#else
    ek_image image = draw(64, 48);
    for (int i = 0; i < 64 * 48; i++) memcpy(image.rgb + 3 * i, (uint8_t[]){(uint8_t)(40 + i % 64), 90, 160}, 3);
    int made = 0;
    for (int k = 0; k < 2; k++) {
        ek_buf b = {0};
        ek_image got, part;
        ek_image_info info;
        if (!put_heif(&b, &image, NULL, k == 1)) continue;
        made++;
        if (ek_image_probe(&info, b.data, b.len) || ek_image_decode(&got, b.data, b.len, EK_ALPHA_DROP))
            fail_msg("%s", ek_err_text());
        assert_string_equal(info.format, k ? "AVIF" : "HEIC");
        assert_int_equal(info.width, 64);
        assert_int_equal(got.height, 48);
        for (size_t i = 0; i < ek_image_bytes(&got); i++) assert_true(abs(got.rgb[i] - image.rgb[i]) < 12);
        for (size_t n = 0; n < b.len; n += 1 + n / 32)
            if (ek_image_decode(&part, b.data, n, EK_ALPHA_DROP) == EK_OK) ek_image_free(&part);
        ek_image_free(&got);
        ek_buf_fini(&b);
    }
    ek_image_free(&image);
    if (!made) skip();
#endif
}

/* Where alpha is part of the file, in areas that survive compression. */
static void heif_transparency_on_white(void **state)
{
    (void)state;
#ifndef EK_HAVE_HEIF
    skip();
#else
    enum { W = 96, H = 64, OFF = 14 };
    static const uint8_t level[] = {0, 128, 255};
    ek_image image = draw(W, H);
    uint8_t alpha[W * H];
    int made = 0;
    for (int i = 0; i < W * H; i++) {
        memcpy(image.rgb + 3 * i, (uint8_t[]){200, 60, 120}, 3);
        alpha[i] = level[i % W / (W / 3)];
    }
    for (int k = 0; k < 2; k++) {
        ek_buf b = {0};
        ek_image dropped, white;
        if (!put_heif(&b, &image, alpha, k == 1)) continue;
        made++;
        if (ek_image_decode(&dropped, b.data, b.len, EK_ALPHA_DROP)) fail_msg("%s", ek_err_text());
        if (ek_image_decode(&white, b.data, b.len, EK_ALPHA_WHITE)) fail_msg("%s", ek_err_text());
        assert_true(dropped.width == W && dropped.height == H && white.width == W && white.height == H);
        for (int i = 0; i < W * H; i++) {
            if (i % W % (W / 3) < 4 || i % W % (W / 3) > W / 3 - 5) continue; /* borders are smeared */
            for (int c = 0; c < 3; c++) {
                const int v = image.rgb[3 * i + c], want = on_white((unsigned)v, alpha[i]);
                if (abs(dropped.rgb[3 * i + c] - v) > OFF || abs(white.rgb[3 * i + c] - want) > OFF)
                    fail_msg("%s, sample %d of pixel %d: %d dropped, %d on white; should be %d and %d",
                             k ? "AVIF" : "HEIC", c, i, dropped.rgb[3 * i + c], white.rgb[3 * i + c], v, want);
            }
        }
        ek_image_free(&dropped);
        ek_image_free(&white);
        ek_buf_fini(&b);
    }
    ek_image_free(&image);
    if (!made) skip();
#endif
}

/* A frame on its screen: what it does not cover has the transparent index, or index 0; one that reaches beyond
 * the screen makes it larger. */
static void gif_frames(void **state)
{
    (void)state;
    static const struct {
        int sw, sh, left, top, w, h, transparent;
    } c[] = {{9, 21, 0, 0, 9, 21, -1}, {12, 20, 2, 3, 7, 15, -1}, {12, 20, 2, 3, 7, 15, 5}, {4, 4, 1, 2, 8, 9, 3}};
    for (size_t k = 0; k < sizeof c / sizeof *c; k++)
        for (int interlaced = 0; interlaced < 2; interlaced++) {
            int w = c[k].left + c[k].w > c[k].sw ? c[k].left + c[k].w : c[k].sw;
            int h = c[k].top + c[k].h > c[k].sh ? c[k].top + c[k].h : c[k].sh;
            ek_image want = draw(w, h);
            for (int y = 0; y < h; y++)
                for (int x = 0; x < w; x++) {
                    int fx = x - c[k].left, fy = y - c[k].top;
                    bool in = fx >= 0 && fy >= 0 && fx < c[k].w && fy < c[k].h;
                    int i = in ? (fx + 3 * fy) % 16 : c[k].transparent >= 0 ? c[k].transparent : 0;
                    memcpy(want.rgb + 3 * (x + y * w), (uint8_t[]){(uint8_t)i, (uint8_t)(2 * i), (uint8_t)(255 - i)},
                           3);
                }
            ek_buf b = {0};
            put_gif(&b, c[k].sw, c[k].sh, c[k].left, c[k].top, c[k].w, c[k].h, interlaced, c[k].transparent);
            assert_pixels(&b, &want);
            ek_buf_fini(&b);
            ek_image_free(&want);
        }
}

static void make(ek_buf *b, int kind, const ek_image *image)
{
    int w = image->width, h = image->height;
    if (kind < 2) put_jpeg(b, image->rgb, w, h, 3, 0, false, kind == 1);
    else if (kind < 4) put_png(b, image->rgb, w, h, PNG_COLOR_TYPE_RGB, 8, kind == 3, 0);
    else if (kind == 4) put_webp(b, image);
    else put_gif(b, w, h, 0, 0, w, h, false, -1);
}

/* Every file cut at every place fails with one line, or is whole already. */
static void cut_files_fail(void **state)
{
    (void)state;
    ek_image image = draw(40, 24);
    for (int kind = 0; kind < 6; kind++) {
        ek_buf b = {0};
        ek_image whole, part;
        make(&b, kind, &image);
        assert_int_equal(ek_image_decode(&whole, b.data, b.len, EK_ALPHA_DROP), EK_OK);
        int failed = 0;
        for (size_t n = 0; n < b.len; n++) {
            char *exact = malloc(n + 1);
            memcpy(exact, b.data, n);
            if (ek_image_decode(&part, exact, n, EK_ALPHA_DROP)) failed++;
            else assert_memory_equal(part.rgb, whole.rgb, ek_image_bytes(&whole));
            ek_image_free(&part);
            free(exact);
        }
        /* A PNG is whole without its last chunk, of 12 bytes, and the checksum before it. */
        if (failed < (int)b.len - (kind == 2 || kind == 3 ? 16 : 8))
            fail_msg("kind %d: %d of %d cut files fail", kind, failed, (int)b.len);
        ek_image_free(&whole);
        ek_buf_fini(&b);
    }
    ek_image_free(&image);
}

static void put32(ek_buf *b, size_t at, uint32_t v)
{
    for (int i = 0; i < 4; i++) b->data[at + (size_t)i] = (char)(v >> (24 - 8 * i));
}

/* Sizes are refused from the header: nothing is left of the pictures but their first bytes. */
static void sizes_are_checked_first(void **state)
{
    (void)state;
    ek_image image = draw(8, 8);
    ek_buf png = {0}, jpeg = {0}, gif = {0};
    put_png(&png, image.rgb, 8, 8, PNG_COLOR_TYPE_RGB, 8, false, 0);
    put32(&png, 16, 30000), put32(&png, 20, 30000);
    png.len = 33;
    assert_refused(&png, EK_ETOOLARGE, "30000 x 30000 pixels, 900000000 together, at most 64000000", true);
    put32(&png, 16, 32769), put32(&png, 20, 1);
    assert_refused(&png, EK_ETOOLARGE, "32769 x 1 pixels, a side has at most 32768", true);
    put32(&png, 16, 0x80000000), put32(&png, 20, 0xFFFFFFFF);
    assert_refused(&png, EK_ETOOLARGE, "2147483648 x 4294967295", true);
    put32(&png, 16, 0), put32(&png, 20, 8);
    assert_refused(&png, EK_EPARSE, "0 x 8", true);
    put32(&png, 16, 8001), put32(&png, 20, 8000);
    assert_refused(&png, EK_ETOOLARGE, "64008000", true);
    ek_image_info info;
    put32(&png, 16, 8000), put32(&png, 20, 8000);
    assert_int_equal(ek_image_probe(&info, png.data, png.len), EK_OK);

    put_jpeg(&jpeg, image.rgb, 8, 8, 3, 0, false, false);
    for (size_t i = 0; i + 9 < jpeg.len; i++)
        if ((uint8_t)jpeg.data[i] == 0xFF && (uint8_t)jpeg.data[i + 1] == 0xC0) memset(jpeg.data + i + 5, 0xFF, 4);
    assert_refused(&jpeg, EK_ETOOLARGE, "65535 x 65535 pixels, a side has at most 32768", true);

    put_gif(&gif, 8, 8, 0, 0, 8, 8, false, -1);
    memset(gif.data + 6, 0x7F, 4);
    assert_refused(&gif, EK_ETOOLARGE, "32639 x 32639", true);
    ek_buf_fini(&png);
    ek_buf_fini(&jpeg);
    ek_buf_fini(&gif);
    ek_image_free(&image);
}

static void what_is_no_picture_is_refused(void **state)
{
    (void)state;
    ek_buf b = {0};
    assert_refused(&b, EK_EINVAL, "0 bytes", true);
    ek_buf_str(&b, "<svg/>");
    assert_refused(&b, EK_EINVAL, "3c 73 76 67; known are JPEG, PNG, WebP, GIF", true);
    ek_buf_clear(&b);
    char *large = calloc(EK_MEDIA_MAX_BYTES + 1, 1);
    ek_image_info info;
    assert_int_equal(ek_image_probe(&info, large, EK_MEDIA_MAX_BYTES + 1), EK_ETOOLARGE);
    assert_string_equal(ek_err_text(), "picture of 33554433 bytes, at most 33554432");
    free(large);
    ek_buf_add(&b,
               "\0\0\0\x18"
               "ftypheic\0\0\0\0mif1heic",
               24);
    ek_image got;
    ek_err err = ek_image_decode(&got, b.data, b.len, EK_ALPHA_DROP);
    assert_int_equal(err, strstr(ek_helper_formats(), "HEIC") ? EK_EPARSE : EK_EINVAL);
    ek_buf_fini(&b);
}

/* A progressive picture whose scans go on and on costs its decoder far more than its bytes. */
static void scans_are_bounded(void **state)
{
    (void)state;
    ek_image image = draw(16, 16);
    ek_buf b = {0}, many = {0};
    put_jpeg(&b, image.rgb, 16, 16, 3, 0, false, true);
    size_t last = b.len - 2;
    while ((uint8_t)b.data[last] != 0xFF || (uint8_t)b.data[last + 1] != 0xDA) last--;
    ek_buf_add(&many, b.data, b.len - 2);
    for (int i = 0; i < 500; i++) ek_buf_add(&many, b.data + last, b.len - 2 - last);
    ek_buf_add(&many, "\xFF\xD9", 2);
    assert_refused(&many, EK_EPARSE, "more than 64 scans", false);
    ek_buf_fini(&b);
    ek_buf_fini(&many);
    ek_image_free(&image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orientations_turn_upright),
        cmocka_unit_test(jpegs_turn_by_either_byte_order),
        cmocka_unit_test(exif_is_bounded),
        cmocka_unit_test(png_colours),
        cmocka_unit_test(transparency_on_white),
        cmocka_unit_test(jpeg_colours),
        cmocka_unit_test(webp_without_loss),
        cmocka_unit_test(webp_containers),
        cmocka_unit_test(heic_and_avif),
        cmocka_unit_test(heif_transparency_on_white),
        cmocka_unit_test(gif_frames),
        cmocka_unit_test(cut_files_fail),
        cmocka_unit_test(sizes_are_checked_first),
        cmocka_unit_test(what_is_no_picture_is_refused),
        cmocka_unit_test(scans_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
