/* generate: continues given token ids. */
#include <limits.h>
#include <stdio.h>

#include "cli/frame/open.h"
#include "cli/frame/sampling.h"
#include "cli/run/parts.h"

typedef struct reply {
    ek_buf ids;
    ek_finish finish;
    char text[256];
} reply;

static void on_event(void *arg, const ek_event *event)
{
    reply *r = arg;
    if (event->token >= 0) ek_buf_fmt(&r->ids, "%s%d", r->ids.len ? "," : "", event->token);
    if (event->text) snprintf(r->text, sizeof r->text, "%s", event->text);
    r->finish = event->finish;
}

static void print(const ek_cli *cli, reply *r)
{
    if (cli->json) {
        printf("{\"ids\":[%s],\"finish_reason\":\"%s\"}\n", ek_buf_text(&r->ids),
               r->finish == EK_FINISH_STOP ? "stop" : "length");
        return;
    }
    for (size_t i = 0; i < r->ids.len; i++)
        if (r->ids.data[i] == ',') r->ids.data[i] = ' ';
    puts(ek_buf_text(&r->ids));
}

static int run(const ek_cli *cli, ek_engine *e, const ek_cli_parts *parts, reply *r)
{
    int64_t max_tokens = cli->has.max_tokens ? cli->max_tokens : 128;
    ek_request_opts o = {.tokens = cli->ids.v,
                         .n_tokens = cli->ids.n,
                         .part = parts->part,
                         .n_parts = parts->n,
                         .max_tokens = max_tokens < INT_MAX ? (int)max_tokens : INT_MAX,
                         .sampling = ek_cli_sampling(cli, ek_model_config(ek_engine_model(e))),
                         .ignore_eos = cli->ignore_eos,
                         .sink = on_event,
                         .arg = r};
    if (ek_engine_submit(e, &o, NULL)) return ek_cli_wrong(cli, "%s", ek_err_text());
    while (ek_engine_step(e)) continue;
    if (r->finish == EK_FINISH_ERROR) {
        ek_fail(EK_EINTERNAL, "%s", r->text);
        return ek_cli_failed(cli);
    }
    print(cli, r);
    return 0;
}

int ek_cmd_generate(const ek_cli *cli)
{
    if (!cli->has.ids) return ek_cli_wrong(cli, "--ids is missing: the tokens of the prompt, as in --ids 2,17,9");
    ek_opened m;
    if (ek_cli_open_engine(&m, cli, false, 1, 0)) return ek_cli_failed(cli);
    reply r = {0};
    ek_cli_parts parts = {0};
    int status = ek_cli_parts_read(&parts, cli, &m) ? ek_cli_wrong(cli, "%s", ek_err_text())
                                                    : run(cli, m.engine, &parts, &r);
    ek_cli_parts_fini(&parts);
    ek_buf_fini(&r.ids);
    ek_opened_close(&m);
    return status;
}
