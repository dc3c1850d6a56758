/* Files that the commands of media read and write. */
#ifndef EK_CLI_MEDIA_FILES_H
#define EK_CLI_MEDIA_FILES_H

#include "base/buf.h"
#include "cli/frame/cli.h"
#include "media/picture.h"

/* What --image-tokens and --resize say. */
ek_picture_opts ek_cli_picture_opts(const ek_cli *cli);

/* The file of --image or --audio, of which one is given (else EINVAL), within the limits. */
ek_err ek_cli_read_media(ek_buf *out, const ek_cli *cli);

/* The result as a file; nothing is left of one that could not be written whole. */
ek_err ek_cli_write_file(const char *path, const void *bytes, size_t n);

#endif
