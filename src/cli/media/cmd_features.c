/* features: the rows that a model's tower makes of a picture or a sound, as they enter the text model. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/machine/cpu.h"
#include "cli/frame/open.h"
#include "cli/media/files.h"
#include "gpu/tower/tower.h"
#include "open/device.h"

typedef struct opened {
    ek_buf path;
    ek_pool *pool;
    ek_towers *towers;
    ek_gpu *gpu; /* NULL: the CPU encodes */
    ek_gpu_tower *tower;
} opened;

static void close_all(opened *m)
{
    ek_gpu_tower_close(m->tower);
    ek_gpu_close(m->gpu);
    ek_towers_close(m->towers);
    if (m->pool) ek_pool_close(m->pool);
    ek_buf_fini(&m->path);
}

static ek_err open_towers(opened *m, const ek_cli *cli)
{
    const char *dir;
    ek_open_opts o;
    ek_model_opts model;
    if (!cli->has.model) EK_TRY(ek_cli_model_dir(cli, &dir)); /* its sentence speaks of --model */
    EK_TRY(ek_cli_open_opts(&o, cli));
    EK_TRY(ek_open_check(&o));
    EK_TRY(ek_open_model_opts(&o, &model));
    EK_TRY(ek_open_path(&m->path, &o));
    EK_TRY(ek_pool_open_nodes(&m->pool, o.threads ? o.threads : ek_cpu_count(), ""));
    const ek_towers_opts towers = {.cpu = model.cpu,
                                   .exact = model.exact,
                                   .quantise = model.quantise,
                                   .pool = m->pool,
                                   .packed_dir = model.packed_dir,
                                   .mmproj = o.mmproj};
    return ek_towers_open(&m->towers, ek_buf_text(&m->path), &towers);
}

/* On the device, but for what its kernels lack. */
static ek_err open_tower(opened *m, bool sound, int ordinal)
{
    ek_gpu_driver driver;
    EK_TRY(ek_gpu_driver_load(&driver));
    EK_TRY(ek_gpu_open_device(&m->gpu, &driver, ordinal));
    EK_TRY(sound ? ek_towers_load_sound(m->towers) : ek_towers_load_image(m->towers));
    const ek_err err = ek_gpu_tower_open(&m->tower, m->gpu,
                                         sound ? ek_towers_sound_part(m->towers) : ek_towers_image_part(m->towers));
    if (err != EK_EUNSUPPORTED) return err;
    ek_log(EK_LOG_WARN, "the CPU encodes: %s", ek_err_text());
    return EK_OK;
}

static ek_err open_device(opened *m, const ek_cli *cli)
{
    ek_device d;
    EK_TRY(ek_device_parse(&d, cli->device));
    if (!d.cuda) return EK_OK;
    EK_TRY(cli->has.image ? ek_towers_takes_image(m->towers) : ek_towers_takes_sound(m->towers));
    const ek_err err = open_tower(m, !cli->has.image, d.ordinal[0]);
    return d.may_be_cpu ? EK_OK : err;
}

static ek_err read_image(ek_picture *out, const ek_towers *t, const ek_cli *cli, const ek_buf *file)
{
    ek_picture_opts o = ek_cli_picture_opts(cli);
    EK_TRY(ek_towers_takes_image(t));
    o.patching = ek_towers_get(t)->patching;
    o.budget = ek_cli_image_tokens(cli, ek_towers_get(t)->image_tokens);
    return ek_picture_read(out, file->data, file->len, &o);
}

/* In slices of --chunk rows' work; the rows are appended to out, and the work is freed. */
static void encode(ek_buf *out, ek_tower_work *w, const ek_towers *t, const ek_cli *cli)
{
    int rows;
    bool done = false;
    const double slice = ek_tower_left(w) * (double)cli->chunk / 1024;
    while (!done) ek_tower_advance(w, slice, &done);
    const float *v = ek_tower_rows(w, &rows);
    ek_buf_add(out, v, sizeof *v * (size_t)rows * (size_t)ek_towers_get(t)->hidden);
    ek_tower_free(w);
}

static ek_err encode_on_device(ek_buf *out, const opened *m, const ek_media *media)
{
    const size_t n = (size_t)media->tokens * (size_t)ek_towers_get(m->towers)->hidden;
    float *rows = ek_alloc(sizeof *rows * n);
    bool done;
    ek_err err = ek_gpu_tower_begin(m->tower, media, rows);
    if (!err) err = ek_gpu_tower_advance(m->tower, INFINITY, &done);
    if (!err) ek_buf_add(out, rows, sizeof *rows * n);
    free(rows);
    return err;
}

static ek_err encode_image(ek_buf *out, const opened *m, const ek_cli *cli, const ek_buf *file)
{
    ek_media media = {.kind = EK_PART_IMAGE};
    ek_picture *const p = &media.picture;
    ek_tower_work *work;
    EK_TRY(read_image(p, m->towers, cli, file));
    media.tokens = p->fit.tokens;
    ek_err err = m->tower ? encode_on_device(out, m, &media) : ek_tower_begin_image(&work, m->towers, p);
    if (!err && !m->tower) encode(out, work, m->towers, cli);
    ek_picture_free(p);
    return err;
}

/* One piece after the other. */
static ek_err encode_sound(ek_buf *out, const opened *m, const ek_cli *cli, const ek_buf *file)
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
        if (!err) err = m->tower ? encode_on_device(out, m, &media) : ek_tower_begin_sound(&work, t, &media.sound);
        if (!err && !m->tower) encode(out, work, t, cli);
    }
    ek_sound_free(&s);
    return err;
}

static ek_err run(const ek_cli *cli, opened *m)
{
    ek_buf file = {0}, rows = {0};
    ek_err err = open_device(m, cli);
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
    opened m = {0};
    ek_err err = open_towers(&m, cli);
    if (!err) err = run(cli, &m);
    close_all(&m);
    return err ? ek_cli_failed(cli) : 0;
}
