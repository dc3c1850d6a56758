/* Guesses from a request's own text: what followed the last time that the present tokens occurred. A tool call that
 * quotes a file, an edited program, a list with one form per line are mostly copies of what the prompt or the reply
 * already says.
 *
 * An index of the text's n-grams (2 and 4 tokens) gives, for the tokens at the end, the place behind their latest
 * earlier occurrence, the source; the guess is what stands there. Every token that joins the text also judges the
 * guess for it, drafted or not, so that how often guesses are right is known without computing a row.
 *
 * One thread at a time; after init nothing is allocated; a token takes constant time. */
#ifndef EK_ENGINE_NGRAM_H
#define EK_ENGINE_NGRAM_H

#include <stdbool.h>
#include <stdint.h>

enum {
    EK_NGRAM_ORDERS = 2,
    EK_NGRAM_BUCKETS = 4,    /* of the length of a match: 2, 4, 8, 16 tokens and more */
    EK_NGRAM_MAX_MATCH = 16, /* longer ones are not told apart */
    EK_NGRAM_MAX_BITS = 16
};

typedef struct ek_ngram {
    int32_t *behind[EK_NGRAM_ORDERS]; /* [1 << bits], by the hash of an n-gram: the position behind its latest
                                         occurrence; 0: none. Of n-grams with equal hashes the latest stays. */
    int bits;
    int n;      /* tokens seen: [0, n) */
    int source; /* the guess for token n is the token at `source`, for token n + 1 the next one; 0: no guess */
    int match;  /* tokens before `source` that equal those before n, as far as compared */
    float right[EK_NGRAM_BUCKETS]; /* how often guesses after such a match were right: a moving average */
} ek_ngram;

/* For texts of at most max_tokens tokens. */
void ek_ngram_init(ek_ngram *g, int max_tokens);
void ek_ngram_fini(ek_ngram *g);

/* Takes tokens[g->n .. n) in. judge: they are the reply's and judge the guesses. */
void ek_ngram_add(ek_ngram *g, const int32_t *tokens, int n, bool judge);

/* How often guesses like the one for token n + ahead are right, if those before it are; 0 without a source. */
float ek_ngram_right(const ek_ngram *g, int ahead);

/* Writes the guesses for the next k tokens to tokens[g->n .. g->n + k). They may come from the guesses before them:
 * a text that repeats itself. Needs a source. */
void ek_ngram_guess(const ek_ngram *g, int32_t *tokens, int k);

#endif
