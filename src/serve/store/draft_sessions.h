/* Tokens of requests on other servers that ask for drafts here (serve/drafts.c). A question has only the tokens
 * since the previous question. At most EK_DRAFT_SESSIONS sessions of max_tokens each; the owner with the most sessions
 * makes room, by the least recently used. Any thread. */
#ifndef EK_SERVE_DRAFT_SESSIONS_H
#define EK_SERVE_DRAFT_SESSIONS_H

#include <stdbool.h>
#include <stdint.h>

enum { EK_DRAFT_SESSIONS = 64 };

typedef struct ek_draft_sessions ek_draft_sessions;

ek_draft_sessions *ek_draft_sessions_open(int max_tokens);
void ek_draft_sessions_close(ek_draft_sessions *s); /* NULL is allowed */

/* Keeps the session's first `from` tokens and appends these n. *out is a copy of all its tokens, *n_out of them; the
 * caller frees it. False: the owner has no such session with at least `from` tokens. 0 <= from, 1 <= n,
 * from + n <= max_tokens. */
bool ek_draft_sessions_put(ek_draft_sessions *s, uint64_t owner, const char *name, int from, const int32_t *tokens,
                           int n, int32_t **out, int *n_out);

#endif
