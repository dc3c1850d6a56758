#include "decode/decode.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/encoding.h"
#include "decode/image_read.h"
#include "decode/libraries.h"
#include "media/resize.h"

/* --- stored pixels to the place where they are shown --- */

/* The place of the stored picture's pixel (x, y) in the shown picture, for each orientation. */
static void place(const ek_image_sink *s, int x, int y, int *to_x, int *to_y)
{
    int right = s->width - 1 - x, below = s->height - 1 - y;
    switch (s->orientation) {
    case 2: *to_x = right, *to_y = y; break;
    case 3: *to_x = right, *to_y = below; break;
    case 4: *to_x = x, *to_y = below; break;
    case 5: *to_x = y, *to_y = x; break;
    case 6: *to_x = below, *to_y = x; break;
    case 7: *to_x = below, *to_y = right; break;
    case 8: *to_x = y, *to_y = right; break;
    default: *to_x = x, *to_y = y; break;
    }
}

void ek_sink_blend(uint8_t *to, const uint8_t *rgba, int n)
{
    for (int i = 0; i < n; i++, rgba += 4) {
        const unsigned a = rgba[3];
        for (int c = 0; c < 3; c++) {
            const unsigned v = rgba[c] * a + 255 * (255 - a) + 128;
            *to++ = (uint8_t)(((v >> 8) + v) >> 8);
        }
    }
}

void ek_sink_row(ek_image_sink *s, int y, const uint8_t *rgb)
{
    int x0, y0, x1, y1;
    EK_ASSERT(y == s->next);
    s->next++;
    if (s->resizing) {
        ek_resizing_row(s->resizing, rgb);
        return;
    }
    place(s, 0, y, &x0, &y0);
    place(s, 1, y, &x1, &y1);
    ptrdiff_t stride = s->out->width, step = 3 * ((x1 - x0) + (y1 - y0) * stride);
    uint8_t *to = s->out->rgb + 3 * (x0 + y0 * stride);
    if (step == 3) {
        memcpy(to, rgb, 3 * (size_t)s->width);
        return;
    }
    for (int x = 0; x < s->width; x++, to += step, rgb += 3) to[0] = rgb[0], to[1] = rgb[1], to[2] = rgb[2];
}

uint8_t *ek_sink_whole(ek_image_sink *s)
{
    if (s->orientation <= 1 && !s->resizing) return memset(s->out->rgb, 0, ek_image_bytes(s->out));
    s->whole = ek_alloc_big(3 * (size_t)s->width * (size_t)s->height);
    return s->whole;
}

/* Passes ek_sink_whole's pixels on if good, and frees the memory. */
static void sink_done(ek_image_sink *s, bool good)
{
    if (!s->whole) return;
    for (int y = 0; good && y < s->height; y++) ek_sink_row(s, y, s->whole + 3 * (size_t)y * (size_t)s->width);
    ek_free_big(s->whole, 3 * (size_t)s->width * (size_t)s->height);
    s->whole = NULL;
}

/* --- the decoder of a file, and the limits that all decoders share --- */

/* HEIC's reader is there without libheif, too, so that such a file is refused by name. */
static const struct {
    const ek_image_reader *reader;
    ek_library library;
    const char *formats;
} known[] = {
#ifdef EK_SO_JPEG
    {&ek_jpeg_reader, EK_LIBRARY_JPEG, "JPEG"},
#endif
#ifdef EK_SO_PNG
    {&ek_png_reader, EK_LIBRARY_PNG, "PNG"},
#endif
#ifdef EK_SO_WEBP
    {&ek_webp_reader, EK_LIBRARY_WEBP, "WebP"},
#endif
#ifdef EK_SO_GIF
    {&ek_gif_reader, EK_LIBRARY_GIF, "GIF"},
#endif
    {&ek_heif_reader, EK_LIBRARY_HEIF, "HEIC, AVIF"},
};
enum { KNOWN = sizeof known / sizeof *known };

void ek_decode_image_formats(ek_buf *out)
{
    ek_libraries_open();
    for (int i = 0, n = 0; i < KNOWN; i++)
        if (ek_library_there(known[i].library)) ek_buf_fmt(out, n++ ? ", %s" : "%s", known[i].formats);
}

static ek_err find(const ek_image_reader **out, ek_media_bytes file)
{
    EK_TRY(ek_media_check_bytes("picture", file.n));
    ek_libraries_open();
    for (int i = 0; i < KNOWN; i++) {
        char what[64];
        *out = known[i].reader;
        if (!known[i].reader->is(file)) continue;
        snprintf(what, sizeof what, "%s pictures", known[i].formats);
        return ek_library_need(known[i].library, what);
    }
    char begin[3 * 4 + 1] = "";
    for (size_t i = 0; i < 4 && i < file.n; i++) {
        ek_hex(begin + 3 * i, file.p + i, 1);
        if (i < 3 && i + 1 < file.n) begin[3 * i + 2] = ' ';
    }
    ek_buf formats = {0};
    ek_decode_image_formats(&formats);
    ek_err err = ek_fail(EK_EINVAL, "not a picture of a known kind: it begins with the bytes %s; known are %s", begin,
                         ek_buf_text(&formats));
    ek_buf_fini(&formats);
    return err;
}

static ek_err probe(ek_image_header *h, const ek_image_reader **reader, ek_media_bytes file)
{
    *h = (ek_image_header){0};
    EK_TRY(find(reader, file));
    EK_TRY((*reader)->header(h, file));
    if (h->orientation == 0) h->orientation = 1;
    return ek_image_header_check(h);
}

ek_err ek_decode_image_probe(ek_image_info *out, const void *bytes, size_t n)
{
    ek_image_header h;
    const ek_image_reader *reader;
    EK_TRY(probe(&h, &reader, (ek_media_bytes){bytes, n}));
    *out = ek_image_header_info(&h);
    return EK_OK;
}

ek_err ek_decode_image(ek_image *out, const void *bytes, size_t n, ek_alpha alpha)
{
    *out = (ek_image){0};
    ek_media_bytes file = {bytes, n};
    ek_image_header h;
    const ek_image_reader *reader;
    EK_TRY(probe(&h, &reader, file));
    bool turned = h.orientation >= 5;
    EK_TRY(ek_image_make(out, (int)(turned ? h.height : h.width), (int)(turned ? h.width : h.height)));
    ek_image_sink sink = {.out = out,
                          .width = (int)h.width,
                          .height = (int)h.height,
                          .orientation = h.orientation,
                          .on_white = alpha == EK_ALPHA_WHITE};
    ek_err err = reader->decode(&sink, file);
    sink_done(&sink, !err);
    if (err) ek_image_free(out);
    return err;
}

ek_err ek_decode_image_resized(ek_image *out, const void *bytes, size_t n, ek_alpha alpha, int width, int height,
                               ek_resizer how)
{
    out->width = width, out->height = height;
    ek_media_bytes file = {bytes, n};
    ek_image_header h;
    const ek_image_reader *reader;
    ek_err err = probe(&h, &reader, file);
    ek_image_sink sink = {.out = out,
                          .width = (int)h.width,
                          .height = (int)h.height,
                          .orientation = h.orientation,
                          .on_white = alpha == EK_ALPHA_WHITE};
    if (!err) err = ek_resizing_begin(&sink.resizing, out, sink.width, sink.height, h.orientation, how);
    if (!err) {
        err = reader->decode(&sink, file);
        sink_done(&sink, !err);
        ek_resizing_end(sink.resizing);
    }
    if (err) ek_image_free(out);
    return err;
}
