/* Files that the commands of media read and write. */
#ifndef EK_CLI_MEDIA_FILES_H
#define EK_CLI_MEDIA_FILES_H

#include "base/buf.h"
#include "cli/frame/cli.h"
#include "media/picture.h"
#include "media/split.h"

/* What --image-tokens, --resize and --alpha say. */
ek_picture_opts ek_cli_picture_opts(const ek_cli *cli);
/* A sound, by --cut-audio one of many pieces, and how many those are for a model that hears like this: 1 without. */
ek_err ek_cli_read_sound(ek_sound *out, int *pieces, const ek_cli *cli, const ek_buf *file, ek_sound_kind kind);
/* Piece i of them; borrowed. */
ek_sound ek_cli_piece(const ek_cli *cli, const ek_sound *s, int i);

/* The file of --image or --audio, of which one is given (else EINVAL), within the limits. */
ek_err ek_cli_read_media(ek_buf *out, const ek_cli *cli);

/* The result as a file; nothing is left of one that could not be written whole. */
ek_err ek_cli_write_file(const char *path, const void *bytes, size_t n);

#endif
