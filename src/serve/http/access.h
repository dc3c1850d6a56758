/* Who may use the server: API keys, the paths that need none, and the pages whose requests a browser sends here. Event
 * loop's thread. */
#ifndef EK_SERVE_ACCESS_H
#define EK_SERVE_ACCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "serve/http/http.h"

typedef struct ek_keys ek_keys;

/* given: keys separated by commas, or NULL. path: a file with one key per line (empty lines and lines that start with #
 * are skipped), or NULL. EINVAL for a key with characters that a header cannot hold and for a file without a key;
 * ENOTFOUND, EIO. */
ek_err ek_keys_open(ek_keys **out, const char *given, const char *path);
/* Reads the file again; an error changes nothing. */
ek_err ek_keys_reload(ek_keys *k);
int ek_keys_count(const ek_keys *k);
/* Whether this is a key; NULL is none. The time depends on the length of `key` only, not on the number of right
 * bytes. */
bool ek_keys_allow(const ek_keys *k, const char *key);
/* A number for a valid key, the same in every process, never 0; separates data that keys must not share. */
uint64_t ek_keys_identity(const char *key);
void ek_keys_close(ek_keys *k); /* NULL is fine */

/* --- paths that need no key, from --open-paths; health is always open --- */

#define EK_OPEN_PATHS_DEFAULT "/metrics,/load,/version,loopback"

typedef struct ek_open_paths {
    unsigned everybody; /* a bit for each path that is open to everybody */
    bool loopback; /* this machine may use all paths that can be opened, except the models, by which clients find out
                      whether a key is valid */
} ek_open_paths;

/* Paths separated by commas, and the word loopback; "" or "none": no path. EINVAL names an unknown item. */
ek_err ek_open_paths_parse(ek_open_paths *out, const char *text);
bool ek_open_paths_to_all(const ek_open_paths *o, const char *path);
bool ek_open_paths_to_loopback(const ek_open_paths *o, const char *path);

/* --- the origin of a request as a browser reports it ---
 *
 * The page that sends it (Origin) and the name under which the server was reached (Host). A browser sends any page's
 * requests to any address, including this machine's. A foreign page must not be able to use a server that asks for no
 * key. */

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
