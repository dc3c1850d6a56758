#include "cli/open.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/file.h"
#include "base/log.h"
#include "chat/prompt.h"
#include "cli/cache.h"
#include "cli/check.h"
#include "cli/hub.h"
#include "engine/executor.h"

/* dir/tail, if it is a folder. */
static bool found(char *out, size_t room, const char *dir, const char *tail)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", dir, tail);
    if (n < 0 || (size_t)n >= sizeof path || !realpath(path, out) || strlen(out) >= room) return false;
    return ek_is_dir(out);
}

ek_err ek_cli_model_dir(const ek_cli *cli, const char **dir)
{
    static char bundled[PATH_MAX];
    if (cli->has.model) return ek_cli_find_model(cli->model, dir);
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        return ek_fail(EK_ENOTFOUND,
                       "no --model given, and the bundled one cannot be looked for: /proc/self/exe is unreadable");
    self[n] = '\0';
    char *slash = strrchr(self, '/');
    *slash = '\0';
    /* PREFIX/bin/evenkeel, then build/CONF/evenkeel in the source tree, then the tree itself. */
    static const char *const tails[] = {"../share/evenkeel/models/pocket", "../../models/pocket", "models/pocket",
                                        "../models/pocket"};
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++)
        if (found(bundled, sizeof bundled, self, tails[i])) {
            *dir = bundled;
            return EK_OK;
        }
    return ek_fail(
        EK_ENOTFOUND,
        "no --model given, and the bundled model is neither in %s/../share/evenkeel/models/pocket nor in %s/../../models/pocket",
        self, self);
}

ek_err ek_cli_open_tokenizer(const ek_cli *cli, ek_tokenizer **out)
{
    const char *path;
    EK_TRY(ek_cli_model_dir(cli, &path));
    return ek_chat_tokenizer_open(out, path);
}

ek_err ek_cli_model_opts(const ek_cli *cli, ek_model_opts *opts, ek_pool **pool)
{
    *opts = (ek_model_opts){
        .exact = !strcmp(cli->weights, "exact"), .quantise = !strcmp(cli->weights, "8"), .cpu = ek_cpu_detect()};
    if (cli->has.packed_cache) opts->packed_dir = cli->packed_cache;
    EK_TRY(ek_kv_format_parse(cli->kv, &opts->k_format, &opts->v_format));
    opts->kv_start = (int)cli->kv_start;
    EK_TRY(ek_activations_parse(cli->activations, &opts->activations));
    ek_cli_device device;
    EK_TRY(ek_cli_device_parse(cli->device, &device)); /* before anything is loaded */
    if (cli->has.isa) EK_TRY(ek_cpu_mask(cli->isa, &opts->cpu));
    EK_TRY(ek_pool_open_nodes(pool, cli->has.threads ? (int)cli->threads : ek_cpu_count(), ""));
    opts->pool = *pool;
    return EK_OK;
}

/* Commands that measure or compare steps have no option --draft and do not draft. */
static bool drafts(const ek_cli *cli)
{
    return cli->command == EK_CMD_run || cli->command == EK_CMD_serve || cli->command == EK_CMD_generate;
}

ek_err ek_cli_open_synthetic(const ek_cli *cli, const ek_model_opts *opts, ek_model **out)
{
    static ek_config config; /* large, and the same each time */
    EK_TRY(ek_config_published(&config, cli->synthetic, cli->has.layers ? (int)cli->layers : 0));
    return ek_model_synthetic(out, &config, atoi(cli->bits), 1, opts);
}

/* The bundled model has a drafter beside it. */
static bool bundled_drafter(const ek_cli *cli, char *out, size_t room)
{
    const char *dir;
    if (ek_cli_model_dir(cli, &dir)) return false;
    int n = snprintf(out, room, "%s-drafter", dir);
    return n > 0 && (size_t)n < room && ek_is_dir(out);
}

ek_err ek_cli_open_drafter(const ek_cli *cli, const ek_model *model, const ek_model_opts *opts, ek_drafter **out)
{
    char bundled[PATH_MAX];
    const char *dir = cli->drafter;
    *out = NULL;
    if (cli->command != EK_CMD_draft && (!drafts(cli) || strcmp(cli->draft, "auto") != 0)) return EK_OK;
    if (!cli->has.drafter && !cli->has.model && bundled_drafter(cli, bundled, sizeof bundled)) dir = bundled;
    if (!dir) return EK_OK;
    EK_TRY(ek_cli_find_model(dir, &dir));
    EK_TRY(ek_drafter_open(out, dir, model, opts));
    ek_drafter_set_position(*out, strcmp(cli->rope_position, "n") ? EK_ROPE_N_MINUS_1 : EK_ROPE_N);
    return EK_OK;
}

ek_err ek_cli_open_model(ek_cli_model *m, const ek_cli *cli)
{
    *m = (ek_cli_model){0};
    ek_model_opts opts;
    EK_TRY(ek_cli_model_dir(cli, &m->dir));
    EK_TRY(ek_cli_model_opts(cli, &opts, &m->pool));
    ek_err err = ek_model_open(&m->model, m->dir, &opts);
    if (!err) err = ek_cli_open_drafter(cli, m->model, &opts, &m->drafter);
    if (err) ek_cli_close_model(m);
    return err;
}

ek_err ek_cli_device_parse(const char *text, ek_cli_device *out)
{
    char rest;
    *out = (ek_cli_device){.cuda = true};
    if (!strcmp(text, "auto")) out->may_be_cpu = true;
    else if (!strcmp(text, "cpu")) out->cuda = false;
    else if (strcmp(text, "cuda") != 0 && (strspn(text + 5 * !strncmp(text, "cuda:", 5), "0123456789") == 0 ||
                                           sscanf(text, "cuda:%4d%c", &out->ordinal, &rest) != 1))
        return ek_fail(EK_EINVAL, "device %.40s; there are auto, cpu, cuda and cuda:N", text);
    return EK_OK;
}

ek_err ek_cli_open_device(const ek_cli *cli, ek_model *model, ek_gpu **out, char *why, size_t room)
{
    ek_cli_device d;
    ek_gpu_driver driver;
    *out = NULL;
    why[0] = '\0';
    EK_TRY(ek_cli_device_parse(cli->device, &d));
    if (!d.cuda) return EK_OK;
    ek_err err = ek_gpu_driver_load(&driver);
    if (!err) err = ek_gpu_open(out, &driver, model, d.ordinal);
    if (!err || !d.may_be_cpu) return err;
    snprintf(why, room, "%s", ek_err_text());
    return EK_OK;
}

ek_err ek_cli_device_text(const ek_cli *cli, char *out, size_t room)
{
    ek_cli_device d;
    ek_gpu_driver driver;
    ek_cuda *c;
    EK_TRY(ek_cli_device_parse(cli->device, &d));
    snprintf(out, room, "cpu");
    if (!d.cuda) return EK_OK;
    ek_err err = ek_gpu_driver_load(&driver);
    if (!err) err = ek_cuda_open(&c, &driver.api, driver.modules, driver.built_with, d.ordinal);
    if (err && !d.may_be_cpu) return err;
    if (err) snprintf(out, room, "cpu: %s", ek_err_text());
    else snprintf(out, room, "cuda:%d (%s)", d.ordinal, ek_cuda_text(c));
    if (!err) ek_cuda_close(c);
    return EK_OK;
}

/* An engine on m->gpu or the CPU. */
static ek_err open_engine(ek_cli_model *m, const ek_cli *cli, const ek_engine_opts *with)
{
    ek_engine_opts opts = *with;
    ek_store_backend store = {0};
    if (cli->command == EK_CMD_run || cli->command == EK_CMD_serve) EK_TRY(ek_cli_cache_opts(cli, m, &opts, &store));
    if (!m->gpu) return ek_engine_open(&m->engine, m->model, &opts);
    ek_executor on = ek_gpu_executor(m->gpu);
    return ek_engine_open_on(&m->engine, &on, &opts);
}

static ek_err add_drafter(const ek_cli_model *m, const ek_engine_opts *opts)
{
    return opts->draft == EK_DRAFT_AUTO && m->drafter ? ek_gpu_add_drafter(m->gpu, m->drafter) : EK_OK;
}

/* What was copied to the device. */
static void release_weights(const ek_cli_model *m)
{
    ek_model_release_weights(m->model);
    if (m->drafter) ek_model_release_weights(ek_drafter_model(m->drafter));
}

/* On the device, or, with auto, on the CPU if the device has no room for the engine either. */
static ek_err open_engine_on_device(ek_cli_model *m, const ek_cli *cli, const ek_engine_opts *opts)
{
    char why[512];
    ek_cli_device d;
    EK_TRY(ek_cli_device_parse(cli->device, &d));
    EK_TRY(ek_cli_open_device(cli, m->model, &m->gpu, why, sizeof why));
    if (why[0]) ek_log(EK_LOG_INFO, "device cpu: %s", why);
    if (!m->gpu) return open_engine(m, cli, opts);
    ek_err err = add_drafter(m, opts);
    if (err && d.may_be_cpu) {
        ek_log(EK_LOG_WARN, "drafts come from the text: %s", ek_err_text());
        err = EK_OK;
    }
    if (!err) err = open_engine(m, cli, opts);
    if (!err) release_weights(m);
    if (!err || !d.may_be_cpu) return err;
    ek_log(EK_LOG_WARN, "device cpu: %s", ek_err_text());
    ek_gpu_close(m->gpu);
    m->gpu = NULL;
    return open_engine(m, cli, opts);
}

ek_err ek_cli_add_engine(ek_cli_model *m, const ek_cli *cli, int max_requests, int max_queue, int ctx_tokens)
{
    ek_engine_opts opts = ek_engine_defaults();
    opts.max_requests = max_requests;
    opts.max_queue = max_queue;
    opts.chunk = (int)cli->chunk;
    if (ctx_tokens > 0) opts.ctx_tokens = ctx_tokens;
    if (drafts(cli)) {
        opts.draft = !strcmp(cli->draft, "off")     ? EK_DRAFT_OFF
                     : !strcmp(cli->draft, "ngram") ? EK_DRAFT_NGRAM
                                                    : EK_DRAFT_AUTO;
        opts.draft_max = (int)cli->draft_max;
        opts.drafter = m->drafter;
    }
    if (cli->has.kv_memory) opts.kv_bytes = cli->kv_memory;
    ek_err err = open_engine_on_device(m, cli, &opts);
    if (err) ek_cli_close_model(m);
    return err;
}

ek_err ek_cli_open_engine(ek_cli_model *m, const ek_cli *cli, int max_requests, int max_queue)
{
    EK_TRY(ek_cli_open_model(m, cli));
    ek_err err = ek_cli_check_ctx(cli, ek_model_config(m->model)->max_position_embeddings);
    if (err) {
        ek_cli_close_model(m);
        return err;
    }
    return ek_cli_add_engine(m, cli, max_requests, max_queue, cli->has.ctx ? (int)cli->ctx : 0);
}

void ek_cli_close_model(ek_cli_model *m)
{
    if (m->engine) ek_engine_close(m->engine);
    if (m->drafter) ek_drafter_close(m->drafter);
    ek_gpu_close(m->gpu);
    if (m->model) ek_model_close(m->model);
    if (m->pool) ek_pool_close(m->pool);
    *m = (ek_cli_model){0};
}
