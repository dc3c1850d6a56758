/* The options --cache-bytes, --cache-audit, --cache-host-bytes, --cache-dir and --cache-disk-bytes of commands that
 * keep a cache. */
#ifndef EK_CLI_CACHE_H
#define EK_CLI_CACHE_H

#include "cli/open.h"

/* Fills in the engine's options; with --cache-dir or --cache-host-bytes opens a store, which opts then points to
 * and which the engine closes. What a GPU keeps and what the CPU keeps are apart. */
ek_err ek_cli_cache_opts(const ek_cli *cli, const ek_cli_model *m, ek_engine_opts *opts, ek_store_backend *store);

#endif
