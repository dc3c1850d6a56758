/* pull: a model from the Hub into the cache. The path of what can be opened is printed. */
#include <stdio.h>

#include "cli/hub/fetch.h"
#include "cli/frame/hub.h"

int ek_cmd_pull(const ek_cli *cli)
{
    ek_hub_name name;
    ek_buf path = {0};
    if (ek_cli_hub_name(&name, cli->arg)) return ek_cli_wrong(cli, "%s", ek_err_text());
    ek_cli_fetch_opts o = {.connections = (int)cli->connections, .retries = (int)cli->retries};
    ek_err err = ek_cli_fetch(&path, &o, &name);
    if (!err) printf("%s\n", ek_buf_text(&path));
    ek_buf_fini(&path);
    return err ? ek_cli_failed(cli) : 0;
}
