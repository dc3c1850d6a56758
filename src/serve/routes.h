/* The paths that no dialect answers, and whole replies in a dialect's format. Server thread. Inside src/serve. */
#ifndef EK_SERVE_ROUTES_H
#define EK_SERVE_ROUTES_H

#include "serve/api/dialect.h"
#include "serve/http/http.h"
#include "serve/server_state.h"

typedef struct ek_route_row {
    /* "*" stands for one byte or more. Where it begins with /v1, clients may leave that out. Of rows that fit a path
     * those of the first pattern count; rows of one pattern stand together. */
    const char *pattern;
    const char *method; /* GET is HEAD too; "*": any */
    bool open;          /* to everybody, without an API key; others are if --open-paths says so */
    bool always;        /* answered although too many connections are open: what tells that the server is full */
    /* rest: of the path, from what "*" stands for on; "" without. */
    void (*handler)(ek_server *s, ek_exchange *x, const char *rest);
} ek_route_row;

/* Why there is nothing at a path that other servers have; NULL for a path that none has. And the reply that says it. */
const char *ek_absent_find(const char *path);
void ek_route_missing(ek_server *s, ek_exchange *x, const char *why);

/* All rows; *n: how many. */
const ek_route_row *ek_routes_all(int *n);
bool ek_method_fits(const char *method, const char *allowed);
/* The row of a path, or NULL. *fits: whether it is for this method too; otherwise the row is any of the path's. */
const ek_route_row *ek_routes_find(const char *path, const char *method, const char **rest, bool *fits);
/* The methods of the rows of one pattern, row among them, with commas between. */
void ek_routes_methods(char *out, size_t room, const ek_route_row *row);

/* A request that a dialect answers, on a path of the table: unless the server ends, or its body is encoded. */
void ek_route_api(ek_server *s, ek_exchange *x, const ek_dialect *d);

/* --- whole replies; each ends the exchange --- */

void ek_reply_json(ek_exchange *x, int status, const ek_buf *body);
/* param and code may be NULL. */
void ek_reply_error(ek_exchange *x, const ek_dialect *d, int status, const char *text, const char *param,
                    const char *code);
/* One line of log for a request that was refused; many at once are counted instead. x may be NULL. text: the
 * sentence for the client, or NULL; sentences name fields, types, keywords and single values, never what messages say.
 */
void ek_log_refusal(const ek_exchange *x, const char *path, int status, const char *text);
/* Replies with the last error of this thread (ek_err_text) and the HTTP status of err. own: the API's own word for it,
 * or NULL. */
void ek_reply_failure(ek_exchange *x, const ek_dialect *d, ek_err err, const char *param, const char *own);

#endif
