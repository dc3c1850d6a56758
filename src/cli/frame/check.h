/* What no option tells alone. Inside src/cli. */
#ifndef EK_CLI_CHECK_H
#define EK_CLI_CHECK_H

#include "cli/frame/cli.h"

/* EINVAL for options that do not go together. Opens nothing; ek_cli_parse ends with it. */
ek_err ek_cli_check(const ek_cli *cli);

/* ETOOLONG for a --ctx beyond the model's context, max. */
ek_err ek_cli_check_ctx(const ek_cli *cli, int max);

#endif
