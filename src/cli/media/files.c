#include "cli/media/files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "media/limits.h"

ek_picture_opts ek_cli_picture_opts(const ek_cli *cli)
{
    return (ek_picture_opts){.budget = atoi(cli->image_tokens),
                             .resizer = strcmp(cli->resize, "pillow") == 0 ? EK_RESIZE_PILLOW : EK_RESIZE_TORCH};
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
