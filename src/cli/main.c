#define _GNU_SOURCE /* environ */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/linux.h"
#include "base/machine/cpu.h"
#include "base/log.h"
#include "cli/frame/table.h"

/* Opens closed standard streams as unusable ones. Otherwise a file that is opened later could get the number of a
 * closed stream, and printed text would go into it. */
static void keep_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
}

static int (*const run[EK_CMD_COUNT])(const ek_cli *) = {
#define CMD(name, args, min_args, max_args, text) ek_cmd_##name,
#include "cli/frame/commands.def"
#undef CMD
};

int main(int argc, char **argv)
{
    keep_streams();
    /* If the reader goes away (head, a closed terminal), a write fails, and the program goes on. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* at a limit on file sizes a write fails, as on a full disk */
    ek_cli cli;
    int status;
    ek_buf unknown = {0};
    ek_cli_check_variables(&unknown, environ);
    fputs(ek_buf_text(&unknown), stderr);
    ek_buf_fini(&unknown);
    if (ek_cli_parse(&cli, argc, argv, getenv)) {
        fprintf(stderr, "evenkeel%s%s: %s\n", argc > 1 && cli.command != EK_CMD_help ? " " : "",
                argc > 1 && cli.command != EK_CMD_help ? ek_cmd_name(cli.command) : "", ek_err_text());
        status = 2;
    } else if (cli.help) {
        ek_buf b = {0};
        ek_cli_help(&b, cli.command, cli.help_all);
        fputs(ek_buf_text(&b), stdout);
        ek_buf_fini(&b);
        status = 0;
    } else if (ek_cpu_float_check()) {
        status = ek_cli_failed(&cli); /* a wrong rounding mode gives wrong answers, so the program ends */
    } else {
        if (cli.verbose) ek_log_set(EK_LOG_DEBUG);
        status = run[cli.command](&cli);
    }
    status = ek_cli_end(&cli, status);
    ek_cli_fini(&cli);
    return status;
}
