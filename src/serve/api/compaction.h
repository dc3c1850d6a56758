/* Compaction: the model writes a summary of a conversation, and later requests hold the summary in its place. The
 * request for a summary is the conversation with one more message, so everything before it comes from the cache. Inside
 * src/serve. */
#ifndef EK_SERVE_COMPACTION_H
#define EK_SERVE_COMPACTION_H

#include "serve/api/dialect.h"

/* Turns r, which was read completely, into a request for a summary of its conversation. instructions: n bytes that
 * replace our own wording; NULL or blank: ours. Tools stay in the prompt but cannot be called; a required form of the
 * reply is dropped. EINVAL without a message. */
ek_err ek_compaction_ask(ek_api_request *r, const char *instructions, size_t n);
/* The summary in an ended reply: its text. False if a limit cut the reply or it has no text. */
bool ek_compaction_of(const ek_turn_result *t, const char **text, size_t *n);
/* Takes a summary into c at its end. It replaces the messages of assistant, tools
 * and user; with keep_user the user's stay. */
void ek_compaction_take(ek_conversation *c, const char *text, size_t n, bool keep_user);

#endif
