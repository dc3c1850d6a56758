/* Where a request comes from, as a browser says it: the page that sends it (Origin) and the name that the server was
 * reached by (Host). A browser sends requests of any page to any address, this machine's own among them; a page of
 * somebody else's must not use a server that asks for no key. */
#ifndef EK_SERVE_ORIGINS_H
#define EK_SERVE_ORIGINS_H

#include <stdbool.h>

#include "base/err.h"
#include "serve/http/http.h"

/* May a request with this header Host be for this server? NULL or empty: it says nothing, so it is no browser's.
 * Always: localhost and names below it, 127.0.0.0/8, [::1], 0.0.0.0 and [::], and names without a dot, which nobody
 * can get in the public DNS; any port. allowed: further hosts with commas between, "name" with any port or
 * "name:port"; "*": every one; NULL: none. */
bool ek_origins_host_fits(const char *allowed, const char *host);

/* EINVAL, with the item, where one of allowed can match no header. */
ek_err ek_origins_check_hosts(const char *allowed);

/* May a page of this origin use the server? Those of cors (ek_cors_allows), and the server's own: http or https,
 * with what the header Host says (NULL: there is none). */
bool ek_origins_page_fits(const char *cors, const char *origin, const char *host);

/* --- CORS (fetch.spec.whatwg.org): which pages of other origins may use the API --- */

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
