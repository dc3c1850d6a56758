/* JPEG by libjpeg: accurate integer inverse transform, smooth upsampling, no scaling, as Pillow has it. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

#include "base/alloc.h"
#include "decode/exif.h"
#include "decode/image_read.h"

static bool is_jpeg(ek_media_bytes f)
{
    return f.n >= 3 && f.p[0] == 0xFF && f.p[1] == 0xD8 && f.p[2] == 0xFF;
}

/* SOF0 to SOF15 but DHT, JPG and DAC, which lie among them. */
static bool is_frame(uint8_t marker)
{
    return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

/* A picture in several scans is kept as coefficients, of two bytes. Others need rows alone. */
static void keep_coefficients(ek_image_header *h, int components)
{
    h->memory = h->held = 2 * components + 1;
}

static ek_err read_frame(ek_image_header *h, int *components, const uint8_t *p, size_t n, uint8_t marker)
{
    if (n < 6) return ek_image_damaged(h->format, "its frame header is too short");
    if (p[0] != 8) return ek_fail(EK_EINVAL, "JPEG picture of %d bits per sample, 8 are read", p[0]);
    if (p[5] != 1 && p[5] != 3 && p[5] != 4)
        return ek_fail(EK_EINVAL, "JPEG picture of %d components, 1, 3 or 4 are read", p[5]);
    h->height = ek_be16(p + 1);
    h->width = ek_be16(p + 3);
    h->memory = 1;
    if (marker == 0xC2 || marker == 0xCA) keep_coefficients(h, p[5]);
    *components = p[5];
    return EK_OK;
}

static void read_app1(int *exif, int *xmp, const uint8_t *p, size_t n)
{
    static const char name[] = "http://ns.adobe.com/xap/1.0/"; /* with the zero behind it */
    if (*exif == 0 && n >= 6 && memcmp(p, "Exif\0\0", 6) == 0) *exif = ek_exif_orientation(p, n);
    if (n > sizeof name && memcmp(p, name, sizeof name) == 0)
        *xmp = ek_xmp_orientation(p + sizeof name, n - sizeof name);
}

/* Markers up to the first scan. */
static ek_err header(ek_image_header *h, ek_media_bytes f)
{
    h->format = "JPEG";
    size_t at = 2;
    int components = 0, exif = 0, xmp = 0;
    while (f.n - at >= 4) {
        uint8_t marker = f.p[at + 1];
        if (f.p[at] != 0xFF || marker == 0xFF || marker == 0) { /* stray bytes, which the library skips too */
            at++;
            continue;
        }
        if (marker == 0xDA && f.n - at > 4 && f.p[at + 4] < components) keep_coefficients(h, components);
        if (marker == 0xDA || marker == 0xD9) break;
        at += 2;
        if (marker == 0x01 || (marker >= 0xD0 && marker <= 0xD8)) continue; /* without a length */
        size_t n = ek_be16(f.p + at);
        if (n < 2 || n > f.n - at) return ek_image_damaged(h->format, "it ends inside a segment of its header");
        const uint8_t *p = f.p + at + 2;
        if (is_frame(marker)) {
            if (h->width) return ek_image_damaged(h->format, "it has two frame headers");
            EK_TRY(read_frame(h, &components, p, n - 2, marker));
        }
        if (marker == 0xE1) read_app1(&exif, &xmp, p, n - 2);
        at += n;
    }
    h->orientation = ek_orientation(exif, xmp);
    return h->width ? EK_OK : ek_image_damaged(h->format, "it ends before its size");
}

typedef struct decoder {
    struct jpeg_decompress_struct j;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf out;
    char why[JMSG_LENGTH_MAX + 32];
    uint8_t *row, *rgb;
} decoder;

__attribute__((noreturn)) static void give_up(j_common_ptr j)
{
    decoder *d = (decoder *)j->client_data;
    if (d->why[0] == '\0') j->err->format_message(j, d->why);
    longjmp(d->out, 1);
}

/* The library would fill the rest of a picture that ends early with grey. Its other warnings are about data that it can
 * decode. */
static void warn(j_common_ptr j, int level)
{
    if (level < 0 && j->err->msg_code == JWRN_JPEG_EOF) {
        snprintf(((decoder *)j->client_data)->why, JMSG_LENGTH_MAX, "it ends before its last row");
        give_up(j);
    }
}

static void be_silent(j_common_ptr j)
{
    (void)j;
}

/* Scans without data cost the file a few bytes each, and the decoder the whole picture. */
static void count_scans(j_common_ptr j)
{
    decoder *d = (decoder *)j->client_data;
    if (d->j.input_scan_number <= EK_IMAGE_MAX_SCANS) return;
    snprintf(d->why, sizeof d->why, "it has more than %d scans", EK_IMAGE_MAX_SCANS);
    give_up(j);
}

/* Of what is written for print, inverted as Adobe does it: v' = 255 - v, then (255 - K) - C (255 - K) / 255. */
static void from_cmyk(uint8_t *rgb, const uint8_t *cmyk, int width)
{
    for (int x = 0; x < width; x++)
        for (int c = 0; c < 3; c++) {
            int key = cmyk[4 * x + 3], ink = 255 - cmyk[4 * x + c];
            int part = ink * key + 128;
            rgb[3 * x + c] = (uint8_t)(key - ((part + (part >> 8)) >> 8));
        }
}

static void from_grey(uint8_t *rgb, const uint8_t *grey, int width)
{
    for (int x = 0; x < width; x++) rgb[3 * x] = rgb[3 * x + 1] = rgb[3 * x + 2] = grey[x];
}

static void read_rows(decoder *d, ek_image_sink *to)
{
    int width = to->width, components = d->j.output_components;
    while (d->j.output_scanline < d->j.output_height) {
        int y = (int)d->j.output_scanline;
        jpeg_read_scanlines(&d->j, &d->row, 1);
        const uint8_t *rgb = components == 3 ? d->row : d->rgb;
        if (components == 1) from_grey(d->rgb, d->row, width);
        if (components == 4) from_cmyk(d->rgb, d->row, width);
        ek_sink_row(to, y, rgb);
    }
}

/* Returns false after an error of the library, with why. */
static bool run(decoder *d, ek_image_sink *to, ek_media_bytes f)
{
    if (setjmp(d->out)) return false;
    jpeg_create_decompress(&d->j);
    d->j.client_data = d;
    d->j.progress = &d->progress;
    d->progress.progress_monitor = count_scans;
    d->j.mem->max_memory_to_use = (long)to->width * to->height * 9 + (16L << 20);
    jpeg_mem_src(&d->j, f.p, (unsigned long)f.n);
    jpeg_read_header(&d->j, TRUE);
    int components = d->j.num_components;
    d->j.out_color_space = components == 1 ? JCS_GRAYSCALE : components == 3 ? JCS_RGB : JCS_CMYK;
    d->j.dct_method = JDCT_ISLOW;
    jpeg_start_decompress(&d->j);
    if ((int)d->j.output_width != to->width || (int)d->j.output_height != to->height ||
        d->j.output_components != components) {
        snprintf(d->why, sizeof d->why, "its size changes");
        return false;
    }
    read_rows(d, to);
    return true;
}

static ek_err decode(ek_image_sink *to, ek_media_bytes f)
{
    decoder *d = ek_alloc(sizeof *d);
    d->j.err = jpeg_std_error(&d->errors);
    d->j.client_data = d;
    d->errors.error_exit = give_up;
    d->errors.emit_message = warn;
    d->errors.output_message = be_silent;
    d->row = ek_alloc(4 * (size_t)to->width);
    d->rgb = ek_alloc(3 * (size_t)to->width);
    bool good = run(d, to, f);
    jpeg_destroy_decompress(&d->j);
    ek_err err = good ? EK_OK : ek_image_damaged("JPEG", d->why);
    free(d->row);
    free(d->rgb);
    free(d);
    return err;
}

const ek_image_reader ek_jpeg_reader = {is_jpeg, header, decode};
