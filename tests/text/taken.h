/* How far a grammar takes a text, byte by byte. */
#ifndef EK_TESTS_TEXT_TAKEN_H
#define EK_TESTS_TEXT_TAKEN_H

#include "helper.h"
#include "text/grammar/grammar.h"

/* Bytes of text (<|"|> spelled Q in calls) that can be written one after the other; -1: all, and the reply may end.
 * prompt: what the reply continues, "" but for calls. */
int taken(const ek_grammar *g, ek_vocab *vocab, ek_tokenizer *tokenizer, const char *prompt, const char *text);

#endif
