/* Opens pool, model, device and engine from the options --model, --kv, --weights, --activations, --device, --threads,
 * --isa and --chunk. */
#ifndef EK_CLI_OPEN_H
#define EK_CLI_OPEN_H

#include "base/pool.h"
#include "cli/cli.h"
#include "engine/engine.h"
#include "gpu/gpu.h"
#include "text/tokenizer.h"

/* --model, or the bundled model's folder, found from the program's path: models/pocket of
 * the source tree or ../share/evenkeel/models/pocket of an installation. ENOTFOUND names the folders
 * that were tried. dir is valid until the process ends. */
ek_err ek_cli_model_dir(const ek_cli *cli, const char **dir);

/* The tokenizer of --model or of the bundled model; close it with ek_tokenizer_close. */
ek_err ek_cli_open_tokenizer(const ek_cli *cli, ek_tokenizer **out);

/* Opens the thread pool and fills in the model's options. Close the pool after the model. */
ek_err ek_cli_model_opts(const ek_cli *cli, ek_model_opts *opts, ek_pool **pool);

/* --synthetic, --layers and --bits: random weights of a published shape. The configuration stays the caller's to read
 * through the model. */
ek_err ek_cli_open_synthetic(const ek_cli *cli, const ek_model_opts *opts, ek_model **out);

/* Opens --drafter, for the model that opts were made for, or the bundled model's. NULL without one, and where nothing
 * is drafted. */
ek_err ek_cli_open_drafter(const ek_cli *cli, const ek_model *model, const ek_model_opts *opts, ek_drafter **out);

/* --device. */
typedef struct ek_cli_device {
    bool cuda;       /* a CUDA device is looked for */
    bool may_be_cpu; /* auto: without one, the CPU */
    int ordinal;
} ek_cli_device;
/* EINVAL lists the choices. */
ek_err ek_cli_device_parse(const char *text, ek_cli_device *out);

/* Copies the model to the device that --device names. *out is NULL where that is the CPU; why (room bytes) then gets
 * the reason, "" if it was asked for. */
ek_err ek_cli_open_device(const ek_cli *cli, ek_model *model, ek_gpu **out, char *why, size_t room);

/* The device that --device names, in words; nothing is copied there: "cpu", with the reason after a colon if auto found
 * no device, or "cuda:0 (NVIDIA H100 …)". */
ek_err ek_cli_device_text(const ek_cli *cli, char *out, size_t room);

typedef struct ek_cli_model {
    const char *dir;
    ek_pool *pool;
    ek_model *model;
    ek_drafter *drafter; /* NULL without --drafter */
    ek_gpu *gpu;         /* NULL: the CPU */
    ek_engine *engine;   /* NULL after ek_cli_open_model */
} ek_cli_model;

/* Opens pool and model. Everything opened is closed again on failure. */
ek_err ek_cli_open_model(ek_cli_model *m, const ek_cli *cli);
/* The same and an engine for at most max_requests at once with --ctx, --chunk, --kv-memory
 * where the command has them; ETOOLONG for a --ctx beyond the model's; the engine's thread is not started. */
ek_err ek_cli_open_engine(ek_cli_model *m, const ek_cli *cli, int max_requests, int max_queue);
/* The engine alone, for a model that is open; ctx_tokens 0: the model's own. On a device, the model's weights in host
 * memory are freed once they are copied. */
ek_err ek_cli_add_engine(ek_cli_model *m, const ek_cli *cli, int max_requests, int max_queue, int ctx_tokens);
void ek_cli_close_model(ek_cli_model *m);

#endif
