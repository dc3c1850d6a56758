/* run: one answer, or a chat. */
#include "cli/run/chat.h"
#include "cli/hub/fetch.h"

int ek_cmd_run(const ek_cli *cli)
{
    static ek_dialogue d; /* large */
    if (ek_cli_fetch_missing(cli)) return ek_cli_failed(cli);
    ek_err err = ek_dialogue_open(&d, cli);
    int status = err ? ek_cli_refused(cli, err) : cli->arg ? ek_chat_once(&d, cli->arg) : ek_chat_run(&d);
    ek_dialogue_close(&d);
    return status;
}
