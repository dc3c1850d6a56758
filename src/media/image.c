/* Pictures by the helper. Its answers are checked, because a process that decodes untrusted files may give any
 * answer. */
#include "media/image.h"

#include <string.h>

#include "base/clock.h"
#include "media/header.h"
#include "media/limits.h"
#include "media/locked/helper.h"
#include "media/resize.h"

static ek_err damaged(void)
{
    return ek_fail(EK_EPARSE, "damaged picture: its decoder gave what is none");
}

static ek_err check_answer(ek_image_info *out, const ek_decoded *a)
{
    static const char *const format[] = {"JPEG", "PNG", "WebP", "GIF", "HEIC", "AVIF"};
    *out = (ek_image_info){.width = a->width,
                           .height = a->height,
                           .orientation = a->orientation,
                           .animated = a->animated != 0,
                           .memory = a->memory,
                           .held = a->held};
    for (size_t i = 0; i < sizeof format / sizeof *format; i++)
        if (strcmp(a->format, format[i]) == 0) out->format = format[i];
    const size_t max = (size_t)64 * EK_IMAGE_MAX_PIXELS;
    if (!out->format || a->width < 1 || a->height < 1 || a->width > EK_IMAGE_MAX_SIDE ||
        a->height > EK_IMAGE_MAX_SIDE || (int64_t)a->width * a->height > EK_IMAGE_MAX_PIXELS || a->orientation < 1 ||
        a->orientation > 8 || a->memory > max || a->held > max)
        return damaged();
    return EK_OK;
}

/* Reads a header that needs no library, if the helper reads the format. The helper judges all headers that are not
 * clearly right. */
static bool read_here(ek_image_info *out, const void *bytes, size_t n)
{
    const ek_media_bytes f = {bytes, n};
    const bool png = ek_is_png(f);
    ek_image_header h = {0};
    if ((!png && !ek_is_jpeg(f)) || !strstr(ek_helper_formats(), png ? "PNG" : "JPEG")) return false;
    if ((png ? ek_png_header(&h, f, NULL) : ek_jpeg_header(&h, f)) || h.unread || ek_image_header_check(&h))
        return false;
    *out = ek_image_header_info(&h);
    return true;
}

ek_err ek_image_probe(ek_image_info *out, const void *bytes, size_t n)
{
    ek_ask ask = {.what = EK_ASK_IMAGE_PROBE};
    ek_decoded a;
    EK_TRY(ek_media_check_bytes("picture", n));
    EK_TRY(ek_wanted_check());
    if (read_here(out, bytes, n)) return EK_OK;
    EK_TRY(ek_helper_decode(&a, NULL, &ask, bytes, n));
    return check_answer(out, &a);
}

/* Decodes into room for width x height pixels. */
static ek_err decode(ek_image *out, ek_ask *ask, const void *bytes, size_t n, int width, int height)
{
    ek_decoded a;
    EK_TRY(ek_image_make(out, width, height));
    ask->room = ek_image_bytes(out);
    ek_err err = ek_helper_decode(&a, out->rgb, ask, bytes, n);
    if (!err && (a.width != width || a.height != height)) err = damaged();
    if (err) ek_image_free(out);
    return err;
}

ek_err ek_image_decode(ek_image *out, const void *bytes, size_t n, ek_alpha alpha)
{
    ek_image_info info;
    *out = (ek_image){0};
    EK_TRY(ek_image_probe(&info, bytes, n));
    ek_ask ask = {.what = EK_ASK_IMAGE, .alpha = (int32_t)alpha, .memory = info.memory};
    return decode(out, &ask, bytes, n, info.width, info.height);
}

ek_err ek_image_decode_resized(ek_image *out, const void *bytes, size_t n, const ek_image_info *info, ek_alpha alpha,
                               int width, int height, ek_resizer how)
{
    ek_image_info probed;
    *out = (ek_image){0};
    if (!info) EK_TRY(ek_image_probe(&probed, bytes, n));
    if (!info) info = &probed;
    const bool on_side = info->orientation >= 5;
    ek_ask ask = {.what = EK_ASK_IMAGE_RESIZED,
                  .alpha = (int32_t)alpha,
                  .width = width,
                  .height = height,
                  .resizer = (int32_t)how,
                  .memory = info->held + ek_resizing_memory(on_side ? info->height : info->width,
                                                            on_side ? info->width : info->height, info->orientation,
                                                            width, height)};
    EK_TRY(ek_media_check_bytes("picture", n));
    return decode(out, &ask, bytes, n, width, height);
}
