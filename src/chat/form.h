/* The form of a reply as JSON text, so that its grammar can be made again: for the journal. Tools that any arguments
 * fit are kept without their parameters; prompts have the rest. */
#ifndef EK_CHAT_FORM_H
#define EK_CHAT_FORM_H

#include "text/grammar/grammar.h"

/* Appends one JSON object: the arguments of ek_grammar_open. */
void ek_form_write(ek_buf *out, const ek_reply_form *form, const json_t *tools, bool one_call);
/* The grammar that a text of ek_form_write describes, as ek_grammar_open makes it. EPARSE and EINVAL for other texts.
 */
ek_err ek_form_grammar(ek_grammar **out, ek_vocab *v, const char *text, size_t n);

#endif
