/* A limit on the tokens of thoughts: once it is reached the next token closes the channel, and none is opened again. A
 * function of the tokens alone, as a mask (ek_mask of engine/engine.h) over the grammar's. */
#ifndef EK_CHAT_THOUGHT_H
#define EK_CHAT_THOUGHT_H

#include "text/reply/reply.h"

typedef struct ek_thought {
    int32_t open, close; /* ids of the channel's markers */
    int max, n;          /* tokens in channels, the header's included; max 0: no limit */
    bool inside;
} ek_thought;

/* At the beginning of the reply to prompt. No limit where the tokenizer has no markers. */
void ek_thought_start(ek_thought *t, const ek_marks *marks, int max, const int32_t *prompt, size_t n);
void ek_thought_accept(ek_thought *t, int32_t token);
/* Rows 0 .. n_draft of allowed tokens are there (all[i]: every token, row i is not written), n_words each, for n_vocab
 * tokens. Narrows them and returns how many draft tokens may still stand. Where a row does not allow the closing
 * marker, the limit waits. */
int ek_thought_look(const ek_thought *t, const int32_t *draft, int n_draft, int n_words, int n_vocab, uint64_t *row,
                    bool *all);
/* The same of all and of what may stand, without rows; -1 where only they tell. */
int ek_thought_peek(const ek_thought *t, const int32_t *draft, int n_draft, bool *all);

#endif
