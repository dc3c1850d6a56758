/* The options of the command line as those of open/open.h. */
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

/* What the command's options say; texts are borrowed from cli. EINVAL for options of the cache that do not go
 * together. */
ek_err ek_cli_open_opts(ek_open_opts *out, const ek_cli *cli);

/* ek_open_model. */
ek_err ek_cli_open_model(ek_opened *m, const ek_cli *cli, const ek_open_opts *o);

/* Model and engine for at most max_requests at once, max_queue that wait; with chat also tokenizer and template.
 * ETOOLONG for a --ctx beyond the model's. */
ek_err ek_cli_open_engine(ek_opened *m, const ek_cli *cli, bool chat, int max_requests, int max_queue);
/* With the tokenizer and chat template too, and for one request. */
ek_err ek_cli_open_chat(ek_opened *m, const ek_cli *cli);

/* Where a model runs, in a person's words: "on the CPU", "on the CPU (no NVIDIA driver)", "on cuda:0 (NVIDIA H100 …)",
 * "with cuda:0 …" of several. */
void ek_cli_where(char *out, size_t room, const ek_cli *cli, const ek_opened *m);

/* What --chunk says; without it the least that a step reads of a prompt where there is enough of it. */
int ek_cli_chunk(const ek_cli *cli);
/* What --image-tokens says; without it what the model does. */
int ek_cli_image_tokens(const ek_cli *cli, int of_model);
/* The path that an option of a program says (PROGRAM in options.def); NULL: none, it is where it usually is. */
const char *ek_cli_program(const char *option);
/* The program of --ffmpeg; NULL without. Errors name the option. */
ek_err ek_cli_ffmpeg(ek_ffmpeg **out, const ek_cli *cli);

/* Sampling options from the command line; those not given come from the model's generation_config.json. */
ek_sampling ek_cli_sampling(const ek_cli *cli, const ek_config *config);

#endif
