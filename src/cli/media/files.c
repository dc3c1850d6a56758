#include "cli/media/files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/frame/open.h"
#include "media/limits.h"

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
    if (!cli->cut_audio) return ek_sound_read(out, file->data, file->len);
    EK_TRY(ek_sound_read_long(out, file->data, file->len));
    *pieces = ek_sound_pieces(out->samples, kind);
    ek_err err = ek_sound_tokens_long(&tokens, out->samples, kind);
    if (err) ek_sound_free(out);
    return err;
}

ek_sound ek_cli_piece(const ek_cli *cli, const ek_sound *s, int i)
{
    return cli->cut_audio ? ek_sound_piece(s, i) : *s;
}

ek_err ek_cli_read_media(ek_buf *out, const ek_cli *cli)
{
    if (cli->image.n + cli->audio.n != 1) return ek_fail(EK_EINVAL, "either --image FILE or --audio FILE");
    return ek_file_read(out, cli->has.image ? cli->image.v[0] : cli->audio.v[0], EK_MEDIA_MAX_BYTES);
}

/* Half a result must not be taken for one. */
ek_err ek_cli_write_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f) return ek_fail(EK_EIO, "%s: %s", path, strerror(errno));
    bool good = fwrite(bytes, 1, n, f) == n;
    good = fclose(f) == 0 && good;
    if (good) return EK_OK;
    ek_err err = ek_fail(EK_EIO, "%s: %s", path, strerror(errno));
    if (ek_is_file(path)) remove(path);
    return err;
}
