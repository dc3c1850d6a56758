/* The page tables of one sequence, and forward passes over it, for tests below the engine. */
#ifndef EK_TESTS_SUPPORT_PAGES_H
#define EK_TESTS_SUPPORT_PAGES_H

#include "model/model.h"

typedef struct test_seq {
    int32_t *page[EK_KIND_COUNT];
    int n_pages;
    ek_kv_memory kv; /* owned */
    ek_seq seq;      /* points into page */
} test_seq;

/* Pages for n_tokens tokens, filled with 0xff: every format reads that as NaN, should a kernel read a
 * slot that nobody wrote. Free with seq_close. */
test_seq seq_open(const ek_model *m, int n_tokens);
void seq_close(test_seq *s);

/* Writes the logits of all n positions of one sequence to logits[n][vocab_size]. steps: how many tokens
 * each forward pass takes, ended by 0 and then repeated; NULL: all tokens in one pass. */
ek_err run_tokens(const ek_model *m, const int32_t *ids, int n, const int *steps, float *logits);

/* The model in a folder with keys and values in float32, to compare values of weights by. *m is NULL after a failure.
 */
ek_err open_folder(ek_model **m, const char *dir, bool exact);
/* Its logits of n tokens that differ from each other, in one pass, freed by the caller; ends the test where it does not
 * open. */
float *logits_of_folder(const char *dir, bool exact, int n);

#endif
