/* A picture has the size that its header said; reading is a function of the bytes; a file that is cut gives the same
 * picture or none; an orientation is found with and without the marker in front of its block. */
#include <stdlib.h>
#include <string.h>

#include "media/exif.h"
#include "media/picture.h"

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
    if (ek_image_decode_on(&white, data, n, EK_ALPHA_WHITE)) __builtin_trap();
    if (white.width != image->width || white.height != image->height) __builtin_trap();
    for (size_t i = 0; i < ek_image_bytes(image); i++)
        if (white.rgb[i] < image->rgb[i]) __builtin_trap();
    ek_image_free(&white);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    check_exif(data, n);
    ek_picture_opts o = {.budget = 70, .resizer = n & 1 ? EK_RESIZE_TORCH : EK_RESIZE_PILLOW};
    ek_picture_cost cost;
    ek_image image, again;
    ek_err err = ek_picture_probe(&cost, data, n, &o);
    if (err) {
        check_said(err);
        if (ek_image_decode(&image, data, n) != err) __builtin_trap();
        return 0;
    }
    if (cost.image.width * cost.image.height > MAX_PIXELS || cost.memory > (size_t)64 << 20) return 0;
    if ((err = ek_image_decode(&image, data, n))) {
        check_said(err);
        if (image.rgb) __builtin_trap();
        return 0;
    }
    if (image.width != cost.image.width || image.height != cost.image.height) __builtin_trap();
    if (ek_image_decode(&again, data, n)) __builtin_trap();
    check_same(&image, &again);
    ek_image_free(&again);
    check_on_white(&image, data, n);
    size_t cut = n - 1 - data[n - 1] % n;
    ek_image_info part; /* how it is turned may stand behind the pixels */
    if (ek_image_decode(&again, data, cut) == EK_OK && again.width == image.width && again.height == image.height &&
        ek_image_probe(&part, data, cut) == EK_OK && part.orientation == cost.image.orientation)
        check_same(&image, &again);
    ek_image_free(&again);
    ek_image_free(&image);
    return 0;
}
