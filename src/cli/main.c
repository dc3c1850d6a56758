#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cpu.h"
#include "cli/table.h"

int ek_cli_failed(const ek_cli *cli)
{
    fprintf(stderr, "evenkeel %s: %s\n", ek_cmd_name(cli->command), ek_err_text());
    return 1;
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
    ek_cli_help(&b, other.command);
    ek_cli_fini(&other);
    return print(&b);
}

int main(int argc, char **argv)
{
    /* A reader that goes away (head, a closed terminal) ends the write, not the program's logic. */
    signal(SIGPIPE, SIG_IGN);
    ek_cli cli;
    int status;
    ek_buf b = {0};
    if (ek_cli_parse(&cli, argc, argv, getenv)) {
        fprintf(stderr, "evenkeel%s%s: %s\n", argc > 1 && cli.command != EK_CMD_help ? " " : "",
                argc > 1 && cli.command != EK_CMD_help ? ek_cmd_name(cli.command) : "", ek_err_text());
        status = 2;
    } else if (cli.help) {
        ek_cli_help(&b, cli.command);
        status = print(&b);
    } else if (ek_cpu_float_check()) {
        status = ek_cli_failed(&cli); /* an answer from a wrong rounding mode is worse than none */
    } else {
        status = ek_commands[cli.command].run(&cli);
    }
    ek_cli_fini(&cli);
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "evenkeel: standard output could not be written\n");
        if (!status) status = 1;
    }
    return status;
}
