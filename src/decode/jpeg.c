/* JPEG by libjpeg: accurate integer inverse transform, smooth upsampling, no scaling, as in Pillow. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>
#include <jerror.h>

#include "base/alloc.h"
#include "decode/image_read.h"

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

/* If a picture ends early, the library would fill the rest with grey, so this warning is an error. Other warnings are
 * about data that the library can decode. */
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

/* A scan without data takes a few bytes of the file, but the decoder works through the whole picture for it. */
static void count_scans(j_common_ptr j)
{
    decoder *d = (decoder *)j->client_data;
    if (d->j.input_scan_number <= EK_IMAGE_MAX_SCANS) return;
    snprintf(d->why, sizeof d->why, "it has more than %d scans", EK_IMAGE_MAX_SCANS);
    give_up(j);
}

/* Pictures for print, which Adobe stores inverted: v' = 255 - v, then (255 - K) - C (255 - K) / 255. */
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

/* False after an error of the library; why has the reason. */
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

const ek_image_reader ek_jpeg_reader = {ek_is_jpeg, ek_jpeg_header, decode};
