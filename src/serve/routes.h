/* The paths that no dialect answers, and whole replies in a dialect's format. Server thread. Inside src/serve. */
#ifndef EK_SERVE_ROUTES_H
#define EK_SERVE_ROUTES_H

#include "serve/api/dialect.h"
#include "serve/http/http.h"
#include "serve/server_state.h"

typedef struct ek_route_row {
    /* "*" stands for one byte or more. A leading /v1 is optional in a request's path. If rows of several patterns fit a
     * path, those of the first pattern count; rows of one pattern are adjacent. */
    const char *pattern;
    const char *method; /* GET includes HEAD; "*": any */
    bool open;          /* open to everybody, without an API key; other rows only if --open-paths lists them */
    bool always; /* answered even if too many connections are open, because the reply tells that the server is full */
    /* rest: the path from the place of "*" on; "" without "*". */
    void (*handler)(ek_server *s, ek_exchange *x, const char *rest);
} ek_route_row;

/* ek_absent_find: why a path of other servers does not exist here; NULL for an unknown path. ek_route_missing: the
 * reply with that reason. */
const char *ek_absent_find(const char *path);
void ek_route_missing(ek_server *s, ek_exchange *x, const char *why);

/* All rows; *n: their number. */
const ek_route_row *ek_routes_all(int *n);
bool ek_method_fits(const char *method, const char *allowed);
/* The row of a path, or NULL. *fits: whether the row allows this method; if none does, any row of the path is returned.
 */
const ek_route_row *ek_routes_find(const char *path, const char *method, const char **rest, bool *fits);
/* Writes the methods of all rows with row's pattern, separated by commas. */
void ek_routes_methods(char *out, size_t room, const ek_route_row *row);

/* page.c */
/* Answers x if its path is one of the page's: with the file (GET, HEAD), 304 if the client has the file
 * (if-none-match), or 405 for other methods. Returns whether it answered. Needs no API key, because the files are
 * public. */
bool ek_page_answer(ek_exchange *x);

/* Passes a request to dialect d, on a path of the table. Refuses it while the server stops, or if its body has a
 * content encoding. */
void ek_route_api(ek_server *s, ek_exchange *x, const ek_dialect *d);

/* --- whole replies; each ends the exchange --- */

void ek_reply_json(ek_exchange *x, int status, ek_buf *body); /* frees body */
/* param and code may be NULL. */
__attribute__((format(printf, 6, 7))) void ek_reply_error(ek_exchange *x, const ek_dialect *d, int status,
                                                          const char *param, const char *code, const char *fmt, ...);
/* 405. allowed: methods, with ", " between them. */
void ek_reply_wrong_method(ek_exchange *x, const ek_dialect *d, const char *path, const char *allowed);
/* Replies with the thread's last error (ek_err_text) and the HTTP status of err. own: the API's own error code, or
 * NULL. */
void ek_reply_failure(ek_exchange *x, const ek_dialect *d, ek_err err, const char *param, const char *own);

#endif
