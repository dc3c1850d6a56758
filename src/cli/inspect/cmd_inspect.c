/* inspect: what a checkpoint is, what it needs, whether it runs and why not. */
#include "cli/inspect/inspect.h"

int ek_cmd_inspect(const ek_cli *cli)
{
    static ek_inspect r; /* large */
    ek_err err = ek_inspect_read(&r, cli);
    if (err) return ek_cli_refused(cli, err);
    if (cli->json) ek_inspect_print_json(&r);
    else ek_inspect_print(&r);
    return 0;
}
