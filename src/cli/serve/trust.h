/* Keys of `receipts key` for files of replies. Inside src/cli/serve. */
#ifndef EK_CLI_SERVE_TRUST_H
#define EK_CLI_SERVE_TRUST_H

#include "cli/frame/cli.h"
#include "receipts/key.h"
#include "replies/cassette.h"

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
