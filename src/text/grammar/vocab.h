/* A tokenizer's vocabulary as the automaton of a grammar walks it: a trie of the tokens' bytes, sets of tokens that
 * are text and nothing else, and a cache of rows of allowed tokens. It belongs to a model and serves all its requests.
 *
 * Threads: any; a lock is held while a row is made. Memory is taken by the first ek_vocab_ready, never later: about
 * 30 MiB for a vocabulary of 262,144 tokens, 8 of them the cache. */
#ifndef EK_TEXT_VOCAB_H
#define EK_TEXT_VOCAB_H

#include "base/err.h"
#include "text/tokenizer/tokenizer.h"

typedef struct ek_vocab ek_vocab;

/* t is borrowed until ek_vocab_close (NULL is fine). */
ek_vocab *ek_vocab_open(const ek_tokenizer *t);
void ek_vocab_close(ek_vocab *v);
/* Builds the tables unless they are there; about 0.2 s for 262,144 tokens. ENOMEM if the system has no memory for them
 * now: a later request may find some. */
ek_err ek_vocab_ready(ek_vocab *v);

/* For tests and metrics. */
typedef struct ek_vocab_stats {
    size_t bytes;
    uint64_t hits, misses; /* of the cache of rows */
} ek_vocab_stats;
ek_vocab_stats ek_vocab_stats_of(ek_vocab *v);

#endif
