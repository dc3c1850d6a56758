/* The keys that sign receipts: Ed25519 (RFC 8032) by OpenSSL's libcrypto. Built without libcrypto, every function that
 * needs a key returns EUNSUPPORTED.
 *
 * Libraries disagree on the edge cases of this signature. The rule here: S < L, canonical A and R, no cofactor, and no
 * public key of small order. Under these eight keys one signature fits many messages. */
#ifndef EK_RECEIPTS_KEY_H
#define EK_RECEIPTS_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { EK_PUBLIC_KEY = 32, EK_SIGNATURE = 64, EK_KEY_ID = 65 }; /* bytes; an id's digits and NUL */

typedef struct ek_signing_key ek_signing_key;

/* The public half of a key. */
typedef struct ek_public_key {
    uint8_t a[EK_PUBLIC_KEY];
    char id[EK_KEY_ID]; /* SHA-256 of its SubjectPublicKeyInfo (RFC 8410), hexadecimal */
} ek_public_key;

bool ek_keys_built(void); /* whether this program can sign and check signatures */

/* Writes a new key to path (PKCS#8 in PEM, mode 0600) and its public half to path.pub (PEM, mode 0644). EINVAL if
 * either file exists, EIO. */
ek_err ek_signing_key_make(const char *path, ek_public_key *out);
/* ENOTFOUND, EIO; EINVAL if other users may read the file, EFORMAT for other contents. */
ek_err ek_signing_key_open(ek_signing_key **out, const char *path);
/* The key of this seed (RFC 8032 5.1.5), for tests. */
ek_err ek_signing_key_of(ek_signing_key **out, const uint8_t seed[32]);
void ek_signing_key_close(ek_signing_key *k); /* NULL is allowed */
const ek_public_key *ek_signing_key_public(const ek_signing_key *k);
/* Equal messages have equal signatures. Any thread. */
ek_err ek_sign(const ek_signing_key *k, uint8_t out[EK_SIGNATURE], const void *message, size_t n);

/* The key of these bytes; EINVAL for a key that is not canonical or has small order. */
ek_err ek_public_key_of(ek_public_key *out, const uint8_t a[EK_PUBLIC_KEY]);
/* Reads a public key's PEM. ENOTFOUND, EIO, EFORMAT, EINVAL. */
ek_err ek_public_key_read(ek_public_key *out, const char *path);
/* *good: whether s is k's signature of the message. */
ek_err ek_signature_check(bool *good, const ek_public_key *k, const uint8_t s[EK_SIGNATURE], const void *message,
                          size_t n);

#endif
