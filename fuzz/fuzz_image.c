/* What the helper runs over a stranger's picture, in this process. A picture has the size that its header said; reading
 * is a function of the bytes; a file that is cut gives the same picture or none; an orientation is found with and
 * without the marker in front of its block. */
#include <stdlib.h>
#include <string.h>

#include "decode/decode.h"
#include "media/header.h"
#include "media/limits.h"

/* Larger ones take the fuzzer's time and show nothing more. */
enum { MAX_PIXELS = 1 << 16 };

static void check_exif(const uint8_t *data, size_t n)
{
    int o = ek_exif_orientation(data, n);
    if (o < -1 || o > 8) __builtin_trap();
    if (n >= 6 && memcmp(data, "Exif\0\0", 6) == 0) return;
    uint8_t *marked = malloc(n + 6);
    memcpy(marked, "Exif\0\0", 6);
    memcpy(marked + 6, data, n);
    if (ek_exif_orientation(marked, n + 6) != o) __builtin_trap();
    free(marked);
}

static void check_said(ek_err err)
{
    const char *text = ek_err_text();
    if (err != EK_EINVAL && err != EK_EPARSE && err != EK_ETOOLARGE) __builtin_trap();
    if (!*text || strchr(text, '\n')) __builtin_trap();
}

static void check_same(const ek_image *a, const ek_image *b)
{
    if (a->width != b->width || a->height != b->height) __builtin_trap();
    if (memcmp(a->rgb, b->rgb, ek_image_bytes(a)) != 0) __builtin_trap();
}

/* Blended on white, a picture has its size, and no sample is darker than the one that is stored. */
static void check_on_white(const ek_image *image, const uint8_t *data, size_t n)
{
    ek_image white;
    if (ek_decode_image(&white, data, n, EK_ALPHA_WHITE)) __builtin_trap();
    if (white.width != image->width || white.height != image->height) __builtin_trap();
    for (size_t i = 0; i < ek_image_bytes(image); i++)
        if (white.rgb[i] < image->rgb[i]) __builtin_trap();
    ek_image_free(&white);
}

/* Resized row by row it is what it is when it is resized whole. */
static void check_resized(const ek_image *image, const uint8_t *data, size_t n, ek_resizer how)
{
    ek_image whole, rows = {0};
    if (ek_image_resize(&whole, image, 48, 96, how)) __builtin_trap();
    if (ek_decode_image_resized(&rows, data, n, EK_ALPHA_DROP, 48, 96, how)) __builtin_trap();
    check_same(&whole, &rows);
    ek_image_free(&whole);
    ek_image_free(&rows);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    check_exif(data, n);
    ek_image_info info;
    ek_image image, again = {0};
    ek_err err = ek_decode_image_probe(&info, data, n);
    if (err) {
        check_said(err);
        if (ek_decode_image(&image, data, n, EK_ALPHA_DROP) != err) __builtin_trap();
        return 0;
    }
    if (info.width * info.height > MAX_PIXELS || info.memory > (size_t)64 << 20) return 0;
    if ((err = ek_decode_image(&image, data, n, EK_ALPHA_DROP))) {
        check_said(err);
        if (image.rgb) __builtin_trap();
        return 0;
    }
    if (image.width != info.width || image.height != info.height) __builtin_trap();
    if (ek_decode_image(&again, data, n, EK_ALPHA_DROP)) __builtin_trap();
    check_same(&image, &again);
    ek_image_free(&again);
    check_resized(&image, data, n, n & 1 ? EK_RESIZE_TORCH : EK_RESIZE_PILLOW);
    check_on_white(&image, data, n);
    size_t cut = n - 1 - data[n - 1] % n;
    ek_image_info part; /* how it is turned may stand behind the pixels */
    if (ek_decode_image(&again, data, cut, EK_ALPHA_DROP) == EK_OK && again.width == image.width &&
        again.height == image.height && ek_decode_image_probe(&part, data, cut) == EK_OK &&
        part.orientation == info.orientation)
        check_same(&image, &again);
    ek_image_free(&again);
    ek_image_free(&image);
    return 0;
}
