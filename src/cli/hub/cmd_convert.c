/* convert: a model in another format. */
#include <signal.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/machine/cpu.h"
#include "cli/frame/cli.h"
#include "cli/frame/hub.h"
#include "cli/frame/terminal.h"
#include "convert/convert.h"

static volatile sig_atomic_t stopped;

static void stop(int number)
{
    (void)number;
    stopped = 1;
}

static ek_err convert(const ek_cli *cli, ek_convert_opts *o, ek_convert_report *report)
{
    static ek_config config; /* large */
    if (cli->has.synthetic) {
        EK_TRY(ek_config_published(&config, cli->synthetic, cli->has.layers ? (int)cli->layers : 0));
        o->invented = &config;
    }
    if (o->from) EK_TRY(ek_cli_find_model(o->from, &o->from));
    EK_TRY(ek_pool_open(&o->pool, cli->has.threads ? (int)cli->threads : ek_cpu_count()));
    ek_err err = ek_convert_model(o, report);
    ek_pool_close(o->pool);
    return err;
}

int ek_cmd_convert(const ek_cli *cli)
{
    ek_convert_report report;
    if (!cli->has.type) return ek_cli_wrong(cli, "--type is needed, as in --type q4_0");
    if (!cli->has.synthetic && !cli->arg_before)
        return ek_cli_wrong(cli, "SRC and DST are needed, or --synthetic and DST");
    if (cli->has.synthetic && cli->arg_before)
        return ek_cli_wrong(cli, "either SRC or --synthetic, not both: %s", cli->arg_before);
    ek_convert_opts o = {.type = cli->type,
                         .from = cli->arg_before,
                         .to = cli->arg,
                         .force = cli->force,
                         .max_file_bytes = cli->has.max_file_bytes ? cli->max_file_bytes : 0,
                         .seed = 1, /* the seed of bench, so the weights are the same */
                         .cancel = &stopped};
    if (ek_convert_check(&o)) return ek_cli_wrong(cli, "%s", ek_err_text());
    ek_cli_on_stop(stop, (int)SA_RESETHAND); /* a second signal ends the program */
    double start = ek_now();
    if (convert(cli, &o, &report)) return ek_cli_failed(cli);
    printf("%s: %d tensors in %d file%s, %.3f GB, %.1f s\n", cli->arg, report.tensors, report.files,
           report.files == 1 ? "" : "s", report.bytes / 1e9, ek_now() - start);
    return 0;
}
