/* diff: finds the first line, token and log-probability that differ in two results of batch. Exit status 0: none
 * differs. */
#include <stdio.h>

#include "batch/batch.h"
#include "cli/frame/cli.h"
#include "cli/frame/terminal.h"

int ek_cmd_diff(const ek_cli *cli)
{
    ek_buf text = {0};
    bool same;
    const ek_err err = ek_batch_diff(&text, &same, cli->arg_before, cli->arg);
    if (!err) {
        ek_cli_put(stdout, same ? "equal" : ek_buf_text(&text));
        putchar('\n');
    }
    ek_buf_fini(&text);
    return err ? ek_cli_failed(cli) : !same;
}
