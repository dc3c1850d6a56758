#include "cli/open.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/file.h"
#include "chat/prompt.h"
#include "cli/cache.h"

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
    if (cli->has.model) {
        *dir = cli->model;
        return EK_OK;
    }
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
    *opts = (ek_model_opts){.exact = !strcmp(cli->weights, "exact"), .cpu = ek_cpu_detect()};
    EK_TRY(ek_kv_format_parse(cli->kv, &opts->k_format, &opts->v_format));
    EK_TRY(ek_activations_parse(cli->activations, &opts->activations));
    if (cli->has.isa) EK_TRY(ek_cpu_mask(cli->isa, &opts->cpu));
    EK_TRY(ek_pool_open(pool, cli->has.threads ? (int)cli->threads : ek_cpu_count()));
    opts->pool = *pool;
    return EK_OK;
}

/* Commands that measure or compare steps have no option --draft and do not draft. */
static bool drafts(const ek_cli *cli)
{
    return cli->command == EK_CMD_run || cli->command == EK_CMD_serve || cli->command == EK_CMD_generate;
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
    ek_store_backend store;
    ek_err err = EK_OK;
    if (cli->command == EK_CMD_run || cli->command == EK_CMD_serve) err = ek_cli_cache_opts(cli, m, &opts, &store);
    if (!err) err = ek_engine_open(&m->engine, m->model, &opts);
    if (err) ek_cli_close_model(m);
    return err;
}

ek_err ek_cli_open_engine(ek_cli_model *m, const ek_cli *cli, int max_requests, int max_queue)
{
    EK_TRY(ek_cli_open_model(m, cli));
    return ek_cli_add_engine(m, cli, max_requests, max_queue, cli->has.ctx ? (int)cli->ctx : 0);
}

void ek_cli_close_model(ek_cli_model *m)
{
    if (m->engine) ek_engine_close(m->engine);
    if (m->drafter) ek_drafter_close(m->drafter);
    if (m->model) ek_model_close(m->model);
    if (m->pool) ek_pool_close(m->pool);
    *m = (ek_cli_model){0};
}
