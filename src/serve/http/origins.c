#include "serve/http/access.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* --- origins in a list --- */

/* The next item of a list, without blanks around it; NULL at the list's end. */
static const char *next_item(const char **list, size_t *n)
{
    const char *p = *list;
    if (!p || !*p) return NULL;
    *n = strcspn(p, ",");
    *list = p[*n] ? p + *n + 1 : p + *n;
    while (*n && *p == ' ') p++, --*n;
    while (*n && p[*n - 1] == ' ') --*n;
    return p;
}

static bool is_word(const char *item, size_t n, const char *word)
{
    return n == strlen(word) && !strncasecmp(item, word, n);
}

/* The host after "scheme://"; NULL without a scheme. */
static const char *behind_scheme(const char *origin, size_t n)
{
    size_t i = 0;
    while (i < n && (isalnum((unsigned char)origin[i]) || (i > 0 && strchr("+-.", origin[i])))) i++;
    return i > 0 && isalpha((unsigned char)*origin) && n - i >= 3 && !memcmp(origin + i, "://", 3) ? origin + i + 3
                                                                                                   : NULL;
}

static bool is_web(const char *origin)
{
    return !strncasecmp(origin, "http://", 7) || !strncasecmp(origin, "https://", 8);
}

/* --- origins --- */

static bool is_port(const char *s, size_t n)
{
    long port = 0;
    for (size_t i = 0; i < n; i++)
        if (!isdigit((unsigned char)s[i]) || (port = 10 * port + s[i] - '0') > 65535) return false;
    return n > 0 && port > 0;
}

/* Whether the origin is http or https, any port, and a name that means this machine in every browser. */
static bool is_loopback(const char *origin)
{
    static const char *const hosts[] = {"localhost", "127.0.0.1", "[::1]", "0.0.0.0"};
    static const char below[] = ".localhost"; /* http://tauri.localhost */
    const size_t k = sizeof below - 1;
    const char *p = is_web(origin) ? strstr(origin, "://") + 3 : "", *end = p + strlen(p), *last = strrchr(p, ':');
    if (last && last[1] && is_port(last + 1, (size_t)(end - last) - 1)) end = last;
    const size_t n = (size_t)(end - p);
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        if (is_word(p, n, hosts[i])) return true;
    return n > k && !strncasecmp(end - k, below, k) && strcspn(p, "/:@") >= n;
}

/* Whether the origin is a desktop program's, whose pages are its own files: no page of the web has such an origin. */
static bool is_desktop(const char *origin)
{
    static const char *const schemes[] = {"app://", "file://", "tauri://", "vscode-webview://", "vscode-file://"};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (!strncasecmp(origin, schemes[i], strlen(schemes[i]))) return true;
    return false;
}

/* Compares with a pattern with "*": for the whole host with its port, the labels before a name, or the port. */
static bool fits_pattern(const char *pattern, size_t n, const char *origin)
{
    const char *star = memchr(pattern, '*', n);
    size_t n_origin = strlen(origin), before = star ? (size_t)(star - pattern) : n,
           behind = n - before - (star != NULL);
    if (!star) return n == n_origin && !strncasecmp(pattern, origin, n);
    if (n_origin < before + behind || strncasecmp(pattern, origin, before) != 0) return false;
    const char *rest = origin + before;
    size_t k = n_origin - before - behind;
    if (behind == 0 && star[-1] == ':') return is_port(rest, k);
    if (behind == 0) return !is_web(origin) || (k > 0 && !memchr(rest, '/', k));
    const char *colon = memchr(star, ':', behind + 1);
    if (colon && colon[1] == '*' && colon + 2 == pattern + n) { /* *.NAME:* */
        const char *port = strrchr(rest, ':');
        size_t name = (size_t)(colon - star) - 1, host = port ? (size_t)(port - rest) : 0;
        return port && is_port(port + 1, strlen(port + 1)) && host > name && !memchr(rest, '/', host) &&
               !memchr(rest, ':', host) && !strncasecmp(rest + host - name, star + 1, name);
    }
    return k > 0 && !memchr(rest, '/', k) && !memchr(rest, ':', k) && !strncasecmp(rest + k, star + 1, behind);
}

bool ek_cors_allows(const char *list, const char *origin)
{
    size_t n;
    for (const char *item; (item = next_item(&list, &n)) != NULL;) {
        if (is_word(item, n, "*")) return true;
        if (is_word(item, n, "localhost") && is_loopback(origin)) return true;
        if (is_word(item, n, "desktop") && is_desktop(origin)) return true;
        if (n && fits_pattern(item, n, origin)) return true;
    }
    return false;
}

/* --- lists from a user --- */

static ek_err bad(const char *item, size_t n, const char *why)
{
    char shown[81];
    snprintf(shown, sizeof shown, "%.*s", (int)(n < 80 ? n : 80), item);
    for (char *p = shown; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 127) *p = '?';
    return ek_fail(EK_EINVAL, "\"%s\" %s", shown, why);
}

/* "*" stands for the whole host, for the labels before a name, or for the port. */
static bool stars_are_whole(const char *host, size_t n, const char *colon)
{
    for (size_t i = 0; i < n; i++) {
        if (host[i] != '*') continue;
        bool port = colon && host + i == colon + 1 && i + 1 == n;
        bool whole = i == 0 && (n == 1 || host[1] == '.');
        if (!port && !whole) return false;
    }
    return true;
}

static ek_err check_web(const char *item, size_t n, const char *host)
{
    size_t k = n - (size_t)(host - item);
    const char *close = k && *host == '[' ? memchr(host, ']', k) : NULL, *from = close ? close : host,
               *colon = memchr(from, ':', k - (size_t)(from - host));
    size_t name = colon ? (size_t)(colon - host) : k, port = colon ? k - name - 1 : 0;
    if (name == 0) return bad(item, n, "has no host");
    if (colon && !is_word(colon + 1, port, "*") && !is_port(colon + 1, port))
        return bad(item, n, "has a port that is none: a number up to 65535, or * for any, is needed");
    if (colon && is_word(colon + 1, port, is_word(item, 8, "https://") ? "443" : "80"))
        return bad(item, n, "has the port that is usual for it, which browsers leave out: leave it out here, too");
    for (size_t i = 0; i < name && !close; i++)
        if (!isalnum((unsigned char)host[i]) && !strchr("-._*", host[i]))
            return bad(item, n, "has a host that no browser sends (names of other letters begin with xn--)");
    return EK_OK;
}

static ek_err check_item(const char *item, size_t n)
{
    static const char *const words[] = {"*", "localhost", "desktop", "null"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (is_word(item, n, words[i])) return EK_OK;
    if (n == 0) return ek_fail(EK_EINVAL, "an origin between commas is empty");
    const char *host = behind_scheme(item, n);
    if (!host)
        return bad(item, n,
                   "matches no origin: an origin is SCHEME://HOST or SCHEME://HOST:PORT, such as "
                   "https://page.example, app://* or http://localhost:*; or a word: localhost, desktop, "
                   "null, *");
    size_t k = n - (size_t)(host - item);
    if (memchr(host, '/', k))
        return bad(item, n, "matches no origin: origins end with the host or the port, without a path or a \"/\"");
    for (size_t i = 0; i < k; i++)
        if ((unsigned char)host[i] <= ' ' || host[i] == 127 || strchr("?#@\\\"", host[i]))
            return bad(item, n, "matches no origin: origins have no blanks, queries or users");
    const char *colon = NULL;
    for (size_t i = 0; i < k; i++)
        if (host[i] == ':') colon = host + i;
    if (!stars_are_whole(host, k, colon))
        return bad(item, n,
                   "has a * inside of a name: it stands for a whole host, for what is before a name "
                   "(https://*.example.com), or for a port");
    return is_web(item) ? check_web(item, n, host) : EK_OK;
}

ek_err ek_cors_check(const char *list)
{
    size_t n;
    for (const char *item; (item = next_item(&list, &n)) != NULL;) EK_TRY(check_item(item, n));
    return EK_OK;
}

bool ek_cors_handle(const char *list, const char *methods, ek_exchange *x)
{
    const char *origin = ek_exchange_find(x, "origin");
    bool preflight = !strcmp(ek_exchange_method(x), "OPTIONS") && ek_exchange_find(x, "access-control-request-method");
    if (!origin) return false;
    ek_exchange_header(x, "vary", "origin");
    if (ek_cors_allows(list, origin)) {
        ek_exchange_header(x, "access-control-allow-origin", origin);
        ek_exchange_header(x, "access-control-expose-headers", "x-request-id, retry-after, request-id");
        const char *asked = ek_exchange_find(x, "access-control-request-headers");
        if (preflight) {
            ek_exchange_header(x, "access-control-allow-methods", methods);
            ek_exchange_header(x, "access-control-allow-headers",
                               asked ? asked : "authorization, content-type, x-api-key");
            ek_exchange_header(x, "access-control-max-age", "86400");
        }
    }
    if (preflight) ek_exchange_reply(x, 204, NULL, "", 0); /* without the headers the browser refuses */
    return preflight;
}

/* --- hosts, and pages of this server --- */

/* A host, and after a colon its port, which may be missing; a literal IPv6 address is in brackets. */
typedef struct authority {
    const char *host, *port;
    size_t n_host, n_port;
} authority;

static bool split(authority *a, const char *text, size_t n)
{
    const char *end = text + n, *close = n && *text == '[' ? memchr(text, ']', n) : NULL;
    if (n && *text == '[' && !close) return false;
    const char *from = close ? close + 1 : text, *colon = memchr(from, ':', (size_t)(end - from));
    if (close && from < end && colon != from) return false;
    *a = (authority){.host = text, .n_host = (size_t)((colon ? colon : end) - text)};
    if (colon) a->port = colon + 1, a->n_port = (size_t)(end - colon) - 1;
    for (size_t i = 0; i < a->n_port; i++)
        if (a->port[i] < '0' || a->port[i] > '9') return false;
    if (!close && a->n_host && a->host[a->n_host - 1] == '.') a->n_host--; /* "localhost." is the same name */
    return a->n_host > 0;
}

static bool same(const char *a, size_t n_a, const char *b, size_t n_b)
{
    return n_a == n_b && !strncasecmp(a, b, n_a);
}

static bool is_local_v6(const char *text)
{
    struct in6_addr v6;
    if (inet_pton(AF_INET6, text, &v6) != 1) return false;
    if (IN6_IS_ADDR_V4MAPPED(&v6)) return v6.s6_addr[12] == 127;
    return IN6_IS_ADDR_LOOPBACK(&v6) || IN6_IS_ADDR_UNSPECIFIED(&v6);
}

/* Whether the name is one that no foreign DNS server can answer for: a foreign name has a dot and is no address. */
static bool is_own(const authority *a)
{
    static const char below[] = ".localhost";
    char text[64];
    struct in_addr v4;
    size_t n = a->n_host, k = sizeof below - 1;
    if (n > k && same(a->host + n - k, k, below, k)) return true;
    if (n >= sizeof text) return false;
    memcpy(text, a->host, n);
    text[n] = '\0';
    if (*text == '[') {
        text[n - 1] = '\0';
        return is_local_v6(text + 1);
    }
    if (inet_pton(AF_INET, text, &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127 || v4.s_addr == 0;
    return text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")] == '\0';
}

bool ek_origins_host_fits(const char *allowed, const char *host)
{
    authority a, b;
    if (!host || !*host) return true;
    bool good = split(&a, host, strlen(host));
    if (good && is_own(&a)) return true;
    size_t n;
    for (const char *item; (item = next_item(&allowed, &n)) != NULL;) {
        if (n == 1 && *item == '*') return true;
        bool fits = good && split(&b, item, n) && same(a.host, a.n_host, b.host, b.n_host);
        if (fits && (!b.port || same(a.port ? a.port : "", a.n_port, b.port, b.n_port))) return true;
    }
    return false;
}

ek_err ek_origins_check_hosts(const char *allowed)
{
    authority a;
    size_t n;
    for (const char *p; (p = next_item(&allowed, &n)) != NULL;) {
        bool good = (n == 1 && *p == '*') || (split(&a, p, n) && !(a.port && a.n_port == 0));
        for (size_t i = 0; i < n && n > 1; i++) good &= p[i] > ' ' && p[i] < 127 && !strchr("*/@?#", p[i]);
        if (!good) return bad(p, n, "matches no header host: NAME or NAME:PORT is needed, or * alone for all");
    }
    return EK_OK;
}

bool ek_origins_page_fits(const char *cors, const char *origin, const char *host)
{
    authority page, own;
    if (ek_cors_allows(cors, origin)) return true;
    bool tls = !strncasecmp(origin, "https://", 8);
    if (!host || (!tls && strncasecmp(origin, "http://", 7) != 0)) return false;
    const char *at = origin + (tls ? 8 : 7), *usual = tls ? "443" : "80";
    if (!split(&page, at, strlen(at)) || !split(&own, host, strlen(host))) return false;
    if (page.n_port == 0) page.port = usual, page.n_port = strlen(usual);
    if (own.n_port == 0) own.port = usual, own.n_port = strlen(usual);
    return same(page.host, page.n_host, own.host, own.n_host) && same(page.port, page.n_port, own.port, own.n_port);
}
