/* bench --pictures: how long a model's vision tower takes, beside the machine's limit. */
#ifndef EK_CLI_BENCH_PICTURES_H
#define EK_CLI_BENCH_PICTURES_H

#include "cli/frame/cli.h"

/* Instead of prompts and replies; returns the exit status. */
int ek_bench_pictures(const ek_cli *cli);

#endif
