/* HEIC and AVIF files, by libheif's encoders. */
#include <string.h>

#include "draw.h"

#ifdef EK_HAVE_HEIF
#include <libheif/heif.h>
#endif

#ifdef EK_HAVE_HEIF
#ifdef EK_SANITIZED
/* x265, the encoder behind libheif, keeps a block. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:x265_malloc\n";
}
#endif

static struct heif_error add_heif(struct heif_context *c, const void *p, size_t n, void *to)
{
    (void)c;
    ek_buf_add(to, p, n);
    return (struct heif_error){heif_error_Ok, heif_suberror_Unspecified, "good"};
}

bool put_heif(ek_buf *to, const ek_image *image, const uint8_t *alpha, bool avif)
{
    const enum heif_compression_format format = avif ? heif_compression_AV1 : heif_compression_HEVC;
    const int width = image->width, pixel = alpha ? 4 : 3;
    struct heif_context *c = heif_context_alloc();
    struct heif_encoder *encoder = NULL;
    struct heif_image *px = NULL;
    int stride;
    bool there = heif_context_get_encoder_for_format(c, format, &encoder).code == heif_error_Ok;
    if (there) {
        heif_image_create(width, image->height, heif_colorspace_RGB,
                          alpha ? heif_chroma_interleaved_RGBA : heif_chroma_interleaved_RGB, &px);
        heif_image_add_plane(px, heif_channel_interleaved, image->width, image->height, 8);
        uint8_t *to_px = heif_image_get_plane(px, heif_channel_interleaved, &stride);
        for (int i = 0; i < width * image->height; i++) {
            uint8_t *at = to_px + i / width * stride + pixel * (i % width);
            memcpy(at, image->rgb + 3 * i, 3);
            if (alpha) at[3] = alpha[i];
        }
        heif_encoder_set_lossy_quality(encoder, 95);
        there = heif_context_encode_image(c, px, encoder, NULL, NULL).code == heif_error_Ok;
        struct heif_writer writer = {.writer_api_version = 1, .write = add_heif};
        if (there) heif_context_write(c, &writer, to);
        heif_image_release(px);
        heif_encoder_release(encoder);
    }
    heif_context_free(c);
    return there;
}
#else
bool put_heif(ek_buf *to, const ek_image *image, const uint8_t *alpha, bool avif)
{
    (void)to, (void)image, (void)alpha, (void)avif;
    return false;
}
#endif
