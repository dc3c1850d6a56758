/* Command-line options as options of open/open.h. */
#ifndef EK_CLI_OPEN_H
#define EK_CLI_OPEN_H

#include "cli/frame/cli.h"
#include "engine/engine.h"
#include "media/video/video.h"
#include "open/open.h"

/* --model, or the bundled model's folder (open/open.h). dir is valid until the process ends. */
ek_err ek_cli_model_dir(const ek_cli *cli, const char **dir);

/* The tokenizer of --model or of the bundled model; close it with ek_tokenizer_close. */
ek_err ek_cli_open_tokenizer(const ek_cli *cli, ek_tokenizer **out);

/* Fills out from the command's options; texts are borrowed from cli. EINVAL for cache options that exclude each other.
 */
ek_err ek_cli_open_opts(ek_open_opts *out, const ek_cli *cli);

/* ek_open_model. */
ek_err ek_cli_open_model(ek_opened *m, const ek_cli *cli, const ek_open_opts *o);

/* Opens model and engine, for at most max_requests at once and max_queue waiting ones; chat: with tokenizer and
 * template. ETOOLONG for a --ctx beyond the model's. */
ek_err ek_cli_open_engine(ek_opened *m, const ek_cli *cli, bool chat, int max_requests, int max_queue);

/* Where a model runs, for people: "on the CPU", "on the CPU (no NVIDIA driver)", "on cuda:0 (NVIDIA H100 …)"; "with
 * cuda:0 …" for several devices. */
void ek_cli_where(char *out, size_t room, const ek_cli *cli, const ek_opened *m);

/* --chunk, or by default the smallest number of prompt tokens that a step reads if the prompt has enough. */
int ek_cli_chunk(const ek_cli *cli);
/* --image-tokens, or by default the model's. */
int ek_cli_image_tokens(const ek_cli *cli, int of_model);
/* The path in a program's option (PROGRAM in options.def); NULL: the usual place. */
const char *ek_cli_program(const char *option);
/* The program of --ffmpeg; NULL: none. Errors name the option. */
ek_err ek_cli_ffmpeg(ek_ffmpeg **out, const ek_cli *cli);

/* Sampling options from the command line; defaults come from the model's generation_config.json. */
ek_sampling ek_cli_sampling(const ek_cli *cli, const ek_config *config);

#endif
