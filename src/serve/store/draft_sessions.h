/* Tokens of requests on other servers, for which drafts are made here (serve/drafts.h): a question has only those since
 * the one before. At most EK_DRAFT_SESSIONS of max_tokens each, of which the longest unused makes room. Any thread. */
#ifndef EK_SERVE_DRAFT_SESSIONS_H
#define EK_SERVE_DRAFT_SESSIONS_H

#include <stdbool.h>
#include <stdint.h>

enum { EK_DRAFT_SESSIONS = 64 };

typedef struct ek_draft_sessions ek_draft_sessions;

ek_draft_sessions *ek_draft_sessions_open(int max_tokens);
void ek_draft_sessions_close(ek_draft_sessions *s); /* NULL is fine */

/* The session's first `from` tokens, and these n behind them, are its tokens now: a copy of them all goes to *out, the
 * caller's to free, *n_out of them. false: it has no `from` tokens. owner: another one's sessions are not found.
 * 0 <= from, 1 <= n, from + n <= max_tokens. */
bool ek_draft_sessions_put(ek_draft_sessions *s, uint64_t owner, const char *name, int from, const int32_t *tokens,
                           int n, int32_t **out, int *n_out);

#endif
