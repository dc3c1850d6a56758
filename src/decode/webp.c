/* WebP by libwebp. An animated file gives its first frame, on a black canvas. */
#include <string.h>

#include <webp/decode.h>
#include <webp/demux.h>

#include "base/alloc.h"
#include "decode/image_read.h"

static bool is_webp(ek_media_bytes f)
{
    return f.n >= 12 && memcmp(f.p, "RIFF", 4) == 0 && memcmp(f.p + 8, "WEBP", 4) == 0;
}

static const char *said(VP8StatusCode code)
{
    switch (code) {
    case VP8_STATUS_OUT_OF_MEMORY: return "no memory";
    case VP8_STATUS_UNSUPPORTED_FEATURE: return "it uses what the decoder does not know";
    case VP8_STATUS_NOT_ENOUGH_DATA: return "it ends before its last row";
    default: return "its data are not WebP's";
    }
}

static ek_err header(ek_image_header *h, ek_media_bytes f)
{
    h->format = "WebP";
    WebPBitstreamFeatures found;
    /* The orientation may come last, so a cut picture could be shown in a wrong orientation. */
    if (ek_le32(f.p + 4) > f.n - 8) return ek_image_damaged(h->format, "it ends before its container does");
    VP8StatusCode code = WebPGetFeatures(f.p, f.n, &found);
    if (code != VP8_STATUS_OK) return ek_image_damaged(h->format, said(code));
    h->width = found.width;
    h->height = found.height;
    h->animated = found.has_animation;
    h->memory = 13; /* lossless: 4 for the pixels, 4 for codes, 4 for blended pixels */
    h->held = 13;
    int exif = 0, xmp = 0;
    bool has_exif = false, has_xmp = false; /* the first chunk of each kind counts */
    for (size_t at = 12; f.n - at >= 8;) {
        size_t n = ek_le32(f.p + at + 4);
        if (n > f.n - at - 8) break;
        if (!has_exif && memcmp(f.p + at, "EXIF", 4) == 0) {
            exif = ek_exif_orientation(f.p + at + 8, n);
            has_exif = true;
        }
        if (!has_xmp && memcmp(f.p + at, "XMP ", 4) == 0) {
            xmp = ek_xmp_orientation(f.p + at + 8, n);
            has_xmp = true;
        }
        n += n & 1;
        if (n > f.n - at - 8) break;
        at += 8 + n;
    }
    h->orientation = ek_orientation(exif, xmp);
    return EK_OK;
}

/* A still picture of width x height, at `at` of a canvas. Its pixels have 3 bytes, or 4 with alpha. */
static ek_err still(uint8_t *at, size_t stride, size_t pixel, int width, int height, const uint8_t *p, size_t n)
{
    WebPDecoderConfig config;
    if (!WebPInitDecoderConfig(&config)) return ek_image_damaged("WebP", "another version of the library is installed");
    VP8StatusCode code = WebPGetFeatures(p, n, &config.input);
    if (code != VP8_STATUS_OK) return ek_image_damaged("WebP", said(code));
    if (config.input.width != width || config.input.height != height)
        return ek_image_damaged("WebP", "its size changes");
    config.output.colorspace = pixel == 4 ? MODE_RGBA : MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = at;
    config.output.u.RGBA.stride = (int)stride;
    config.output.u.RGBA.size = stride * (size_t)(height - 1) + pixel * (size_t)width;
    code = WebPDecode(p, n, &config);
    WebPFreeDecBuffer(&config.output);
    return code == VP8_STATUS_OK ? EK_OK : ek_image_damaged("WebP", said(code));
}

static ek_err first_frame(uint8_t *canvas, size_t pixel, const ek_image_sink *to, ek_media_bytes f)
{
    WebPData data = {f.p, f.n};
    WebPDemuxState state;
    WebPDemuxer *demuxer = WebPDemuxPartial(&data, &state); /* the data after the first frame may be missing */
    WebPIterator frame;
    if (!demuxer) return ek_image_damaged("WebP", "its frames cannot be told apart");
    ek_err err = EK_OK;
    if (!WebPDemuxGetFrame(demuxer, 1, &frame)) {
        err = ek_image_damaged("WebP", "it ends before its first frame");
    } else {
        size_t stride = pixel * (size_t)to->width;
        if (frame.x_offset < 0 || frame.y_offset < 0 || frame.width < 1 || frame.height < 1 ||
            frame.width > to->width - frame.x_offset || frame.height > to->height - frame.y_offset)
            err = ek_image_damaged("WebP", "its first frame lies outside");
        else
            err = still(canvas + (size_t)frame.y_offset * stride + pixel * (size_t)frame.x_offset, stride, pixel,
                        frame.width, frame.height, frame.fragment.bytes, frame.fragment.size);
        WebPDemuxReleaseIterator(&frame);
    }
    WebPDemuxDelete(demuxer);
    return err;
}

static ek_err decode(ek_image_sink *to, ek_media_bytes f)
{
    WebPBitstreamFeatures found;
    if (WebPGetFeatures(f.p, f.n, &found) != VP8_STATUS_OK) return ek_image_damaged("WebP", "its header changes");
    /* A canvas with alpha is drawn on white and is transparent outside frames. Without alpha nothing has to be
     * blended. */
    const size_t pixel = to->on_white && (found.has_alpha || found.has_animation) ? 4 : 3;
    const size_t stride = pixel * (size_t)to->width, bytes = stride * (size_t)to->height;
    uint8_t *whole = pixel == 3 ? ek_sink_whole(to) : ek_alloc_big(bytes);
    if (!whole) return EK_ENOMEM;
    ek_err err = found.has_animation ? first_frame(whole, pixel, to, f)
                                     : still(whole, stride, pixel, to->width, to->height, f.p, f.n);
    for (int y = 0; !err && pixel == 4 && y < to->height; y++) {
        uint8_t *row = whole + (size_t)y * stride;
        ek_sink_blend(row, row, to->width);
        ek_sink_row(to, y, row);
    }
    if (pixel == 4) ek_free_big(whole, bytes);
    return err;
}

const ek_image_reader ek_webp_reader = {is_webp, header, decode};
