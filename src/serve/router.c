/* Routes a request to its handler by path and method; whole replies. */
#define _GNU_SOURCE /* strcasestr */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "serve/http/access.h"
#include "serve/routes.h"
#include "serve/session.h"
#include "text/json/json.h"

/* --- whole replies --- */

enum { MAX_REASON = 600 }; /* maximum bytes of a sentence in the log */

void ek_reply_json(ek_exchange *x, int status, ek_buf *body)
{
    ek_exchange_reply(x, status, "application/json", ek_buf_text(body), body->len);
    ek_buf_fini(body);
}

/* Allows a burst of lines, then a fixed number per second. */
static bool may_log(uint64_t *suppressed)
{
    enum { BURST = 50, PER_SECOND = 10 };
    static double left = BURST, last;
    static uint64_t dropped;
    double now = ek_now();
    left += (now - last) * PER_SECOND;
    if (left > BURST) left = BURST;
    last = now;
    if (left < 1) {
        dropped++;
        return false;
    }
    left--;
    *suppressed = dropped;
    dropped = 0;
    return true;
}

/* Logs a refused request in one line; many refusals at once are counted instead. x may be NULL. text: the sentence for
 * the client, or NULL; sentences name fields, types, keywords and single values, never the contents of messages. */
static void log_refusal(const ek_exchange *x, const char *path, int status, const char *text)
{
    uint64_t suppressed = 0;
    if (!may_log(&suppressed)) return;
    if (suppressed) ek_log(EK_LOG_INFO, "event=refused_suppressed lines=%llu", (unsigned long long)suppressed);
    char clean[100];
    size_t n = 0;
    for (; path[n] && n + 1 < sizeof clean; n++)
        clean[n] = path[n] > ' ' && path[n] < 0x7F && path[n] != '"' && path[n] != '\\' ? path[n] : '?';
    clean[n] = '\0';
    ek_buf reason = {0};
    size_t len = text ? strnlen(text, MAX_REASON) : 0;
    while (len == MAX_REASON && ((uint8_t)text[len] & 0xc0) == 0x80) len--;
    if (text) ek_json_escape(&reason, text, len);
    const char *id = x ? ek_exchange_header_of(x, "x-request-id") : NULL;
    const char *parent = x ? ek_exchange_find(x, "traceparent") : NULL;
    char trace[EK_HTTP_TRACE];
    const bool traced = parent && ek_http_trace(trace, parent);
    ek_log(EK_LOG_INFO, "event=refused request=%s%s%s status=%d path=\"%s\" reason=\"%s\"", id ? id : "-",
           traced ? " trace=" : "", traced ? trace : "", status, clean, ek_buf_text(&reason));
    ek_buf_fini(&reason);
}

void ek_reply_error(ek_exchange *x, const ek_dialect *d, int status, const char *param, const char *code,
                    const char *fmt, ...)
{
    char text[1024];
    ek_buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    d->error(&b, status, text, param, code);
    log_refusal(x, ek_exchange_path(x), status, text);
    if (status == 429) ek_exchange_header(x, "retry-after", "1");
    if (status == 503) ek_exchange_header(x, "retry-after", "5");
    ek_reply_json(x, status, &b);
}

void ek_reply_failure(ek_exchange *x, const ek_dialect *d, ek_err err, const char *param, const char *own)
{
    ek_reply_error(x, d, ek_err_http(err), param, own ? own : ek_api_error_code(err, param), "%s", ek_err_text());
}

/* --- routes --- */

/* Some clients leave out the version: "/chat/completions" means "/v1/chat/completions". */
static bool is_path(const char *path, const char *known)
{
    static const char v1[] = "/v1";
    const size_t n = sizeof v1 - 1;
    return !strcmp(path, known) || (!strncmp(known, v1, n) && !strcmp(path, known + n));
}

/* The dialect of a path; NULL: none. */
static const ek_dialect *dialect_of(const ek_server *s, const char *path)
{
    for (const ek_dialect *const *d = s->dialects; *d; d++)
        if (is_path(path, (*d)->path)) return *d;
    return NULL;
}

/* The dialect above whose path this path lies; NULL: none. */
static const ek_dialect *dialect_above(const ek_server *s, const char *path)
{
    for (const ek_dialect *const *d = s->dialects; *d; d++) {
        const char *known = (*d)->path;
        if (!strncmp(known, "/v1", 3) && strncmp(path, "/v1", 3) != 0) known += 3;
        size_t n = strlen(known);
        if (!strncmp(path, known, n) && path[n] == '/') return *d;
    }
    return NULL;
}

/* The dialect of a path, of one above it, or of the API that owns all paths with this beginning; NULL: none. */
static const ek_dialect *dialect_near(const ek_server *s, const char *path)
{
    const ek_dialect *d = dialect_of(s, path);
    if (!d) d = dialect_above(s, path);
    for (const ek_dialect *const *any = s->dialects; !d && *any && !strncmp(path, "/api/", 5); any++)
        if ((*any)->vendor == EK_API_OLLAMA) d = *any;
    return d;
}

/* Whether the client is Anthropic's: its clients send one of these headers, OpenAI's do not. */
static bool is_anthropics(const ek_exchange *x)
{
    if (ek_exchange_find(x, "anthropic-version")) return true;
    return ek_exchange_find(x, "x-api-key") && !ek_exchange_find(x, "authorization");
}

const ek_dialect *ek_route_form(const ek_server *s, const ek_exchange *x)
{
    const ek_dialect *d = dialect_near(s, ek_exchange_path(x));
    for (const ek_dialect *const *any = s->dialects; !d && *any && is_anthropics(x); any++)
        if ((*any)->vendor == EK_API_ANTHROPIC) d = *any;
    return d ? d : s->dialects[0];
}

void ek_route_error(void *server, ek_buf *out, const char *path, int status, const char *text)
{
    const ek_server *s = server;
    const ek_dialect *d = dialect_near(s, path);
    log_refusal(NULL, path, status, text);
    (d ? d : s->dialects[0])->error(out, status, text, NULL, NULL);
}

/* Whether the body has a content encoding, which is not decoded here. Any media type is accepted: curl sends
 * application/x-www-form-urlencoded by default, and the reader refuses bodies that are not JSON. */
static bool is_coded(const ek_exchange *x)
{
    const char *coding = ek_exchange_find(x, "content-encoding");
    return coding && *coding && strcasecmp(coding, "identity");
}

/* The client's key, NULL: none. OpenAI's clients and Anthropic's send it in different headers. */
static const char *key_of(const ek_exchange *x)
{
    const char *bearer = ek_exchange_find(x, "authorization");
    if (!bearer || strncasecmp(bearer, "bearer ", 7) != 0) return ek_exchange_find(x, "x-api-key");
    return bearer + 7 + strspn(bearer + 7, " ");
}

uint64_t ek_route_owner(const ek_server *s, const ek_exchange *x)
{
    const char *key = key_of(x); /* open paths need none */
    return key && ek_keys_count(s->keys) > 0 ? ek_keys_identity(key) : 0;
}

static bool may_use(const ek_server *s, const ek_exchange *x)
{
    return ek_keys_count(s->keys) == 0 || ek_keys_allow(s->keys, key_of(x));
}

/* Whether the page's own name was made to mean this machine (DNS rebinding). A client with a key is no such page. */
static bool is_foreign_host(const ek_server *s, const ek_exchange *x)
{
    bool checked = s->allowed_hosts || (ek_keys_count(s->keys) == 0 && ek_http_is_loopback(s->http));
    return checked && !ek_origins_host_fits(s->allowed_hosts, ek_exchange_find(x, "host"));
}

/* Whether the request comes from a foreign page in the browser of a user who can reach this server; such a page has no
 * key. */
static bool is_foreign_page(const ek_server *s, const ek_exchange *x)
{
    const char *origin = ek_exchange_find(x, "origin");
    return origin && ek_keys_count(s->keys) == 0 &&
           !ek_origins_page_fits(s->cors_origins, origin, ek_exchange_find(x, "host"));
}

/* Whether the path needs no key for this client. A browser on this machine does not count as local, because its page
 * may be foreign, or have a name that was made to mean this machine. */
static bool is_open(const ek_server *s, const ek_exchange *x)
{
    const char *path = ek_exchange_path(x), *origin = ek_exchange_find(x, "origin"),
               *host = ek_exchange_find(x, "host");
    if (ek_open_paths_to_all(&s->open_paths, path)) return true;
    if (!ek_open_paths_to_loopback(&s->open_paths, path) || !ek_exchange_is_local(x)) return false;
    return ek_origins_host_fits(s->allowed_hosts, host) &&
           (!origin || ek_origins_page_fits(s->cors_origins, origin, host));
}

bool ek_route_takes_body(void *server, const ek_exchange *x)
{
    return (may_use(server, x) || is_open(server, x)) && !is_foreign_host(server, x) && !is_foreign_page(server, x);
}

static void refuse_foreign(ek_server *s, ek_exchange *x, const ek_dialect *d, const char *header, const char *option)
{
    char value[81];
    snprintf(value, sizeof value, "%s", ek_exchange_find(x, header)); /* the log has the id, too */
    for (char *p = value; *p; p++)
        if (*p < ' ' || *p > '~' || *p == '"' || *p == '\\') *p = '?';
    ek_reply_error(x, d ? d : s->dialects[0], 403, NULL, NULL,
                   "requests with %s: %s are not served here; %s can allow them", header, value, option);
}

/* Health and metrics are served even if the server is full, because they tell that it is. */
bool ek_route_always(void *server, const ek_exchange *x)
{
    const char *rest;
    bool fits;
    const ek_route_row *row = ek_routes_find(ek_exchange_path(x), ek_exchange_method(x), &rest, &fits);
    (void)server;
    return row && fits && row->always;
}

static void refuse_key(ek_exchange *x, const ek_dialect *d)
{
    ek_exchange_header(x, "www-authenticate", "Bearer");
    ek_reply_error(x, d, 401, NULL, "invalid_api_key",
                   "a valid API key is needed: authorization: Bearer KEY, or x-api-key: KEY");
}

void ek_route_api(ek_server *s, ek_exchange *x, const ek_dialect *d)
{
    if (s->n_signals) ek_reply_error(x, d, 503, NULL, NULL, "the server is shutting down");
    else if (is_coded(x)) ek_reply_error(x, d, 415, NULL, NULL, "the body must be JSON without a content encoding");
    /* The time of a prompt reveals whether it is cached, so users with different keys share no cache. */
    else ek_session_open(s, x, d, ek_route_owner(s, x));
}

/* Lists the methods that a page of another origin may use at a path. At unknown paths any method is allowed, so that
 * the page sees the 404. */
static void list_methods(char *out, size_t room, const ek_dialect *d, const char *path)
{
    const char *rest;
    bool fits;
    char methods[64] = "GET, POST, DELETE";
    const ek_route_row *row = d ? NULL : ek_routes_find(path, "", &rest, &fits);
    if (d) snprintf(methods, sizeof methods, "POST");
    else if (row && strcmp(row->method, "*")) ek_routes_methods(methods, sizeof methods, row);
    snprintf(out, room, "%s%s, OPTIONS", methods, strncmp(methods, "GET", 3) ? "" : ", HEAD");
}

/* Methods and paths come from the client and may hold any bytes, so quotations are cleaned. */
void ek_reply_wrong_method(ek_exchange *x, const ek_dialect *d, const char *path, const char *allowed)
{
    ek_exchange_header(x, "allow", allowed);
    ek_reply_error(x, d, 405, NULL, NULL, "%.200s takes %s, not %.40s", path, allowed, ek_exchange_method(x));
}

/* Whether the client names HTML among its types, as browsers do. Clients of Ollama, curl and programs that look for a
 * server do not. A client without an `accept` header gets the page. */
static bool takes_html(const ek_exchange *x)
{
    const char *accept = ek_exchange_find(x, "accept");
    return !accept || strcasestr(accept, "text/html") || strcasestr(accept, "text/*") ||
           strcasestr(accept, "application/xhtml+xml");
}

/* At "/" programs look for Ollama by this sentence. */
static bool answer_root(ek_exchange *x, const char *path)
{
    static const char text[] = "Ollama is running";
    const char *method = ek_exchange_method(x);
    if (strcmp(path, "/") != 0 || !ek_method_fits(method, "GET")) return false;
    ek_exchange_header(x, "vary", "accept");
    if (takes_html(x)) return false;
    ek_exchange_reply(x, 200, "text/plain; charset=utf-8", text, sizeof text - 1);
    return true;
}

/* The path without a "/" at its end, which some clients add. The caller frees it. */
static char *path_of(const ek_exchange *x)
{
    char *path = ek_strdup(ek_exchange_path(x));
    size_t n = strlen(path);
    if (n > 1 && path[n - 1] == '/') path[n - 1] = '\0';
    return path;
}

static void route(ek_server *s, ek_exchange *x, const char *path)
{
    const char *method = ek_exchange_method(x);
    const ek_dialect *d = dialect_of(s, path), *form = ek_route_form(s, x);
    char id[32], methods[96];
    snprintf(id, sizeof id, "req_%08x%08llx", (unsigned)s->nonce,
             (unsigned long long)(ek_exchange_number(x) & 0xffffffff));
    ek_exchange_header(x, "x-request-id", id);
    if (form->vendor == EK_API_ANTHROPIC) ek_exchange_header(x, "request-id", id); /* Anthropic's name for it */
    if (is_foreign_host(s, x)) {
        refuse_foreign(s, x, form, "host", "--allowed-hosts");
        return;
    }
    list_methods(methods, sizeof methods, d, path);
    if (ek_cors_handle(s->cors_origins, methods, x)) return;
    if (is_foreign_page(s, x)) {
        refuse_foreign(s, x, form, "origin", "--cors-origins");
        return;
    }
    if (answer_root(x, path) || ek_page_answer(x)) return;
    if (d) {
        if (!ek_method_fits(method, "POST")) ek_reply_wrong_method(x, d, d->path, "POST");
        else if (!may_use(s, x) && !is_open(s, x)) refuse_key(x, d);
        else ek_route_api(s, x, d);
        return;
    }
    const char *rest;
    bool fits;
    const ek_route_row *row = ek_routes_find(path, method, &rest, &fits);
    if (row) {
        ek_routes_methods(methods, sizeof methods, row);
        if (!fits) ek_reply_wrong_method(x, form, path, methods);
        else if (!row->open && !may_use(s, x) && !is_open(s, x)) refuse_key(x, form);
        else row->handler(s, x, rest);
        return;
    }
    const char *why = ek_absent_find(path);
    if (!why)
        ek_reply_error(x, form, 404, NULL, NULL, "there is nothing at %.200s; /openapi.json lists the paths", path);
    else if (!may_use(s, x) && !is_open(s, x)) refuse_key(x, form);
    else ek_route_missing(s, x, why);
}

void ek_route(void *server, ek_exchange *x)
{
    char *path = path_of(x);
    route(server, x, path);
    free(path);
}
