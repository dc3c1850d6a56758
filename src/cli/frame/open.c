#include "cli/frame/open.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/store.h"
#include "cli/frame/hub.h"
#include "open/open.h"

ek_err ek_cli_model_dir(const ek_cli *cli, const char **dir)
{
    static ek_buf bundled;
    if (cli->has.model) return ek_cli_find_model(cli->model, dir);
    ek_buf why = {0};
    ek_buf_clear(&bundled);
    ek_err err = ek_bundled_find(&bundled);
    if (err) {
        ek_buf_str(&why, ek_err_text());
        ek_fail(err, "no --model given, and %s", ek_buf_text(&why));
        ek_buf_fini(&why);
    }
    *dir = ek_buf_text(&bundled);
    return err;
}

ek_err ek_cli_open_tokenizer(const ek_cli *cli, ek_tokenizer **out)
{
    const char *path;
    EK_TRY(ek_cli_model_dir(cli, &path));
    return ek_chat_tokenizer_open(out, path);
}

/* Commands that measure or compare steps have no option --draft and do not draft. `draft` has only a drafter. */
static const char *draft_of(const ek_cli *cli)
{
    if (cli->command == EK_CMD_draft) return "auto";
    const bool drafts = cli->command == EK_CMD_run || cli->command == EK_CMD_serve || cli->command == EK_CMD_generate ||
                        cli->command == EK_CMD_batch;
    return drafts ? cli->draft : "off";
}

/* 0 means none in the option, and the default in the field. */
static double none_if_zero(bool has, double value)
{
    return !has ? 0 : value == 0 ? EK_OPEN_NONE : value;
}

/* The messages use the words of the options. */
static ek_err check_cache(const ek_cli *cli, const ek_open_opts *o)
{
    const char *kept = cli->has.cache_dir          ? "--cache-dir"
                       : cli->has.cache_host_bytes ? "--cache-host-bytes"
                       : cli->has.cache_shared     ? "--cache-shared"
                                                   : NULL;
    if (kept && o->cache_bytes == EK_OPEN_NONE)
        return ek_fail(EK_EINVAL, "%s keeps what --cache-bytes 0 does not allow", kept);
    if (o->cache_shared && ek_store_shared_check(o->cache_shared)) return ek_fail_in(EK_EINVAL, "--cache-shared");
    return EK_OK;
}

/* The gap is limited only for commands where somebody waits for each token. */
static double max_gap_of(const ek_cli *cli)
{
    return cli->command == EK_CMD_serve && cli->max_gap > 0 ? (double)cli->max_gap / 1000 : EK_OPEN_NONE;
}

ek_err ek_cli_open_opts(ek_open_opts *out, const ek_cli *cli)
{
    *out = (ek_open_opts){
        .model = cli->has.model ? cli->model : NULL,
        .synthetic = cli->has.synthetic ? cli->synthetic : NULL,
        .synthetic_layers = cli->has.layers ? (int)cli->layers : 0,
        .synthetic_bits = atoi(cli->bits),
        .mmproj = cli->has.mmproj ? cli->mmproj : NULL,
        .weights = cli->weights,
        .kv = cli->kv,
        .kv_start = (int)cli->kv_start,
        .activations = cli->activations,
        .device = cli->device,
        .split = cli->split,
        .tune = cli->tune,
        .gpu_bytes = cli->has.gpu_memory ? cli->gpu_memory : 0,
        .threads = cli->has.threads ? (int)cli->threads : 0,
        .isa = cli->has.isa ? cli->isa : NULL,
        .packed_dir = cli->has.packed_cache ? cli->packed_cache : NULL,
        .chunk = cli->has.chunk ? (int)cli->chunk : 0,
        .max_gap = max_gap_of(cli),
        .draft = draft_of(cli),
        .draft_max = (int)cli->draft_max,
        .drafter = cli->has.drafter ? cli->drafter : NULL,
        .drafter_url = cli->has.drafter_url ? cli->drafter_url : NULL,
        .ctx_tokens = cli->has.ctx ? (int)cli->ctx : 0,
        .kv_bytes = cli->has.kv_memory ? cli->kv_memory : 0,
        .cache_bytes = none_if_zero(cli->has.cache_bytes, cli->cache_bytes),
        .cache_host_bytes = cli->has.cache_host_bytes ? cli->cache_host_bytes : 0,
        .cache_dir = cli->has.cache_dir ? cli->cache_dir : NULL,
        .cache_disk_bytes = cli->cache_disk_bytes,
        .cache_wait = cli->command == EK_CMD_serve ? (double)cli->drain_timeout + 5 : 0, /* the other may drain */
        .media = cli->command == EK_CMD_run || cli->command == EK_CMD_serve || cli->command == EK_CMD_verify ||
                 cli->command == EK_CMD_logits || cli->command == EK_CMD_generate || cli->command == EK_CMD_batch,
        .feature_bytes = none_if_zero(true, cli->feature_bytes),
        .cache_audit = none_if_zero(cli->has.cache_audit, cli->cache_audit),
        .cache_shared = cli->has.cache_shared ? cli->cache_shared : NULL,
        .cache_shared_bytes = cli->cache_shared_bytes,
        .cache_shared_rate = cli->cache_shared_rate,
        .cache_shared_read_only = cli->command == EK_CMD_serve && !strcmp(cli->role, "decode"),
        .cache_shared_ca = cli->has.cache_shared_ca ? cli->cache_shared_ca : NULL,
        .cache_shared_cert = cli->has.cache_shared_cert ? cli->cache_shared_cert : NULL,
        .tell_held = cli->has.kv_events,
    };
    return check_cache(cli, out);
}

ek_err ek_cli_open_model(ek_opened *m, const ek_cli *cli, const ek_open_opts *o)
{
    const char *dir;
    *m = (ek_opened){0};
    if (!cli->has.model && !o->synthetic) EK_TRY(ek_cli_model_dir(cli, &dir)); /* its message names --model */
    return ek_open_model(m, o);
}

ek_err ek_cli_open_engine(ek_opened *m, const ek_cli *cli, bool chat, int max_requests, int max_queue)
{
    ek_open_opts o;
    *m = (ek_opened){0};
    EK_TRY(ek_cli_open_opts(&o, cli));
    o.chat = chat;
    o.max_requests = max_requests;
    o.max_queue = max_queue > 0 ? max_queue : EK_OPEN_NONE;
    EK_TRY(ek_cli_open_model(m, cli, &o));
    const ek_err err = ek_cli_check_ctx(cli, ek_model_config(m->model)->max_position_embeddings);
    if (!err) return ek_open_engine(m, &o);
    ek_opened_close(m);
    return err;
}

int ek_cli_chunk(const ek_cli *cli)
{
    return cli->has.chunk ? (int)cli->chunk : ek_engine_defaults().chunk;
}

void ek_cli_where(char *out, size_t room, const ek_cli *cli, const ek_opened *m)
{
    ek_gpu_driver driver;
    if (m->ranks) snprintf(out, room, "with %s", ek_ranks_text(m->ranks));
    else if (m->gpu) snprintf(out, room, "on %s", ek_gpu_text(m->gpu));
    else if (!strcmp(cli->device, "auto") && ek_gpu_driver_load(&driver) == EK_ENOTFOUND)
        snprintf(out, room, "on the CPU (no NVIDIA driver)");
    else snprintf(out, room, "on the CPU");
}

int ek_cli_image_tokens(const ek_cli *cli, int of_model)
{
    return cli->has.image_tokens ? atoi(cli->image_tokens) : of_model;
}

const char *ek_cli_program(const char *option)
{
    return option && strcmp(option, "on") != 0 ? option : NULL;
}

ek_err ek_cli_ffmpeg(ek_ffmpeg **out, const ek_cli *cli)
{
    *out = NULL;
    if (!cli->ffmpeg) return EK_OK;
    ek_err err = ek_ffmpeg_open(out, ek_cli_program(cli->ffmpeg));
    return err ? ek_fail_in(err, "--ffmpeg") : EK_OK;
}

ek_sampling ek_cli_sampling(const ek_cli *cli, const ek_config *config)
{
    ek_sampling s = ek_sampling_greedy();
    int64_t top_k = cli->has.top_k ? cli->top_k : config->top_k;
    s.temperature = cli->has.temperature ? (float)cli->temperature : config->temperature;
    s.top_k = top_k < INT_MAX ? (int)top_k : INT_MAX;
    s.top_p = cli->has.top_p ? (float)cli->top_p : config->top_p;
    s.min_p = (float)cli->min_p;
    s.repetition_penalty = (float)cli->repetition_penalty;
    s.seed = (uint64_t)cli->seed;
    return s;
}
