/* bench --pictures, --sounds: how long a model's towers take, on a CPU beside its limit, or on a device; with
 * --first-token also how long until the first token of a question with one. */
#ifndef EK_CLI_BENCH_TOWERS_H
#define EK_CLI_BENCH_TOWERS_H

#include "cli/frame/cli.h"

/* Instead of prompts and replies; returns the exit status. */
int ek_bench_towers(const ek_cli *cli);

#endif
