/* A server's stored replies: in memory, its folder, and files. */
#ifndef EK_CLI_SERVE_REPLIES_H
#define EK_CLI_SERVE_REPLIES_H

#include "cli/frame/cli.h"
#include "open/open.h"
#include "replies/replies.h"

/* EINVAL for options that exclude each other. */
ek_err ek_serve_check_replies(const ek_cli *cli);
/* Opens the store; NULL without --cache-replies and --replies. m has the model's weights unless --no-engine. */
ek_err ek_serve_open_replies(ek_replies **out, const ek_cli *cli, ek_opened *m);
/* ek_server_opts.digest, from a store's identity, because with --no-engine the model's files may be missing. */
ek_err ek_serve_digest(void *replies, char out[EK_MODEL_DIGEST]);
/* The numerics id in the store's identity; the caller frees it. */
char *ek_serve_numerics(const ek_replies *r);

#endif
