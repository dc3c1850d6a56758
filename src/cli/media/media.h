/* What the commands of media share: the files that they read and write, and towers without a text model. */
#ifndef EK_CLI_MEDIA_MEDIA_H
#define EK_CLI_MEDIA_MEDIA_H

#include "base/buf.h"
#include "cli/frame/cli.h"
#include "gpu/tower/towers.h"
#include "media/part/part.h"
#include "media/picture.h"
#include "media/split.h"
#include "model/tower/tower.h"

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

/* A model's towers without its text model. */
typedef struct ek_cli_towers {
    ek_buf path; /* empty: --synthetic */
    ek_pool *pool;
    ek_towers *towers;
    unsigned cpu;        /* EK_CPU_* that the towers were opened for */
    ek_gpu *gpu;         /* NULL: the CPU encodes, or */
    ek_gpu_tower *tower; /* what was placed on it */
} ek_cli_towers;

/* Of --model, --synthetic or the bundled model. t is zeroed before; close it after a failure too. */
ek_err ek_cli_open_towers(ek_cli_towers *t, const ek_cli *cli);
void ek_cli_close_towers(ek_cli_towers *t);

/* Copies the weights of one sense to the device of --device. The CPU encodes where its kernels lack something for them,
 * which is logged, and with "auto" where there is no device with room. EUNSUPPORTED: the model does not have the sense,
 * or there is no driver; errors of the device and of packing. */
ek_err ek_cli_place_tower(ek_cli_towers *t, const ek_cli *cli, bool sound);

/* What was placed on the device encodes m into rows of host memory, at once. */
ek_err ek_cli_encode_there(const ek_cli_towers *t, const ek_media *m, float *rows);

#endif
