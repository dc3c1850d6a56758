#include "cli/frame/check.h"

#include "model/model.h"

static ek_err check_synthetic(const ek_cli *cli)
{
    static ek_config config; /* large */
    if (cli->has.synthetic && cli->has.model) return ek_fail(EK_EINVAL, "either --model or --synthetic, not both");
    if (cli->command == EK_CMD_inspect && cli->has.synthetic == !!cli->arg)
        return ek_fail(EK_EINVAL, cli->arg ? "either MODEL or --synthetic, not both"
                                           : "MODEL is missing; usage: evenkeel inspect [OPTIONS] [MODEL]");
    if (!cli->has.layers) return EK_OK;
    if (!cli->has.synthetic) return ek_fail(EK_EINVAL, "--layers cuts a --synthetic model only");
    ek_err err = ek_config_published(&config, cli->synthetic, (int)cli->layers);
    return err ? ek_fail_in(err, "--layers") : EK_OK;
}

static ek_err check_kv_start(const ek_cli *cli)
{
    ek_kv_format k, v;
    EK_TRY(ek_kv_format_parse(cli->kv, &k, &v));
    ek_err err = ek_model_check_start((int)cli->kv_start, k, v);
    return err ? ek_fail_in(err, "--kv-start") : EK_OK;
}

ek_err ek_cli_check(const ek_cli *cli)
{
    EK_TRY(check_synthetic(cli));
    return check_kv_start(cli);
}

ek_err ek_cli_check_ctx(const ek_cli *cli, int max)
{
    if (!cli->has.ctx || cli->ctx <= max) return EK_OK;
    return ek_fail(EK_ETOOLONG, "--ctx %d, the model's context is %d", (int)cli->ctx, max);
}
