/* Whole replies in a dialect's format. Server thread. Each ends the exchange. */
#ifndef EK_SERVE_REPLY_H
#define EK_SERVE_REPLY_H

#include "serve/api/dialect.h"
#include "serve/http/http.h"

void ek_reply_json(ek_exchange *x, int status, const ek_buf *body);
/* param and code may be NULL. */
void ek_reply_error(ek_exchange *x, const ek_dialect *d, int status, const char *text, const char *param,
                    const char *code);
/* One line of log for a request that was refused; many at once are counted instead. x may be NULL. text: the
 * sentence for the client, or NULL; sentences name fields, types, keywords and single values, never what messages say.
 */
void ek_log_refusal(const ek_exchange *x, const char *path, int status, const char *text);
/* Replies with the last error of this thread (ek_err_text) and the HTTP status of err. */
void ek_reply_failure(ek_exchange *x, const ek_dialect *d, ek_err err, const char *param);

#endif
