/* What bounds the tokens of a reply besides its sampling options: the grammar of its form and the limit of its
 * thoughts, as the engine asks for them. Belongs to the engine while it has the request. */
#ifndef EK_CHAT_BOUNDS_H
#define EK_CHAT_BOUNDS_H

#include "chat/prompt.h"
#include "chat/thought.h"
#include "engine/engine.h"
#include "text/grammar/grammar.h"

typedef struct ek_bounds {
    ek_grammar_state *grammar; /* NULL: anything */
    ek_thought thought;
    int n_vocab; /* floats in a row of logits: set before the request is submitted */
} ek_bounds;

/* At the beginning of the reply to prompt. grammar (NULL: none) and m are borrowed until ek_bounds_fini. max_thinking:
 * tokens of thoughts, 0: no limit. */
void ek_bounds_init(ek_bounds *b, const ek_chat_model *m, const ek_grammar *grammar, int max_thinking,
                    const int32_t *prompt, size_t n, bool thinking);
void ek_bounds_fini(ek_bounds *b);
bool ek_bounds_any(const ek_bounds *b); /* false: no mask is needed */
ek_mask ek_bounds_mask(ek_bounds *b);   /* b stays where it is */

#endif
