/* Sampling options from the command line; those not given come from the model's generation_config.json. */
#ifndef EK_CLI_SAMPLING_H
#define EK_CLI_SAMPLING_H

#include "cli/frame/cli.h"
#include "engine/engine.h"

ek_sampling ek_cli_sampling(const ek_cli *cli, const ek_config *config);

#endif
