#include <stdio.h>

#include "cli/frame/cli.h"

static int print(ek_buf *b)
{
    fputs(ek_buf_text(b), stdout);
    ek_buf_fini(b);
    return 0;
}

int ek_cmd_help(const ek_cli *cli)
{
    ek_buf b = {0};
    if (cli->markdown) {
        ek_cli_markdown(&b);
        return print(&b);
    }
    if (!cli->arg) {
        ek_cli_usage(&b);
        return print(&b);
    }
    ek_cli other;
    char *argv[] = {"evenkeel", (char *)(uintptr_t)cli->arg, "--help", NULL};
    if (ek_cli_parse(&other, 3, argv, NULL)) return ek_cli_wrong(cli, "%s", ek_err_text());
    ek_cli_help(&b, other.command, false);
    ek_cli_fini(&other);
    return print(&b);
}
