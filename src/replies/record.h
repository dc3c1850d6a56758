/* A stored reply: tokens, the digest of each token's row of logits, and log-probabilities if a request asked for them.
 * It is one block of bytes, the same in memory, in a file and on a server:
 *
 *   head    48 bytes: "ekreply2", key (32), n (u32), n_probs (u32, at most n)
 *   tokens  4 n
 *   rows    8 n, ek_logits_digest of each
 *   probs   n_probs (4 + 8 * 20): per token its own, then (token, log-probability) of the 20 most likely
 *   ask     u32 length and the request as in a cassette (replies/ask.h); length 0 without
 *   sum     SHA-256 of all before it
 *
 * Little-endian. A vocabulary of less than 20 fills up probs with token UINT32_MAX. The sum finds damage; a forger can
 * make one. */
#ifndef EK_REPLIES_RECORD_H
#define EK_REPLIES_RECORD_H

#include "base/buf.h"
#include "engine/sample/sampler.h"
#include "replies/ask.h"

enum {
    EK_REPLY_MAX_TOKENS = 1 << 22,
    EK_REPLY_MAX_ASK = 64 << 20,
    EK_REPLY_PROBS = 4 + 8 * EK_LOGPROBS_MAX /* bytes of a token's log-probabilities */
};

/* A record that was read or made. Immutable and counted; any thread. */
typedef struct ek_reply_record ek_reply_record;

/* The source of a record. */
typedef enum ek_reply_origin {
    EK_REPLY_COMPUTED, /* by this process */
    EK_REPLY_DISK,
    EK_REPLY_SHARED,
    EK_REPLY_FILE, /* a cassette */
    EK_REPLY_ORIGINS
} ek_reply_origin;

/* A reply that is being sampled: one entry per token, in order. Zero-initialise; one thread at a time. */
typedef struct ek_reply_draft {
    int n, n_probs; /* n_probs: the number of first tokens with log-probabilities */
    ek_buf tokens, rows, probs;
} ek_reply_draft;

/* probs: the EK_LOGPROBS_MAX most likely tokens, or the whole vocabulary; NULL: unknown. */
void ek_reply_draft_add(ek_reply_draft *d, int32_t token, uint64_t row, const ek_logprobs *probs);
/* Puts the first n tokens of r before all others. */
void ek_reply_draft_begin(ek_reply_draft *d, const ek_reply_record *r, int n);
/* EFORMAT unless all likely tokens are below n_vocab. */
ek_err ek_reply_draft_check_probs(const ek_reply_draft *d, int n_vocab);
void ek_reply_draft_fini(ek_reply_draft *d);

/* Makes a record of the draft's n >= 1 tokens, with one reference; the draft is left empty. ask: n_ask bytes, or NULL.
 */
ek_reply_record *ek_reply_record_make(const ek_reply_key *k, ek_reply_draft *d, const char *ask, size_t n_ask);
/* Reads and copies n bytes that claim to be the record of k (NULL: of any key) with tokens below n_vocab; one
 * reference. EFORMAT with the reason if they are not. */
ek_err ek_reply_record_read(ek_reply_record **out, const ek_reply_key *k, ek_reply_origin origin, int n_vocab,
                            const void *bytes, size_t n);

/* Only for a new record with a single holder. */
void ek_reply_record_set_origin(ek_reply_record *r, ek_reply_origin origin);

ek_reply_record *ek_reply_record_retain(ek_reply_record *r);
void ek_reply_record_release(ek_reply_record *r); /* NULL is allowed */

ek_reply_origin ek_reply_record_origin(const ek_reply_record *r);
const ek_reply_key *ek_reply_record_key(const ek_reply_record *r);
int ek_reply_record_tokens(const ek_reply_record *r); /* 1 and up */
int ek_reply_record_n_probs(const ek_reply_record *r);
int32_t ek_reply_record_token(const ek_reply_record *r, int i);
uint64_t ek_reply_record_row(const ek_reply_record *r, int i);
/* Log-probabilities of token i < n_probs, with the n_top most likely tokens, or fewer if fewer are stored. */
void ek_reply_record_probs(const ek_reply_record *r, int i, int n_top, ek_logprobs *out);
/* The same as bytes of the record, of all tokens. */
const void *ek_reply_record_rows(const ek_reply_record *r);
const void *ek_reply_record_all_probs(const ek_reply_record *r);
const char *ek_reply_record_ask(const ek_reply_record *r, size_t *n); /* no NUL after it; *n 0: none */
const void *ek_reply_record_bytes(const ek_reply_record *r, size_t *n);

/* Whether a contains b: a's tokens begin with b's, and a has at least as many log-probabilities. */
bool ek_reply_record_covers(const ek_reply_record *a, const ek_reply_record *b);
/* Whether two records of one key disagree on a token that both have. */
bool ek_reply_record_contradicts(const ek_reply_record *a, const ek_reply_record *b);
/* Merges two records of one key that do not contradict each other; takes one reference of each. Returns one of the two,
 * or a new record, which counts as coming from outside if one of them does. */
ek_reply_record *ek_reply_record_merge(ek_reply_record *a, ek_reply_record *b);

#endif
