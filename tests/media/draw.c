#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gif_lib.h>
#include <jpeglib.h>
#include <png.h>
#include <webp/encode.h>

#include "draw.h"

ek_image draw(int width, int height)
{
    ek_image out;
    assert_int_equal(ek_image_make(&out, width, height), EK_OK);
    uint8_t *p = out.rgb;
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < 3; c++) *p++ = (uint8_t)(7 * x + 13 * y + 29 * c + (x * y >> 3));
    return out;
}

static void add_png(png_structp png, png_bytep p, size_t n)
{
    ek_buf_add(png_get_io_ptr(png), p, n);
}

static void flush_png(png_structp png)
{
    (void)png;
}

void put_png(ek_buf *to, const uint8_t *rows, int width, int height, int type, int depth, bool interlaced, int exif)
{
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    if (setjmp(png_jmpbuf(png))) fail_msg("libpng does not write");
    png_set_write_fn(png, to, add_png, flush_png);
    png_set_IHDR(png, info, (unsigned)width, (unsigned)height, depth, type, interlaced, 0, 0);
    png_color palette[256];
    for (int i = 0; i < 256; i++) palette[i] = (png_color){(uint8_t)i, (uint8_t)(2 * i), (uint8_t)(255 - i)};
    if (type == PNG_COLOR_TYPE_PALETTE) {
        uint8_t clear[2] = {0, 128};
        png_set_PLTE(png, info, palette, 1 << depth);
        png_set_tRNS(png, info, clear, 2, NULL);
    }
    uint8_t tiff[] = {'M', 'M', 0, '*',           0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0,
                      0,   1,   0, (uint8_t)exif, 0, 0, 0, 0, 0, 0};
    if (exif) png_set_eXIf_1(png, info, sizeof tiff, tiff);
    png_write_info(png, info);
    int passes = png_set_interlace_handling(png);
    size_t stride = png_get_rowbytes(png, info);
    for (int pass = 0; pass < passes; pass++)
        for (int y = 0; y < height; y++) png_write_row(png, rows + (size_t)y * stride);
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
}

void put_jpeg(ek_buf *to, const uint8_t *px, int width, int height, int components, int orientation, bool motorola,
              bool progressive)
{
    struct jpeg_compress_struct j;
    struct jpeg_error_mgr errors;
    uint8_t *out = NULL;
    unsigned long n = 0;
    j.err = jpeg_std_error(&errors);
    jpeg_create_compress(&j);
    jpeg_mem_dest(&j, &out, &n);
    j.image_width = (unsigned)width, j.image_height = (unsigned)height, j.input_components = components;
    j.in_color_space = components == 1 ? JCS_GRAYSCALE : components == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&j);
    jpeg_set_quality(&j, 100, TRUE);
    if (progressive) jpeg_simple_progression(&j);
    jpeg_start_compress(&j, TRUE);
    uint8_t o = (uint8_t)orientation;
    uint8_t exif[] = {'E', 'x', 'i', 'f', 0, 0, 'M', 'M',  0, '*', 0, 0, 0, 8, 0, 2, 1, 0x0F, 0, 2, 0, 0,
                      0,   1,   'a', 0,   0, 0, 1,   0x12, 0, 3,   0, 0, 0, 1, 0, o, 0, 0,    0, 0, 0, 0};
    uint8_t intel[] = {'E',  'x', 'i', 'f', 0, 0, 'I', 'I', '*', 0, 8, 0, 0, 0, 1, 0,
                       0x12, 1,   3,   0,   1, 0, 0,   0,   o,   0, 0, 0, 0, 0, 0, 0};
    if (orientation && motorola) jpeg_write_marker(&j, JPEG_APP0 + 1, exif, sizeof exif);
    if (orientation && !motorola) jpeg_write_marker(&j, JPEG_APP0 + 1, intel, sizeof intel);
    for (int y = 0; y < height; y++) {
        uint8_t *row = (uint8_t *)(uintptr_t)px + (size_t)y * (size_t)width * (size_t)components;
        jpeg_write_scanlines(&j, &row, 1);
    }
    jpeg_finish_compress(&j);
    jpeg_destroy_compress(&j);
    ek_buf_add(to, out, n);
    free(out);
}

void put_webp(ek_buf *to, const ek_image *image)
{
    uint8_t *out = NULL;
    size_t n = WebPEncodeLosslessRGB(image->rgb, image->width, image->height, 3 * image->width, &out);
    assert_true(n > 0);
    ek_buf_add(to, out, n);
    WebPFree(out);
}

static void le(ek_buf *to, size_t v, int n)
{
    for (int i = 0; i < n; i++) ek_buf_char(to, (char)(v >> 8 * i));
}

static void put_chunk(ek_buf *to, const char *name, const void *data, size_t n)
{
    ek_buf_str(to, name);
    le(to, n, 4);
    ek_buf_add(to, data, n);
    if (n & 1) ek_buf_char(to, '\0');
}

static void begin_webp(ek_buf *to, int flags, int width, int height)
{
    ek_buf canvas = {0};
    ek_buf_add(to, "RIFF\0\0\0\0WEBP", 12);
    le(&canvas, (size_t)flags, 4), le(&canvas, (size_t)width - 1, 3), le(&canvas, (size_t)height - 1, 3);
    put_chunk(to, "VP8X", canvas.data, canvas.len);
    ek_buf_fini(&canvas);
}

static void end_webp(ek_buf *to)
{
    for (int i = 0; i < 4; i++) to->data[4 + i] = (char)((to->len - 8) >> 8 * i);
}

void put_webp_still(ek_buf *to, const ek_image *image, int orientation)
{
    ek_buf simple = {0};
    uint8_t tiff[] = {'M', 'M', 0, '*', 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0, (uint8_t)orientation, 0, 0};
    put_webp(&simple, image);
    begin_webp(to, 8, image->width, image->height);
    ek_buf_add(to, simple.data + 12, simple.len - 12);
    put_chunk(to, "EXIF", tiff, sizeof tiff);
    end_webp(to);
    ek_buf_fini(&simple);
}

void put_webp_animated(ek_buf *to, const ek_image *image)
{
    ek_buf simple = {0}, frame = {0};
    put_webp(&simple, image);
    begin_webp(to, 2, image->width + 6, image->height + 8);
    put_chunk(to, "ANIM", "\xFF\xFF\xFF\xFF\0\0", 6);
    for (int i = 0; i < 2; i++) {
        ek_buf_clear(&frame);
        le(&frame, i ? 0 : 1, 3), le(&frame, i ? 0 : 2, 3); /* in steps of two pixels */
        le(&frame, (size_t)image->width - 1, 3), le(&frame, (size_t)image->height - 1, 3), le(&frame, 100, 3),
            le(&frame, 0, 1);
        ek_buf_add(&frame, simple.data + 12, simple.len - 12);
        put_chunk(to, "ANMF", frame.data, frame.len);
    }
    end_webp(to);
    ek_buf_fini(&simple);
    ek_buf_fini(&frame);
}

static int add_gif(GifFileType *gif, const GifByteType *p, int n)
{
    ek_buf_add(gif->UserData, p, (size_t)n);
    return n;
}

void put_gif(ek_buf *to, int screen_w, int screen_h, int left, int top, int width, int height, bool interlaced,
             int transparent)
{
    static const int first[] = {0, 4, 2, 1}, apart[] = {8, 8, 4, 2};
    GifColorType colours[16];
    for (int i = 0; i < 16; i++) colours[i] = (GifColorType){(uint8_t)i, (uint8_t)(2 * i), (uint8_t)(255 - i)};
    int code;
    GifFileType *gif = EGifOpen(to, add_gif, &code);
    ColorMapObject *map = GifMakeMapObject(16, colours);
    assert_int_equal(EGifPutScreenDesc(gif, screen_w, screen_h, 8, 0, map), GIF_OK);
    uint8_t control[] = {1, 0, 0, (uint8_t)transparent};
    if (transparent >= 0) assert_int_equal(EGifPutExtension(gif, GRAPHICS_EXT_FUNC_CODE, 4, control), GIF_OK);
    assert_int_equal(EGifPutImageDesc(gif, left, top, width, height, interlaced, NULL), GIF_OK);
    uint8_t line[4096];
    for (int pass = 0; pass < (interlaced ? 4 : 1); pass++)
        for (int y = interlaced ? first[pass] : 0; y < height; y += interlaced ? apart[pass] : 1) {
            for (int x = 0; x < width; x++) line[x] = (uint8_t)((x + 3 * y) % 16);
            assert_int_equal(EGifPutLine(gif, line, width), GIF_OK);
        }
    assert_int_equal(EGifCloseFile(gif, &code), GIF_OK);
    GifFreeMapObject(map);
}

void put_wav(ek_buf *to, unsigned codec, unsigned channels, unsigned rate, unsigned bits, const void *data, size_t n)
{
    ek_buf_str(to, "RIFF");
    le(to, (uint32_t)(36 + n), 4);
    ek_buf_str(to, "WAVEfmt ");
    le(to, 16, 4), le(to, codec, 2), le(to, channels, 2), le(to, rate, 4);
    le(to, rate * channels * bits / 8, 4), le(to, channels * bits / 8, 2), le(to, bits, 2);
    ek_buf_str(to, "data");
    le(to, (uint32_t)n, 4);
    ek_buf_add(to, data, n);
}

void assert_pixels(const ek_buf *file, const ek_image *want)
{
    ek_image_info info;
    ek_image got;
    if (ek_image_probe(&info, file->data, file->len)) fail_msg("%s", ek_err_text());
    if (ek_image_decode(&got, file->data, file->len, EK_ALPHA_DROP)) fail_msg("%s", ek_err_text());
    assert_int_equal(info.width, want->width);
    assert_int_equal(info.height, want->height);
    assert_int_equal(got.width, want->width);
    assert_int_equal(got.height, want->height);
    assert_memory_equal(got.rgb, want->rgb, ek_image_bytes(want));
    assert_true(info.memory >= ek_image_bytes(want));
    ek_image_free(&got);
}

void assert_refused(const ek_buf *file, ek_err err, const char *words, bool header)
{
    ek_image got;
    ek_image_info info;
    assert_int_equal(ek_image_decode(&got, file->data, file->len, EK_ALPHA_DROP), err);
    assert_null(got.rgb);
    if (!strstr(ek_err_text(), words)) fail_msg("\"%s\" says nothing of \"%s\"", ek_err_text(), words);
    assert_null(strchr(ek_err_text(), '\n'));
    if (header) assert_int_equal(ek_image_probe(&info, file->data, file->len), err);
}
