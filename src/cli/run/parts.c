#include "cli/run/parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "cli/frame/open.h"
#include "media/limits.h"

static ek_err read_file(ek_media **out, const ek_cli *cli, const ek_towers_info *takes, const char *path, bool sound)
{
    const ek_picture_opts o = {.budget = ek_cli_image_tokens(cli, takes->image_tokens),
                               .resizer = strcmp(cli->resize, "pillow") == 0 ? EK_RESIZE_PILLOW : EK_RESIZE_TORCH,
                               .patching = takes->patching};
    ek_buf file = {0};
    EK_TRY(ek_file_read(&file, path, EK_MEDIA_MAX_BYTES));
    ek_err err = sound ? ek_media_read_sound(out, file.data, file.len, takes->sound_kind)
                       : ek_media_read_picture(out, EK_PART_IMAGE, file.data, file.len, &o);
    ek_buf_fini(&file);
    return err ? ek_fail_in(err, "%s", path) : EK_OK;
}

static ek_err check_takes(const ek_cli *cli, const ek_opened *m)
{
    if (!m->towers) return ek_fail(EK_EUNSUPPORTED, "this model takes text alone");
    if (cli->image.n) EK_TRY(ek_towers_takes_image(m->towers));
    if (cli->audio.n) EK_TRY(ek_towers_takes_sound(m->towers));
    return EK_OK;
}

ek_err ek_cli_parts_read(ek_cli_parts *out, const ek_cli *cli, const ek_opened *m)
{
    const int n = cli->image.n + cli->audio.n;
    if (n == 0) return EK_OK;
    EK_TRY(check_takes(cli, m));
    out->part = ek_alloc(sizeof *out->part * (size_t)n);
    for (; out->n < n; out->n++) {
        const bool sound = out->n >= cli->image.n;
        const char *path = sound ? cli->audio.v[out->n - cli->image.n] : cli->image.v[out->n];
        EK_TRY(read_file(&out->part[out->n].media, cli, ek_towers_get(m->towers), path, sound));
    }
    return ek_parts_place(out->part, n, cli->ids.v, cli->ids.n, &ek_model_config(m->model)->media);
}

void ek_cli_parts_fini(ek_cli_parts *p)
{
    for (int i = 0; i < p->n; i++) ek_media_release(p->part[i].media);
    free(p->part);
    *p = (ek_cli_parts){0};
}
