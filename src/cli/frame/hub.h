/* Models by the names of their repositories. */
#ifndef EK_CLI_HUB_H
#define EK_CLI_HUB_H

#include "cli/frame/cli.h"
#include "hub/client.h"
#include "hub/name.h"

/* A repository in full, or by a short name (hub/name.h). EINVAL suggests names. */
ek_err ek_cli_hub_name(ek_hub_name *out, const char *text);

/* The path to open: text itself if it exists as a path, or else the repository of that name in the cache (no network).
 * ENOTFOUND names the command that fetches it. *path is valid until the process ends. */
ek_err ek_cli_find_model(const char *text, const char **path);

/* A server's default name of its model: --model if it names a repository, else the last part of the path. The caller
 * frees it. */
char *ek_cli_model_name(const ek_cli *cli, const char *path);

/* "1.25 GB", with powers of 1000. */
void ek_cli_size_text(char out[16], double bytes);

#endif
