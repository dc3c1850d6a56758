#include "media/video/ppm.h"

#include "media/limits.h"

/* *c is -1 at the end. */
static ek_err next(int *c, ek_ppm_read_fn *read, void *arg)
{
    uint8_t byte;
    size_t got;
    EK_TRY(read(arg, &byte, 1, &got));
    *c = got ? byte : -1;
    return EK_OK;
}

static ek_err wrong(void)
{
    return ek_fail(EK_EPARSE, "damaged video: a frame is no picture");
}

/* Reads a number of up to five digits, and the one blank after it. */
static ek_err read_number(int *v, ek_ppm_read_fn *read, void *arg)
{
    int c, digits = 0;
    for (*v = 0;; digits++) {
        EK_TRY(next(&c, read, arg));
        if (c < '0' || c > '9') break;
        if (digits == 5) return wrong();
        *v = 10 * *v + (c - '0');
    }
    return digits > 0 && (c == ' ' || c == '\n') ? EK_OK : wrong();
}

ek_err ek_ppm_read(ek_image *out, ek_ppm_read_fn *read, void *arg)
{
    int first, c, width, height, max;
    *out = (ek_image){0};
    EK_TRY(next(&first, read, arg));
    if (first < 0) return EK_OK;
    if (first != 'P') return wrong();
    EK_TRY(next(&c, read, arg));
    if (c != '6') return wrong();
    EK_TRY(next(&c, read, arg));
    if (c != '\n') return wrong();
    EK_TRY(read_number(&width, read, arg));
    EK_TRY(read_number(&height, read, arg));
    EK_TRY(read_number(&max, read, arg));
    if (max != 255 || width < 1 || height < 1) return wrong();
    if (width > EK_IMAGE_MAX_SIDE || height > EK_IMAGE_MAX_SIDE || (int64_t)width * height > EK_IMAGE_MAX_PIXELS)
        return ek_fail(EK_ETOOLARGE, "video of %d x %d pixels, a frame has at most %d, a side %d", width, height,
                       EK_IMAGE_MAX_PIXELS, EK_IMAGE_MAX_SIDE);
    EK_TRY(ek_image_make(out, width, height));
    ek_err err = EK_OK;
    const size_t all = ek_image_bytes(out);
    for (size_t at = 0, got; !err && at < all; at += got) {
        err = read(arg, out->rgb + at, all - at, &got);
        if (!err && got == 0) err = ek_fail(EK_EPARSE, "damaged video: it ends inside a frame");
        if (err) break;
    }
    if (err) ek_image_free(out);
    return err;
}
