/* A model without weights: replies by random choice among the tokens that a grammar allows. */
#ifndef EK_TESTS_TEXT_SIMULATE_H
#define EK_TESTS_TEXT_SIMULATE_H

#include "helper.h"
#include "text/grammar/grammar.h"
#include "text/reply/reply.h"

/* A tokenizer whose pieces cross the borders between the parts of JSON and of calls. */
ek_tokenizer *crossing_tokenizer(void);

typedef struct reply {
    ek_answer answer;
    ek_ids ids;
    bool stopped;
    int n_malformed;
} reply;

/* Chooses at random for `wild` tokens, then whatever ends soonest. Fails the test if nothing is allowed or no end
 * comes. prompt: what the reply continues. Each token is looked at along a draft as well, which must say the same. */
void simulate(reply *r, const ek_grammar *g, ek_vocab *v, const ek_tokenizer *t, const json_t *tools,
              const char *prompt, bool thinking, int wild, dice *d);
void reply_fini(reply *r);

/* A schema grown from the dice. */
json_t *random_schema(dice *d, int depth);
/* The same with $defs that refer to each other. */
json_t *random_document(dice *d);

#endif
