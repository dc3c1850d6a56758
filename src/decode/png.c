/* PNG by libpng. Ancillary chunks are withheld from libpng: none of them changes a colour here, and some are bombs. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>
#include <zlib.h>

#include "base/alloc.h"
#include "decode/image_read.h"

/* Unpacks only texts, before the picture is decoded. Damaged or larger texts give the part that can be read. */
static size_t unpack(uint8_t *to, size_t max, const uint8_t *from, size_t n)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)from, .avail_in = (uInt)n, .next_out = to, .avail_out = (uInt)max};
    if (inflateInit(&z) != Z_OK) return 0;
    (void)inflate(&z, Z_SYNC_FLUSH);
    (void)inflateEnd(&z);
    return z.total_out;
}

static ek_err header(ek_image_header *h, ek_media_bytes f)
{
    return ek_png_header(h, f, unpack);
}

typedef struct decoder {
    png_structp png;
    png_infop info;
    ek_media_bytes left;
    size_t missing; /* bytes of the last checksum after the pixels that the file lacks */
    char why[96];
    uint8_t *row;
    uint8_t *passes; /* for an interlaced picture with alpha */
} decoder;

static void read_bytes(png_structp png, png_bytep to, size_t n)
{
    decoder *d = png_get_io_ptr(png);
    ek_media_bytes *left = &d->left;
    const size_t missing = n > left->n ? n - left->n : 0;
    if (missing > d->missing) png_error(png, "it ends before its last row");
    n -= missing;
    memcpy(to, left->p, n);
    memset(to + n, 0, missing);
    left->p += n;
    left->n -= n;
    d->missing -= missing;
}

/* The missing bytes of a file that ends within the checksum of a chunk with pixels. zlib has another checksum over all
 * of the pixels. */
static size_t missing_of_checksum(ek_media_bytes f)
{
    for (size_t at = 8; f.n - at >= 12;) {
        const size_t n = ek_be32(f.p + at), left = f.n - at - 8;
        const bool pixels = memcmp(f.p + at + 4, "IDAT", 4) == 0;
        if (n > left) return 0;
        if (left - n < 4) return pixels ? 4 - (left - n) : 0;
        at += 12 + n;
    }
    return 0;
}

__attribute__((noreturn)) static void give_up(png_structp png, png_const_charp why)
{
    decoder *d = png_get_error_ptr(png);
    snprintf(d->why, sizeof d->why, "%s", why);
    png_longjmp(png, 1);
}

static void be_silent(png_structp png, png_const_charp why)
{
    (void)png, (void)why;
}

/* Asks for 8 bits per sample, in the order red, green, blue: the upper byte of 16 bits; palettes and grey as colours;
 * alpha dropped, or after the colours if it is blended. Returns the bytes of a pixel. */
static size_t ask_for_rgb(decoder *d, bool on_white)
{
    int type = png_get_color_type(d->png, d->info), depth = png_get_bit_depth(d->png, d->info);
    if (depth == 16) png_set_strip_16(d->png);
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(d->png);
    if (type == PNG_COLOR_TYPE_GRAY && depth < 8) png_set_expand_gray_1_2_4_to_8(d->png);
    const bool alpha = type & PNG_COLOR_MASK_ALPHA || png_get_valid(d->png, d->info, PNG_INFO_tRNS);
    if (on_white && alpha) png_set_tRNS_to_alpha(d->png);
    else png_set_strip_alpha(d->png);
    if (type == PNG_COLOR_TYPE_GRAY || type == PNG_COLOR_TYPE_GRAY_ALPHA) png_set_gray_to_rgb(d->png);
    return on_white && alpha ? 4 : 3;
}

static void put_row(ek_image_sink *to, int y, uint8_t *row, size_t pixel)
{
    if (pixel == 4) ek_sink_blend(row, row, to->width);
    ek_sink_row(to, y, row);
}

static void read_rows(decoder *d, ek_image_sink *to, size_t pixel)
{
    size_t row = pixel * (size_t)to->width;
    int passes = png_set_interlace_handling(d->png);
    png_read_update_info(d->png, d->info);
    if (png_get_rowbytes(d->png, d->info) != row || (int)png_get_image_height(d->png, d->info) != to->height)
        png_error(d->png, "its size changes");
    if (passes == 1) {
        for (int y = 0; y < to->height; y++) {
            png_read_row(d->png, d->row, NULL);
            put_row(to, y, d->row, pixel);
        }
    } else {
        uint8_t *whole = pixel == 3 ? ek_sink_whole(to) : (d->passes = ek_alloc_big(row * (size_t)to->height));
        if (!whole) png_error(d->png, "no memory");
        for (int pass = 0; pass < passes; pass++)
            for (int y = 0; y < to->height; y++) png_read_row(d->png, whole + (size_t)y * row, NULL);
        for (int y = 0; y < to->height && pixel == 4; y++) put_row(to, y, whole + (size_t)y * row, pixel);
    }
    /* Chunks after the pixels have no effect, so they may be damaged or missing. */
}

static bool run(decoder *d, ek_image_sink *to)
{
    /* The chunks that libpng knows and would keep. Unknown chunks are dropped as well. */
    static const png_byte ignored[] =
        "tRNS\0bKGD\0cHRM\0cICP\0eXIf\0gAMA\0hIST\0iCCP\0iTXt\0oFFs\0pCAL\0pHYs\0sBIT\0sCAL\0"
        "sPLT\0sRGB\0sTER\0tEXt\0tIME\0zTXt";
    const int kept = to->on_white ? 1 : 0; /* then the first of them is needed */
    if (setjmp(png_jmpbuf(d->png))) return false;
    png_set_read_fn(d->png, d, read_bytes);
    if (d->missing) png_set_crc_action(d->png, PNG_CRC_QUIET_USE, PNG_CRC_QUIET_USE), png_set_benign_errors(d->png, 0);
    png_set_user_limits(d->png, EK_IMAGE_MAX_SIDE, EK_IMAGE_MAX_SIDE);
    png_set_chunk_malloc_max(d->png, 1 << 20);
    png_set_chunk_cache_max(d->png, 4);
    png_set_keep_unknown_chunks(d->png, PNG_HANDLE_CHUNK_NEVER, NULL, 0);
    png_set_keep_unknown_chunks(d->png, PNG_HANDLE_CHUNK_NEVER, ignored + 5 * kept, (int)(sizeof ignored / 5) - kept);
    png_read_info(d->png, d->info);
    read_rows(d, to, ask_for_rgb(d, to->on_white));
    return true;
}

static ek_err decode(ek_image_sink *to, ek_media_bytes f)
{
    decoder d = {.left = f, .missing = missing_of_checksum(f)};
    d.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &d, give_up, be_silent);
    d.info = d.png ? png_create_info_struct(d.png) : NULL;
    if (!d.info) {
        png_destroy_read_struct(&d.png, NULL, NULL);
        return ek_fail(EK_ENOMEM, "no memory for a PNG picture");
    }
    d.row = ek_alloc(4 * (size_t)to->width);
    bool good = run(&d, to);
    png_destroy_read_struct(&d.png, &d.info, NULL);
    free(d.row);
    ek_free_big(d.passes, 4 * (size_t)to->width * (size_t)to->height);
    return good ? EK_OK : ek_image_damaged("PNG", d.why);
}

const ek_image_reader ek_png_reader = {ek_is_png, header, decode};
