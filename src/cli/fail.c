/* Error reports of commands: ek_cli_failed, ek_cli_refused and ek_cli_wrong. */
#include <stdio.h>

#include "cli/cli.h"

int ek_cli_failed(const ek_cli *cli)
{
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
    va_start(args, fmt);
    fprintf(stderr, "evenkeel %s: ", ek_cmd_name(cli->command));
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    return 2;
}
