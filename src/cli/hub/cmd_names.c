/* names: the short names of models. */
#define _GNU_SOURCE /* strcasestr */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "cli/frame/cli.h"
#include "hub/name.h"

static bool wanted(const ek_cli *cli, const ek_hub_short *s)
{
    return !cli->arg || strcasestr(s->name, cli->arg) || strcasestr(s->model, cli->arg);
}

static void print_table(const ek_cli *cli)
{
    printf("%-12s  %8s  %-52s  %s\n", "name", "about", "model on the Hub", "what it is");
    for (int i = 0; i < ek_hub_n_shorts; i++) {
        const ek_hub_short *s = &ek_hub_shorts[i];
        if (wanted(cli, s)) printf("%-12s  %5.1f GB  %-52s  %s\n", s->name, s->gigabytes, s->model, s->text);
    }
    printf(
        "\nA name stands wherever a model does: `evenkeel run e2b`, `evenkeel serve --model 12b:q8`, `evenkeel pull 26b`.\n");
}

static void print_json(const ek_cli *cli)
{
    json_t *list = json_array();
    for (int i = 0; i < ek_hub_n_shorts; i++) {
        const ek_hub_short *s = &ek_hub_shorts[i];
        if (wanted(cli, s))
            json_array_append_new(list, json_pack("{s:s,s:s,s:f,s:s}", "name", s->name, "model", s->model, "gigabytes",
                                                  s->gigabytes, "what", s->text));
    }
    json_dumpf(list, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6) | JSON_ENSURE_ASCII);
    printf("\n");
    json_decref(list);
}

int ek_cmd_names(const ek_cli *cli)
{
    int n = 0;
    for (int i = 0; i < ek_hub_n_shorts; i++) n += wanted(cli, &ek_hub_shorts[i]);
    if (!n) {
        ek_buf near = {0};
        ek_hub_short_suggest(&near, cli->arg);
        ek_fail(EK_ENOTFOUND, "no name has %.80s in it; there are %s", cli->arg, ek_buf_text(&near));
        ek_buf_fini(&near);
        return ek_cli_failed(cli);
    }
    if (cli->json) print_json(cli);
    else print_table(cli);
    return 0;
}
