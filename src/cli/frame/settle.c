/* Rules beyond a single option: the arguments of run, limits in one option, the device of a test, and options that
 * exclude each other. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/frame/table.h"
#include "hub/name.h"
#include "model/model.h"
#include "open/device.h"
#include "open/open.h"

/* Whether a single argument names a model: a path, a repository, a name, another program's name, or nearly a name.
 * Sentences are prompts, even if they begin or end with a file. Times and fractions are prompts, too. */
static bool names_model(const char *text)
{
    static const char in_names[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/:@~+=%-";
    const bool from_here = *text == '/' || !strncmp(text, "./", 2) || !strncmp(text, "../", 3) ||
                           !strncmp(text, "~/", 2);
    if (!access(text, F_OK)) return true;
    if (text[strcspn(text, " \t\n")]) return from_here && ek_model_is_file_name(text);
    if (from_here || ek_model_is_file_name(text)) return true;
    if (!*text || text[strspn(text, in_names)]) return false;
    if (!text[strspn(text, "0123456789./:")]) return false;
    const char *colon = strchr(text, ':');
    return strchr(text, '/') || (colon && colon > text && colon[1] && !strchr(colon + 1, ':')) ||
           ek_hub_short_find(text) || ek_hub_is_other_family(text) || ek_hub_short_near(text);
}

/* run's arguments are a model and a prompt. A single argument is a model if it names one, or beside -p. */
static ek_err settle_run(ek_cli *cli, int n_args)
{
    const char *model = n_args == 2                                                              ? cli->arg_before
                        : n_args == 1 && !cli->has.model && (cli->text || names_model(cli->arg)) ? cli->arg
                                                                                                 : NULL;
    const char *prompt = n_args == 2 || (n_args == 1 && !model) ? cli->arg : NULL;
    if ((model && cli->has.model && n_args == 2) || (prompt && cli->text))
        return ek_fail(EK_EINVAL, "%.60s is one argument too many; usage: evenkeel run [OPTIONS] %s", cli->arg,
                       ek_commands[EK_CMD_run].args);
    if (model && !*model) return ek_fail(EK_EINVAL, "MODEL: an empty value");
    if (model) cli->model = model, cli->has.model = true;
    cli->arg = cli->text ? cli->text : prompt;
    cli->arg_before = NULL;
    if (cli->lines && cli->arg)
        return ek_fail(EK_EINVAL, "either --lines, where each line of standard input is a message, or PROMPT");
    return EK_OK;
}

/* Limits the CUDA device to another device's kernels, for tests. The features are a part of --device, which says where
 * the model runs. */
static ek_err settle_features(ek_cli *cli, const char *features)
{
    ek_device device;
    const int n = snprintf(cli->device_text, sizeof cli->device_text, "%s@%s", cli->device, features);
    if (n >= (int)sizeof cli->device_text)
        return ek_fail(EK_EINVAL, "EVENKEEL_FEATURES: %.40s... is no architecture", features);
    if (ek_device_parse(&device, cli->device_text)) return ek_fail_in(EK_EINVAL, "EVENKEEL_FEATURES");
    cli->device = cli->device_text;
    return EK_OK;
}

/* MODEL as an argument of commands that take --model. */
static ek_err settle_model(ek_cli *cli)
{
    if (!cli->arg) return EK_OK;
    if (cli->has.model || cli->has.synthetic)
        return ek_fail(EK_EINVAL, "%.60s and --%s: one model is needed", cli->arg,
                       cli->has.model ? "model" : "synthetic");
    if (!*cli->arg) return ek_fail(EK_EINVAL, "MODEL: an empty value");
    cli->model = cli->arg, cli->has.model = true;
    cli->arg = NULL;
    return EK_OK;
}

static bool has_device(ek_cmd_id command)
{
    for (int i = 0; i < ek_n_options; i++)
        if (!strcmp(ek_options[i].name, "device")) return ek_options[i].commands >> command & 1;
    return false;
}

/* One NAME=N of --limits, which is a row of the table without commands. */
static ek_err set_limit(ek_cli *cli, const char *name, const char *value)
{
    for (int i = 0; i < ek_n_options; i++) {
        const ek_option *o = &ek_options[i];
        ek_buf where = {0};
        ek_name_flag(&where, o->name);
        const bool same = !o->commands && !strcmp(ek_buf_text(&where) + 2, name);
        ek_buf_clear(&where);
        ek_buf_fmt(&where, "--limits %s", name);
        const ek_given g = {o, ek_buf_text(&where), value};
        const ek_err err = same ? ek_option_set(cli, &g) : EK_OK;
        ek_buf_fini(&where);
        if (same) return err;
    }
    return ek_fail(EK_EINVAL, "--limits %.40s: max-json-values, max-messages, prepare-queue or body-rate is needed",
                   name);
}

static ek_err settle_limits(ek_cli *cli)
{
    for (const char *at = cli->limits;; at++) {
        char name[64];
        const size_t n = strcspn(at, ",");
        if (n >= sizeof name) return ek_fail(EK_EINVAL, "--limits %.60s...: NAME=N is needed", at);
        memcpy(name, at, n);
        name[n] = '\0';
        char *value = strchr(name, '=');
        if (!value) return ek_fail(EK_EINVAL, "--limits \"%s\": NAME=N is needed", name);
        *value++ = '\0';
        EK_TRY(set_limit(cli, name, value));
        at += n;
        if (!*at) return EK_OK;
    }
}

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

ek_err ek_cli_check_ctx(const ek_cli *cli, int max)
{
    if (!cli->has.ctx || cli->ctx <= max) return EK_OK;
    return ek_fail(EK_ETOOLONG, "--ctx %d, the model's context is %d", (int)cli->ctx, max);
}

ek_err ek_cli_settle(ek_cli *cli, int n_args, ek_env_fn *env)
{
    if (cli->command == EK_CMD_run) EK_TRY(settle_run(cli, n_args));
    if (cli->command == EK_CMD_serve || cli->command == EK_CMD_bench || cli->command == EK_CMD_selftest)
        EK_TRY(settle_model(cli));
    const char *features = env ? env("EVENKEEL_FEATURES") : NULL;
    if (features && *features && has_device(cli->command)) EK_TRY(settle_features(cli, features));
    if (cli->has.limits) EK_TRY(settle_limits(cli));
    EK_TRY(check_synthetic(cli));
    return check_kv_start(cli);
}
