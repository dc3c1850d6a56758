/* Command lines for tests: words between blanks, or one value as a shell gives it. */
#ifndef EK_TESTS_CLI_PARSING_H
#define EK_TESTS_CLI_PARSING_H

#include "cli/frame/cli.h"

char *no_env(const char *name); /* NULL for every name */
ek_err parse_env(ek_cli *cli, ek_env_fn *env, const char *line);
ek_err parse(ek_cli *cli, const char *line);
/* One value of an option, whatever stands in it. */
ek_err parse_value(ek_cli *cli, const char *command, const char *option, const char *value);

#endif
