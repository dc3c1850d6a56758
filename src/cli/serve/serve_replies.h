/* A server's stored replies: in memory, its folder, and files; and the keys of `receipts key` for files of replies. */
#ifndef EK_CLI_SERVE_REPLIES_H
#define EK_CLI_SERVE_REPLIES_H

#include "cli/frame/cli.h"
#include "open/open.h"
#include "receipts/key.h"
#include "replies/cassette.h"
#include "replies/replies.h"

/* EINVAL for options that exclude each other. */
ek_err ek_serve_check_replies(const ek_cli *cli);
/* Opens the store; NULL without --cache-replies and --replies. m has the model's weights unless --no-engine. */
ek_err ek_serve_open_replies(ek_replies **out, const ek_cli *cli, ek_opened *m);
/* ek_server_opts.digest, from a store's identity, because with --no-engine the model's files may be missing. */
ek_err ek_serve_digest(void *replies, char out[EK_MODEL_DIGEST]);
/* The numerics id in the store's identity; the caller frees it. */
char *ek_serve_numerics(const ek_replies *r);

/* The public keys of --trust. Zero-initialise. */
typedef struct ek_trust {
    ek_public_key *key;
    int n;
} ek_trust;

/* Errors of ek_public_key_read with the path. */
ek_err ek_trust_open(ek_trust *t, const ek_names *paths);
void ek_trust_close(ek_trust *t);
/* Whether one of the keys made the signature. */
bool ek_trust_has(const ek_trust *t, const char *key, const char *signature, size_t n_signature, const void *message,
                  size_t n);

/* Serves as ek_cassette_signer.sign; key: an ek_signing_key. */
ek_err ek_trust_sign(void *key, ek_buf *signature, const void *message, size_t n);

#endif
