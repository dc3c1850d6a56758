/* A model's towers without its text model, for commands that encode. */
#ifndef EK_CLI_MEDIA_TOWERS_H
#define EK_CLI_MEDIA_TOWERS_H

#include "cli/frame/cli.h"
#include "gpu/tower/towers.h"
#include "media/part/part.h"
#include "model/tower/tower.h"

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
