/* Limits on a reply's tokens besides its sampling options: the grammar of its form and the limit of its thoughts, in
 * the form that the engine reads. The engine owns them while it has the request. */
#ifndef EK_CHAT_BOUNDS_H
#define EK_CHAT_BOUNDS_H

#include "chat/prompt.h"
#include "engine/engine.h"
#include "text/grammar/grammar.h"
#include "text/reply/reply.h"

/* A limit on the tokens of thoughts: once it is reached the next token closes the channel, and none is opened again. A
 * function of the tokens alone, as a mask (ek_mask of engine/engine.h) over the grammar's. */

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

/* The form of a reply as JSON text, so that its grammar can be made again: for the journal. Tools that any arguments
 * fit are kept without their parameters; prompts have the rest. */

/* Appends one JSON object: the arguments of ek_grammar_open. */
void ek_form_write(ek_buf *out, const ek_reply_form *form, const json_t *tools, bool one_call);
/* The grammar that a text of ek_form_write describes, as ek_grammar_open makes it. EPARSE and EINVAL for other texts.
 */
ek_err ek_form_grammar(ek_grammar **out, ek_vocab *v, const char *text, size_t n);

#endif
