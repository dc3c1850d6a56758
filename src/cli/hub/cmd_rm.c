/* rm: takes a model out of the cache, after a question. */
#include <stdio.h>
#include <unistd.h>

#include "cli/hub/fetch.h"
#include "cli/frame/hub.h"
#include "hub/store.h"

/* true: the user wants it. */
static bool agreed(const ek_hub_name *name, const ek_hub_removal *r)
{
    char size[16];
    ek_buf text = {0};
    ek_cli_size_text(size, r->bytes);
    ek_hub_name_text(&text, name);
    fprintf(stderr, "Remove %s (%s) from the cache? [y/N] ", ek_buf_text(&text), size);
    fflush(stderr);
    ek_buf_fini(&text);
    return ek_cli_yes();
}

static ek_err removed(const ek_cli *cli, const ek_hub_places *places, const ek_hub_name *name)
{
    ek_hub_removal r;
    char size[16];
    ek_err err = ek_hub_removal_plan(&r, places->cache, name);
    if (!err && !cli->yes && !isatty(STDIN_FILENO))
        err = ek_fail(EK_EINVAL, "nobody can be asked here; --yes removes without a question");
    if (!err && !cli->yes && !agreed(name, &r)) {
        fprintf(stderr, "nothing is removed\n");
    } else if (!err) {
        err = ek_hub_removal_run(&r, places->cache, name);
        ek_cli_size_text(size, r.bytes);
        if (!err) printf("%s freed\n", size);
    }
    ek_hub_removal_fini(&r);
    return err;
}

int ek_cmd_rm(const ek_cli *cli)
{
    ek_hub_name name;
    ek_hub_places places;
    if (ek_cli_hub_name(&name, cli->arg)) return ek_cli_wrong(cli, "%s", ek_err_text());
    ek_err err = ek_cli_hub_places(&places);
    if (!err) err = removed(cli, &places, &name);
    ek_hub_places_fini(&places);
    return err ? ek_cli_failed(cli) : 0;
}
