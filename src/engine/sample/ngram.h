/* Guesses from a request's own text: the tokens that followed the latest occurrence of the present ones. A tool call
 * that quotes a file, an edited program, or a list with one form per line mostly copies text of the prompt or the
 * reply.
 *
 * An index of the text's n-grams (2 and 4 tokens) gives, for the last tokens, the position after their latest earlier
 * occurrence, the source; the guess is the text there. Every new token of the text also judges the guess for it,
 * drafted or not, so hit rates are known without computing a row.
 *
 * One thread at a time. Nothing is allocated after init. A token takes constant time. */
#ifndef EK_ENGINE_NGRAM_H
#define EK_ENGINE_NGRAM_H

#include <stdbool.h>
#include <stdint.h>

enum {
    EK_NGRAM_ORDERS = 2,
    EK_NGRAM_BUCKETS = 4,    /* by length of the match: 2, 4, 8, at least 16 tokens */
    EK_NGRAM_MAX_MATCH = 16, /* longer matches count as this length */
    EK_NGRAM_MAX_BITS = 16
};

typedef struct ek_ngram {
    /* [1 << bits], by the hash of an n-gram: the position after its latest occurrence; 0: none. Of n-grams with equal
     * hashes the latest is kept. */
    int32_t *behind[EK_NGRAM_ORDERS];
    int bits;
    int n;      /* tokens read: [0, n) */
    int source; /* the guess for token n is the token at `source`, for token n + 1 the one after it; 0: no guess */
    int match;  /* equal tokens before `source` and before n, as far as compared */
    float right[EK_NGRAM_BUCKETS]; /* hit rates of guesses after such a match: moving averages */
} ek_ngram;

/* For texts of at most max_tokens tokens. */
void ek_ngram_init(ek_ngram *g, int max_tokens);
void ek_ngram_fini(ek_ngram *g);

/* Reads tokens[g->n .. n). judge: they belong to the reply and judge the guesses. */
void ek_ngram_add(ek_ngram *g, const int32_t *tokens, int n, bool judge);

/* The hit rate of guesses like the one for token n + ahead, if those before it are right; 0 without a source. */
float ek_ngram_right(const ek_ngram *g, int ahead);

/* Writes guesses for the next k tokens to tokens[g->n .. g->n + k). In repeating text a guess may copy an earlier
 * guess. Needs a source. */
void ek_ngram_guess(const ek_ngram *g, int32_t *tokens, int k);

#endif
