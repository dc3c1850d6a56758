/* HEIC and AVIF by libheif, if libheif was installed at build time. Boxes of these formats hold the orientation, so
 * EXIF is not read. */
#include <stdlib.h>
#include <string.h>

#ifdef EK_HAVE_HEIF
#include <libheif/heif.h>
#endif

#include "base/alloc.h"
#include "decode/image_read.h"

static bool names(ek_media_bytes f, const char *const *brands)
{
    size_t n = ek_be32(f.p);
    for (size_t at = 8; at + 4 <= n && at + 4 <= f.n && at < 256; at += at == 8 ? 8 : 4) /* major, version, others */
        for (int i = 0; brands[i]; i++)
            if (memcmp(f.p + at, brands[i], 4) == 0) return true;
    return false;
}

static bool is_avif(ek_media_bytes f)
{
    return names(f, (const char *const[]){"avif", "avis", NULL});
}

static bool is_heif(ek_media_bytes f)
{
    if (f.n < 16 || memcmp(f.p + 4, "ftyp", 4) != 0) return false;
    return is_avif(f) || names(f, (const char *const[]){"heic", "heix", "hevc", "heim", "heis", "mif1", "msf1", NULL});
}

#ifdef EK_HAVE_HEIF
typedef struct opened {
    struct heif_context *context;
    struct heif_image_handle *handle;
    struct heif_image *image;
} opened;

static void close_all(opened *o)
{
    if (o->image) heif_image_release(o->image);
    if (o->handle) heif_image_handle_release(o->handle);
    if (o->context) heif_context_free(o->context);
}

static ek_err refused(ek_media_bytes f, struct heif_error e)
{
    return ek_image_damaged(is_avif(f) ? "AVIF" : "HEIC", e.message ? e.message : "it cannot be read");
}

static ek_err open_file(opened *o, ek_media_bytes f)
{
    *o = (opened){.context = heif_context_alloc()};
    if (!o->context) return ek_fail(EK_ENOMEM, "no memory for a picture");
    heif_context_set_maximum_image_size_limit(o->context, EK_IMAGE_MAX_SIDE);
    struct heif_error e = heif_context_read_from_memory_without_copy(o->context, f.p, f.n, NULL);
    if (e.code == heif_error_Ok) e = heif_context_get_primary_image_handle(o->context, &o->handle);
    return e.code == heif_error_Ok ? EK_OK : refused(f, e);
}

static ek_err header(ek_image_header *h, ek_media_bytes f)
{
    h->format = is_avif(f) ? "AVIF" : "HEIC";
    opened o;
    ek_err err = open_file(&o, f);
    if (!err) {
        h->width = heif_image_handle_get_width(o.handle);
        h->height = heif_image_handle_get_height(o.handle);
        h->memory = 24; /* planes of up to 16 bits, and copies for rotation and colours */
        h->held = 24;
        h->animated = heif_context_get_number_of_top_level_images(o.context) > 1;
    }
    close_all(&o);
    return err;
}

static ek_err read_pixels(opened *o, ek_image_sink *to, ek_media_bytes f)
{
    struct heif_decoding_options *options = heif_decoding_options_alloc();
    if (!options) return ek_fail(EK_ENOMEM, "no memory for a picture");
    options->convert_hdr_to_8bit = 1;
    const bool alpha = to->on_white && heif_image_handle_has_alpha_channel(o->handle);
    struct heif_error e = heif_decode_image(o->handle, &o->image, heif_colorspace_RGB,
                                            alpha ? heif_chroma_interleaved_RGBA : heif_chroma_interleaved_RGB,
                                            options);
    heif_decoding_options_free(options);
    if (e.code != heif_error_Ok) return refused(f, e);
    int stride = 0;
    uint8_t *row = alpha ? ek_alloc(4 * (size_t)to->width) : NULL;
    const uint8_t *p = heif_image_get_plane_readonly(o->image, heif_channel_interleaved, &stride);
    if (!p || heif_image_get_width(o->image, heif_channel_interleaved) != to->width ||
        heif_image_get_height(o->image, heif_channel_interleaved) != to->height) {
        free(row);
        return ek_image_damaged(is_avif(f) ? "AVIF" : "HEIC", "its size changes");
    }
    for (int y = 0; y < to->height; y++) {
        if (row) ek_sink_blend(row, p + (ptrdiff_t)y * stride, to->width);
        ek_sink_row(to, y, row ? row : p + (ptrdiff_t)y * stride);
    }
    free(row);
    return EK_OK;
}

static ek_err decode(ek_image_sink *to, ek_media_bytes f)
{
    opened o;
    ek_err err = open_file(&o, f);
    if (!err) err = read_pixels(&o, to, f);
    close_all(&o);
    return err;
}
#else /* every file is refused before */
#define header NULL
#define decode NULL
#endif

const ek_image_reader ek_heif_reader = {is_heif, header, decode};
