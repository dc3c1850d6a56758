/* preprocess: a model's input for a picture or a sound, without a model. */
#include <stdio.h>
#include <stdlib.h>

#include "base/hash/hash.h"
#include "cli/media/media.h"
#include "media/mel.h"

static void print_image(const ek_cli *cli, const ek_image *image, const ek_picture *p)
{
    uint32_t rgb = ek_crc32(0, image->rgb, ek_image_bytes(image));
    uint32_t resized = ek_crc32(0, p->image.rgb, ek_image_bytes(&p->image));
    const char *form = cli->json ? "{\"width\":%d,\"height\":%d,\"rgb_crc32\":\"%08x\",\"resized_width\":%d,"
                                   "\"resized_height\":%d,\"resized_crc32\":\"%08x\",\"tokens\":%d}\n"
                                 : "%d x %d pixels (%08x), resized to %d x %d (%08x): %d tokens\n";
    printf(form, image->width, image->height, rgb, p->fit.width, p->fit.height, resized, p->fit.tokens);
}

static ek_err preprocess_image(const ek_cli *cli, const ek_buf *file)
{
    const ek_picture_opts o = ek_cli_picture_opts(cli);
    ek_image image;
    ek_picture p;
    EK_TRY(ek_image_decode(&image, file->data, file->len, o.alpha));
    ek_err err = ek_picture_make(&p, &image, &o);
    if (!err && cli->has.out) err = ek_cli_write_file(cli->out, p.image.rgb, ek_image_bytes(&p.image));
    if (!err) print_image(cli, &image, &p);
    ek_picture_free(&p);
    ek_image_free(&image);
    return err;
}

/* The rows of all pieces, one piece after the other. */
static ek_err print_sound(const ek_cli *cli, const ek_sound *s, int pieces)
{
    int tokens = 0, frames = 0;
    for (int i = 0; i < pieces; i++) {
        int n;
        const ek_sound piece = ek_cli_piece(cli, s, i);
        EK_TRY(ek_sound_tokens(&n, piece.samples, EK_SOUND_TOWER));
        tokens += n, frames += ek_mel_frames(piece.samples);
    }
    size_t n = (size_t)frames * EK_MEL_BINS * sizeof(float);
    float *rows = malloc(n), *at = rows;
    if (!rows) return ek_fail(EK_ENOMEM, "no memory for %d rows", frames);
    for (int i = 0; i < pieces; i++) {
        const ek_sound piece = ek_cli_piece(cli, s, i);
        ek_mel_rows(at, &piece);
        at += (size_t)ek_mel_frames(piece.samples) * EK_MEL_BINS;
    }
    ek_err err = cli->has.out ? ek_cli_write_file(cli->out, rows, n) : EK_OK;
    free(rows);
    if (!err)
        printf(cli->json ? "{\"samples\":%d,\"frames\":%d,\"bins\":%d,\"tokens\":%d}\n"
                         : "%d samples of 16 kHz, %d rows of %d bins: %d tokens\n",
               s->samples, frames, EK_MEL_BINS, tokens);
    return err;
}

static ek_err preprocess_sound(const ek_cli *cli, const ek_buf *file)
{
    ek_sound s;
    int pieces;
    EK_TRY(ek_cli_read_sound(&s, &pieces, cli, file, EK_SOUND_TOWER));
    ek_err err = print_sound(cli, &s, pieces);
    ek_sound_free(&s);
    return err;
}

int ek_cmd_preprocess(const ek_cli *cli)
{
    if (cli->image.n + cli->audio.n != 1) return ek_cli_wrong(cli, "either --image FILE or --audio FILE");
    if (ek_cli_replaces_media(cli)) return ek_cli_wrong(cli, "--out %s is the file that is read", cli->out);
    ek_buf file = {0};
    ek_err err = ek_cli_read_media(&file, cli);
    if (!err) {
        err = cli->has.image ? preprocess_image(cli, &file) : preprocess_sound(cli, &file);
        if (err && err != EK_EIO) ek_fail_in(err, "%s", cli->has.image ? cli->image.v[0] : cli->audio.v[0]);
    }
    ek_buf_fini(&file);
    return err ? ek_cli_failed(cli) : 0;
}
