/* The origin of a request as a browser reports it: the page that sends it (Origin) and the name under which the server
 * was reached (Host). A browser sends any page's requests to any address, including this machine's. A foreign page must
 * not be able to use a server that asks for no key. */
#ifndef EK_SERVE_ORIGINS_H
#define EK_SERVE_ORIGINS_H

#include <stdbool.h>

#include "base/err.h"
#include "serve/http/http.h"

/* Whether a request with this Host header may be meant for this server. NULL or empty fits, because no browser sends
 * it. These hosts always fit, with any port: localhost and names below it, 127.0.0.0/8, [::1], 0.0.0.0, [::], and names
 * without a dot, which nobody can get in the public DNS. allowed: further hosts, separated by commas: "name" with any
 * port, "name:port", or "*" for all hosts; NULL: none. */
bool ek_origins_host_fits(const char *allowed, const char *host);

/* EINVAL, with the item, if an item of allowed can match no header. */
ek_err ek_origins_check_hosts(const char *allowed);

/* Whether a page of this origin may use the server: the origins of cors (ek_cors_allows), and the server's own, which
 * is http or https with the value of the Host header (NULL: none). */
bool ek_origins_page_fits(const char *cors, const char *origin, const char *host);

/* --- CORS (fetch.spec.whatwg.org): pages of other origins that may use the API --- */

/* Whether a page of this origin may use the API. list: origins separated by commas, "" for none. "*" is every origin;
 * "localhost" every port of this machine's names; "desktop" the origins of its programs: app, file, tauri,
 * vscode-webview and vscode-file. In an origin "*" stands for the whole host, for the front of a name, or for the port.
 */
bool ek_cors_allows(const char *list, const char *origin);
/* EINVAL, with the item and the reason, if an item can match no origin that a browser sends. */
ek_err ek_cors_check(const char *list);
/* Adds the headers that let the page read the reply. If x is a preflight, answers it with the path's methods and
 * returns true. */
bool ek_cors_handle(const char *list, const char *methods, ek_exchange *x);

#endif
