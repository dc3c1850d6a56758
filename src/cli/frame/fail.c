/* Error reports of commands: ek_cli_failed, ek_cli_refused, ek_cli_wrong, and ek_cli_end. */
#include <signal.h>
#include <stdio.h>

#include "base/log.h"
#include "cli/frame/cli.h"
#include "cli/frame/terminal.h"

enum { READER_LEFT = 128 + SIGPIPE }; /* the status that a shell gives to a program that this signal ends */

static bool reported; /* the first failure is printed; failures that follow from it get no second line */

int ek_cli_failed(const ek_cli *cli)
{
    reported = true;
    if (ferror(stdout) && ek_cli_reader_left()) return READER_LEFT; /* the reader has all it wants (head) */
    char words[1200];
    int n = snprintf(words, sizeof words, "evenkeel %s: %s\n", ek_cmd_name(cli->command), ek_err_text());
    ek_log_last_words(words, (size_t)n);
    return 1;
}

int ek_cli_refused(const ek_cli *cli, ek_err err)
{
    int failed = ek_cli_failed(cli);
    return err == EK_ETOOLONG ? 2 : failed;
}

int ek_cli_wrong(const ek_cli *cli, const char *fmt, ...)
{
    char text[1024]; /* the text may contain arguments; ek_fail makes one line of them */
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    ek_fail(EK_EINVAL, "%s", text);
    ek_cli_failed(cli);
    return 2;
}

int ek_cli_end(const ek_cli *cli, int status)
{
    if (!fflush(stdout) && !ferror(stdout)) return status;
    if (ek_cli_reader_left()) return READER_LEFT;
    if (!reported) fprintf(stderr, "evenkeel %s: standard output could not be written\n", ek_cmd_name(cli->command));
    return status ? status : 1;
}
