/* Limits on a reply's tokens besides its sampling options: the grammar of its form and the limit of its thoughts, in
 * the form that the engine reads. The engine owns them while it has the request. */
#ifndef EK_CHAT_BOUNDS_H
#define EK_CHAT_BOUNDS_H

#include "chat/prompt.h"
#include "engine/engine.h"
#include "text/grammar/grammar.h"
#include "text/reply/reply.h"

/* A limit on the tokens of thoughts. When it is reached, the next token closes the channel, and no channel is opened
 * again. It depends on the tokens alone, and acts as a mask (ek_mask) after the grammar's. */

typedef struct ek_thought {
    int32_t open, close; /* ids of the channel's markers */
    int max, n;          /* tokens in channels, the header's included; max 0: no limit */
    bool inside;
} ek_thought;

/* Starts at the beginning of the reply to prompt. There is no limit if the tokenizer has no markers. */
void ek_thought_start(ek_thought *t, const ek_marks *marks, int max, const int32_t *prompt, size_t n);
void ek_thought_accept(ek_thought *t, int32_t token);
/* Restricts rows 0 .. n_draft of allowed tokens, n_words each, for n_vocab tokens (all[i]: every token is allowed and
 * row i is not written). Returns the number of draft tokens that are still possible. If a row does not allow the
 * closing marker, the limit waits. */
int ek_thought_look(const ek_thought *t, const int32_t *draft, int n_draft, int n_words, int n_vocab, uint64_t *row,
                    bool *all);
/* The same for `all` and the result, without rows; -1 if the result depends on rows. */
int ek_thought_peek(const ek_thought *t, const int32_t *draft, int n_draft, bool *all);

typedef struct ek_bounds {
    ek_grammar_state *grammar; /* NULL: anything */
    ek_thought thought;
    int n_vocab; /* floats in a row of logits: set before the request is submitted */
} ek_bounds;

/* Starts at the beginning of the reply to prompt. grammar (NULL: none) and m are borrowed until ek_bounds_fini.
 * max_thinking: maximum tokens of thoughts, 0: no limit. */
void ek_bounds_init(ek_bounds *b, const ek_chat_model *m, const ek_grammar *grammar, int max_thinking,
                    const int32_t *prompt, size_t n, bool thinking);
void ek_bounds_fini(ek_bounds *b);
bool ek_bounds_any(const ek_bounds *b); /* false: no mask is needed */
ek_mask ek_bounds_mask(ek_bounds *b);   /* b must not move */

/* --- the form of a reply as JSON text, from which the journal makes the grammar again. Tools that accept any arguments
 * are kept without parameters. */

/* Appends one JSON object: the arguments of ek_grammar_open. */
void ek_form_write(ek_buf *out, const ek_reply_form *form, const json_t *tools, bool one_call);
/* Makes the grammar of a text from ek_form_write, as ek_grammar_open does. EPARSE and EINVAL for other texts. */
ek_err ek_form_grammar(ek_grammar **out, ek_vocab *v, const char *text, size_t n);

#endif
