/* The paths that no dialect answers. Inside src/serve. */
#ifndef EK_SERVE_ROUTES_H
#define EK_SERVE_ROUTES_H

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

bool ek_method_fits(const char *method, const char *allowed);
/* The row of a path, or NULL. *fits: whether it is for this method too; otherwise the row is any of the path's. */
const ek_route_row *ek_routes_find(const char *path, const char *method, const char **rest, bool *fits);
/* The methods of the rows of one pattern, row among them, with commas between. */
void ek_routes_methods(char *out, size_t room, const ek_route_row *row);

#endif
