/* Which web pages may use the API from a browser (CORS, fetch.spec.whatwg.org). */
#ifndef EK_SERVE_CORS_H
#define EK_SERVE_CORS_H

#include <stdbool.h>

#include "serve/http/http.h"

/* May a page of this origin? list: origins with commas between, "" none. "*" is every origin; "localhost" every port of
 * the names that mean this machine; "desktop" programs of it: app, file, tauri, vscode-webview and vscode-file. In an
 * origin "*" stands for the whole host, for what is before a name, or for the port. */
bool ek_cors_allows(const char *list, const char *origin);
/* EINVAL, with the item and the reason, where one of the list can match no origin that a browser sends. */
ek_err ek_cors_check(const char *list);
/* Adds the headers that let the page read the reply. Answers a preflight, which may use these methods of the path, and
 * returns true if x is one. */
bool ek_cors_handle(const char *list, const char *methods, ek_exchange *x);

#endif
