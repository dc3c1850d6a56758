/* Which web pages may use the API from a browser (CORS, fetch.spec.whatwg.org). */
#ifndef EK_SERVE_CORS_H
#define EK_SERVE_CORS_H

#include <stdbool.h>

#include "serve/http/http.h"

/* May a page of this origin? list: origins with commas between; "*" is every origin, "localhost" every port of the
 * loopback names, "" none. */
bool ek_cors_allows(const char *list, const char *origin);
/* Adds the headers that let the page read the reply. Answers a preflight, which may use these methods of the path, and
 * returns true if x is one. */
bool ek_cors_handle(const char *list, const char *methods, ek_exchange *x);

#endif
