/* features: the rows that a model's tower computes for a picture or a sound, in the form in which they enter the text
 * model. */
#include <stdlib.h>

#include "base/alloc.h"
#include "cli/frame/open.h"
#include "cli/media/media.h"

static ek_err read_image(ek_picture *out, const ek_towers *t, const ek_cli *cli, const ek_buf *file)
{
    ek_picture_opts o = ek_cli_picture_opts(cli);
    EK_TRY(ek_towers_takes_image(t));
    o.patching = ek_towers_get(t)->patching;
    o.budget = ek_cli_image_tokens(cli, ek_towers_get(t)->image_tokens);
    return ek_picture_read(out, file->data, file->len, &o);
}

/* Encodes in slices, each with the work of --chunk rows. Appends the rows to out and frees the work. */
static void encode(ek_buf *out, ek_tower_work *w, const ek_towers *t, const ek_cli *cli)
{
    int rows;
    bool done = false;
    const double slice = ek_tower_left(w) * (double)ek_cli_chunk(cli) / 1024;
    while (!done) ek_tower_advance(w, slice, &done);
    const float *v = ek_tower_rows(w, &rows);
    ek_buf_add(out, v, sizeof *v * (size_t)rows * (size_t)ek_towers_get(t)->hidden);
    ek_tower_free(w);
}

static ek_err encode_on_device(ek_buf *out, const ek_cli_towers *t, const ek_media *media)
{
    const size_t n = (size_t)media->tokens * (size_t)ek_towers_get(t->towers)->hidden;
    float *rows = ek_alloc(sizeof *rows * n);
    const ek_err err = ek_cli_encode_there(t, media, rows);
    if (!err) ek_buf_add(out, rows, sizeof *rows * n);
    free(rows);
    return err;
}

static ek_err encode_image(ek_buf *out, const ek_cli_towers *m, const ek_cli *cli, const ek_buf *file)
{
    ek_media media = {.kind = EK_PART_IMAGE};
    ek_picture *const p = &media.picture;
    ek_tower_work *work;
    EK_TRY(read_image(p, m->towers, cli, file));
    media.tokens = p->fit.tokens;
    ek_err err = m->gpu ? encode_on_device(out, m, &media) : ek_tower_begin_image(&work, m->towers, p);
    if (!err && !m->gpu) encode(out, work, m->towers, cli);
    ek_picture_free(p);
    return err;
}

/* Encodes the pieces one after the other. */
static ek_err encode_sound(ek_buf *out, const ek_cli_towers *m, const ek_cli *cli, const ek_buf *file)
{
    ek_towers *const t = m->towers;
    ek_sound s;
    int pieces;
    EK_TRY(ek_towers_takes_sound(t));
    EK_TRY(ek_cli_read_sound(&s, &pieces, cli, file, ek_towers_get(t)->sound_kind));
    ek_err err = EK_OK;
    for (int i = 0; !err && i < pieces; i++) {
        ek_media media = {.kind = EK_PART_SOUND, .sound = ek_cli_piece(cli, &s, i)};
        ek_tower_work *work;
        err = ek_sound_tokens(&media.tokens, media.sound.samples, ek_towers_get(t)->sound_kind);
        if (!err) err = m->gpu ? encode_on_device(out, m, &media) : ek_tower_begin_sound(&work, t, &media.sound);
        if (!err && !m->gpu) encode(out, work, t, cli);
    }
    ek_sound_free(&s);
    return err;
}

static ek_err run(const ek_cli *cli, ek_cli_towers *m)
{
    ek_buf file = {0}, rows = {0};
    ek_err err = ek_cli_place_tower(m, cli, !cli->has.image);
    if (!err) err = ek_cli_read_media(&file, cli);
    if (!err) {
        err = (cli->has.image ? encode_image : encode_sound)(&rows, m, cli, &file);
        if (err) ek_fail_in(err, "%s", cli->has.image ? cli->image.v[0] : cli->audio.v[0]);
    }
    if (!err) err = ek_cli_write_file(cli->out, rows.data, rows.len);
    ek_buf_fini(&file);
    ek_buf_fini(&rows);
    return err;
}

int ek_cmd_features(const ek_cli *cli)
{
    if (cli->image.n + cli->audio.n != 1) return ek_cli_wrong(cli, "either --image FILE or --audio FILE");
    if (!cli->has.out) return ek_cli_wrong(cli, "--out is missing: the file for the rows");
    if (ek_cli_replaces_media(cli)) return ek_cli_wrong(cli, "--out %s is the file that is read", cli->out);
    ek_cli_towers m = {0};
    ek_err err = ek_cli_open_towers(&m, cli);
    if (!err) err = run(cli, &m);
    ek_cli_close_towers(&m);
    return err ? ek_cli_failed(cli) : 0;
}
