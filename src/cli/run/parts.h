/* Pictures and sounds for a prompt of ids: what `logits` and `generate` are given beside --ids. */
#ifndef EK_CLI_RUN_PARTS_H
#define EK_CLI_RUN_PARTS_H

#include "cli/frame/open.h"

/* Zero-initialise; ek_cli_parts_fini when done. */
typedef struct ek_cli_parts {
    ek_part *part; /* owned, with a reference of each */
    int n;
} ek_cli_parts;

/* Reads the files of --image and --audio and gives each a run of soft tokens in --ids: of a kind in the order given.
 * EINVAL and EUNSUPPORTED in a sentence, with the file where it is about one. */
ek_err ek_cli_parts_read(ek_cli_parts *out, const ek_cli *cli, const ek_opened *m);
void ek_cli_parts_fini(ek_cli_parts *p);

#endif
