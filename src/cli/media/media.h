/* Code that the media commands share: reading and writing files, and towers without a text model. */
#ifndef EK_CLI_MEDIA_MEDIA_H
#define EK_CLI_MEDIA_MEDIA_H

#include "base/buf.h"
#include "cli/frame/cli.h"
#include "gpu/tower/towers.h"
#include "media/mel.h"
#include "media/part/part.h"
#include "media/picture.h"
#include "model/tower/tower.h"

/* From --image-tokens, --resize and --alpha. */
ek_picture_opts ek_cli_picture_opts(const ek_cli *cli);
/* Reads a sound. *pieces: with --cut-audio the number of pieces for this kind of model, otherwise 1. */
ek_err ek_cli_read_sound(ek_sound *out, int *pieces, const ek_cli *cli, const ek_buf *file, ek_sound_kind kind);
/* Piece i of the sound; borrowed. */
ek_sound ek_cli_piece(const ek_cli *cli, const ek_sound *s, int i);

/* Reads the file of --image or --audio, within the limits. EINVAL unless exactly one is given. */
ek_err ek_cli_read_media(ek_buf *out, const ek_cli *cli);
/* Whether --out is this file. */
bool ek_cli_replaces_media(const ek_cli *cli);

/* Writes the result to a file; an incomplete file is removed. */
ek_err ek_cli_write_file(const char *path, const void *bytes, size_t n);

/* A model's towers without its text model. */
typedef struct ek_cli_towers {
    ek_buf path; /* empty: --synthetic */
    ek_pool *pool;
    ek_towers *towers;
    unsigned cpu;        /* the EK_CPU_* bits of the towers */
    ek_gpu *gpu;         /* NULL: the CPU encodes */
    ek_gpu_tower *tower; /* the tower on the device; NULL: the CPU encodes */
} ek_cli_towers;

/* Opens the towers of --model, --synthetic or the bundled model. t is zeroed before; close it in any case. */
ek_err ek_cli_open_towers(ek_cli_towers *t, const ek_cli *cli);
void ek_cli_close_towers(ek_cli_towers *t);

/* Copies the weights of one sense to the device of --device. The CPU encodes if the device's kernels lack support,
 * which is logged, and with "auto" if no device has room. EUNSUPPORTED: the model lacks the sense, or there is no
 * driver; errors of the device and of packing. */
ek_err ek_cli_place_tower(ek_cli_towers *t, const ek_cli *cli, bool sound);

/* Encodes m on the device, at once, into rows of host memory. */
ek_err ek_cli_encode_there(const ek_cli_towers *t, const ek_media *m, float *rows);

#endif
