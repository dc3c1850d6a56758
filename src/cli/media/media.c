#include "cli/media/media.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/machine/cpu.h"
#include "cli/frame/open.h"
#include "media/limits.h"
#include "open/device.h"

ek_picture_opts ek_cli_picture_opts(const ek_cli *cli)
{
    return (ek_picture_opts){.budget = ek_cli_image_tokens(cli, EK_BUDGET_IMAGE),
                             .resizer = strcmp(cli->resize, "pillow") == 0 ? EK_RESIZE_PILLOW : EK_RESIZE_TORCH,
                             .alpha = strcmp(cli->alpha, "white") == 0 ? EK_ALPHA_WHITE : EK_ALPHA_DROP};
}

ek_err ek_cli_read_sound(ek_sound *out, int *pieces, const ek_cli *cli, const ek_buf *file, ek_sound_kind kind)
{
    int tokens;
    *pieces = 1;
    if (!cli->cut_audio) return ek_sound_read(out, file->data, file->len, EK_SOUND_SECONDS);
    EK_TRY(ek_sound_read(out, file->data, file->len, EK_SOUND_MAX_SECONDS));
    *pieces = ek_sound_pieces(out->samples, kind);
    ek_err err = ek_sound_tokens_long(&tokens, out->samples, kind);
    if (err) ek_sound_free(out);
    return err;
}

ek_sound ek_cli_piece(const ek_cli *cli, const ek_sound *s, int i)
{
    return cli->cut_audio ? ek_sound_piece(s, i) : *s;
}

static const char *media_file(const ek_cli *cli)
{
    return cli->has.image ? cli->image.v[0] : cli->audio.v[0];
}

bool ek_cli_replaces_media(const ek_cli *cli)
{
    return cli->has.out && ek_is_same_place(media_file(cli), cli->out);
}

ek_err ek_cli_read_media(ek_buf *out, const ek_cli *cli)
{
    if (cli->image.n + cli->audio.n != 1) return ek_fail(EK_EINVAL, "either --image FILE or --audio FILE");
    return ek_file_read(out, media_file(cli), EK_MEDIA_MAX_BYTES);
}

/* Nothing may take half a result for a whole one. */
ek_err ek_cli_write_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f) return ek_file_failed(path);
    bool good = fwrite(bytes, 1, n, f) == n;
    good = fclose(f) == 0 && good;
    if (good) return EK_OK;
    ek_err err = ek_file_failed(path);
    if (ek_is_file(path)) remove(path);
    return err;
}

ek_err ek_cli_open_towers(ek_cli_towers *t, const ek_cli *cli)
{
    const char *dir;
    ek_open_opts o;
    ek_model_opts model;
    if (!cli->has.model && !cli->has.synthetic) EK_TRY(ek_cli_model_dir(cli, &dir)); /* its message names --model */
    EK_TRY(ek_cli_open_opts(&o, cli));
    EK_TRY(ek_open_check(&o));
    EK_TRY(ek_open_model_opts(&o, &model));
    if (!o.synthetic) EK_TRY(ek_open_path(&t->path, &o));
    EK_TRY(ek_pool_open_nodes(&t->pool, o.threads ? o.threads : ek_cpu_count(), ""));
    model.pool = t->pool;
    t->cpu = model.cpu;
    const ek_towers_opts towers = ek_open_towers_opts(&o, &model);
    return ek_towers_open(&t->towers, ek_buf_text(&t->path), &towers);
}

void ek_cli_close_towers(ek_cli_towers *t)
{
    ek_gpu_tower_close(t->tower);
    ek_gpu_close(t->gpu);
    ek_towers_close(t->towers);
    if (t->pool) ek_pool_close(t->pool);
    ek_buf_fini(&t->path);
    *t = (ek_cli_towers){0};
}

static ek_err place(ek_cli_towers *t, const ek_device *d, bool sound, bool *lacks)
{
    ek_gpu_driver driver;
    EK_TRY(ek_device_driver(&driver, d));
    EK_TRY(ek_gpu_open_device(&t->gpu, &driver, d->ordinal[0]));
    EK_TRY(sound ? ek_towers_load_sound(t->towers) : ek_towers_load_image(t->towers));
    const ek_err err = ek_gpu_tower_open(&t->tower, t->gpu,
                                         sound ? ek_towers_sound_part(t->towers) : ek_towers_image_part(t->towers));
    *lacks = err == EK_EUNSUPPORTED;
    return err;
}

ek_err ek_cli_place_tower(ek_cli_towers *t, const ek_cli *cli, bool sound)
{
    ek_device d;
    bool lacks = false;
    EK_TRY(ek_device_parse(&d, cli->device));
    EK_TRY(sound ? ek_towers_takes_sound(t->towers) : ek_towers_takes_image(t->towers));
    if (!d.gpu) return EK_OK;
    const ek_err err = place(t, &d, sound, &lacks);
    if (!err || !(lacks || d.may_be_cpu)) return err;
    ek_log(lacks ? EK_LOG_WARN : EK_LOG_DEBUG, "the CPU encodes: %s", ek_err_text());
    ek_gpu_close(t->gpu);
    t->gpu = NULL;
    return EK_OK;
}

ek_err ek_cli_encode_there(const ek_cli_towers *t, const ek_media *m, float *rows)
{
    bool done;
    EK_TRY(ek_gpu_tower_begin(t->tower, m, rows));
    return ek_gpu_tower_advance(t->tower, INFINITY, &done);
}
