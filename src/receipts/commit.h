/* Commitments: hashes that reveal nothing without the salt and cannot be opened to other contents.
 *
 *   salt of a label   SHA-256(S, label)          S: 32 random bytes per receipt
 *   commitment        SHA-256(label, salt, n, bytes)
 *   leaf of a row     SHA-256(0, salt of "rows", t, token, root of the row): the entries of the rows' Merkle tree
 *
 * n has 64 bits, t and tokens 32 bits, little-endian; a label has no terminator. Each commitment has its own salt and
 * can be opened alone. Salts are necessary: a reply of one token has only 262,144 candidates, and anybody with the
 * model can compute the first row of a guessed prompt. */
#ifndef EK_RECEIPTS_COMMIT_H
#define EK_RECEIPTS_COMMIT_H

#include "receipts/tree.h"

#define EK_LABEL_PROMPT "prompt"
#define EK_LABEL_REPLY  "reply"
#define EK_LABEL_ROWS   "rows"
#define EK_LABEL_FORM   "form"
#define EK_LABEL_STOP   "stop"
#define EK_LABEL_TEXT   "text"

ek_hash ek_commit_salt(const ek_hash *secret, const char *label);
/* n: the count that enters the hash, such as a number of tokens. */
ek_hash ek_commit_bytes(const ek_hash *secret, const char *label, uint64_t n, const void *bytes, size_t n_bytes);

/* A picture or a sound among a prompt's tokens. */
typedef struct ek_commit_part {
    int32_t first, kind; /* position of its first token; ek_part_kind */
    uint8_t digest[32];
} ek_commit_part;

/* The tokens, then each part's position, kind and digest. */
ek_hash ek_commit_tokens(const ek_hash *secret, const char *label, const int32_t *tokens, size_t n,
                         const ek_commit_part *part, size_t n_parts);
/* Texts, each after its length in 64 bits. */
ek_hash ek_commit_texts(const ek_hash *secret, const char *label, const char *const *text, const size_t *len, size_t n);
/* The leaf of row t, whose logits gave the token. salt: that of EK_LABEL_ROWS. */
ek_hash ek_commit_row(const ek_hash *salt, uint32_t t, int32_t token, const ek_hash *root);

#endif
