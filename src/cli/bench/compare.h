/* bench --compare: this engine and another server under the same traffic. */
#ifndef EK_CLI_COMPARE_H
#define EK_CLI_COMPARE_H

#include "cli/frame/cli.h"

/* Serves the model of the call on a free port of 127.0.0.1, drives it and --compare in turns, and prints both as a
 * table or as JSON. Returns the exit status. */
int ek_bench_compare(const ek_cli *cli);

#endif
