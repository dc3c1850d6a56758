/* A session: one request to a dialect's path, from its body to the last byte of its reply. Server thread. */
#ifndef EK_SERVE_SESSION_H
#define EK_SERVE_SESSION_H

#include "serve/api/dialect.h"
#include "serve/server_state.h"

/* Reads the request of x, whose path must be d's, and answers it, now or later; errors become replies. Sessions with
 * another salt share no cached prefixes; 0: those of the body's salt do. */
void ek_session_open(ek_server *s, ek_exchange *x, const ek_dialect *d, uint64_t salt);
/* Handles news of the engine about a turn of a session. */
void ek_session_news(const ek_turn_news *news);

/* What every body is read with. */
ek_api_limits ek_session_limits(const ek_server *s);

/* All open sessions. */
void ek_sessions_tick(ek_server *s);   /* several times a second */
void ek_sessions_cancel(ek_server *s); /* at a second signal */

#endif
