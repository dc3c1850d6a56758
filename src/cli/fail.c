/* Error reports of commands: ek_cli_failed, ek_cli_refused, ek_cli_wrong, and ek_cli_end. */
#include <stdio.h>

#include "cli/cli.h"

static bool told; /* the first failure says why; what follows from it is no second line */

int ek_cli_failed(const ek_cli *cli)
{
    told = true;
    fprintf(stderr, "evenkeel %s: %s\n", ek_cmd_name(cli->command), ek_err_text());
    return 1;
}

int ek_cli_refused(const ek_cli *cli, ek_err err)
{
    int failed = ek_cli_failed(cli);
    return err == EK_ETOOLONG ? 2 : failed;
}

int ek_cli_wrong(const ek_cli *cli, const char *fmt, ...)
{
    va_list args;
    told = true;
    va_start(args, fmt);
    fprintf(stderr, "evenkeel %s: ", ek_cmd_name(cli->command));
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    return 2;
}

int ek_cli_end(const ek_cli *cli, int status)
{
    if (!fflush(stdout) && !ferror(stdout)) return status;
    if (!told) fprintf(stderr, "evenkeel %s: standard output could not be written\n", ek_cmd_name(cli->command));
    return status ? status : 1;
}
