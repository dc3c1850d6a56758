/* Compaction: the model writes a summary of a conversation, which stands for it in later requests. The request is the
 * conversation with one more message, so that all before it comes from the cache. Inside src/serve. */
#ifndef EK_SERVE_COMPACTION_H
#define EK_SERVE_COMPACTION_H

#include "serve/api/dialect.h"

/* The reply of r becomes a summary of its conversation: after everything else was read. instructions: what is asked for
 * in place of our own words, n bytes; NULL or blank: our own. Tools stay in the prompt and are not called; a form of
 * the reply is dropped. EINVAL where there is no message. */
ek_err ek_compaction_ask(ek_api_request *r, const char *instructions, size_t n);
/* The summary of a reply that has ended: its text. False where a limit cut it, or there is none. */
bool ek_compaction_of(const ek_turn_result *t, const char **text, size_t *n);
/* A summary that a conversation has, at its end: it replaces the messages of the assistant and the results before it,
 * and those of the user unless they are kept. */
void ek_compaction_take(ek_conversation *c, const char *text, size_t n, bool keep_user);

#endif
