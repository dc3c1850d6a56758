/* Routes a request to its handler by path and method. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "serve/anthropic.h"
#include "serve/cors.h"
#include "serve/origins.h"
#include "serve/page.h"
#include "serve/reply.h"
#include "serve/session.h"

static void models_list(ek_server *s, ek_exchange *x, const char *rest)
{
    (void)rest;
    ek_models_list(s, x);
}

static void ready(ek_server *s, ek_exchange *x, const char *rest)
{
    (void)rest;
    ek_readiness_reply(s, x);
}

static void metrics(ek_server *s, ek_exchange *x, const char *rest)
{
    (void)rest;
    ek_metrics_reply(s, x);
}

static void health(ek_server *s, ek_exchange *x, const char *rest)
{
    (void)rest;
    ek_health(s, x);
}

/* What no dialect answers. */
static const struct {
    const char *path;
    bool prefix; /* the rest of the path is an argument */
    bool open;   /* to everybody, without an API key */
    const char *method;
    void (*handler)(ek_server *s, ek_exchange *x, const char *rest);
} routes[] = {
    {"/v1/models", false, false, "GET", models_list},
    {"/v1/models/", true, false, "GET", ek_models_one},
    {"/health", false, true, "GET", health},
    {"/ready", false, true, "GET", ready},
    {"/metrics", false, true, "GET", metrics},
    {"/v1/responses/", true, false, "GET", ek_responses_get}, /* rows of one path stand together */
    {"/v1/responses/", true, false, "DELETE", ek_responses_delete},
};

/* Some clients leave the version out: "/chat/completions" is "/v1/chat/completions". */
static bool is_path(const char *path, const char *known)
{
    static const char v1[] = "/v1";
    const size_t n = sizeof v1 - 1;
    return !strcmp(path, known) || (!strncmp(known, v1, n) && !strcmp(path, known + n));
}

enum { N_ROUTES = sizeof routes / sizeof *routes };

/* Whether the next row is about the same path, with another method. */
static bool has_other_method(size_t i)
{
    return i + 1 < N_ROUTES && !strcmp(routes[i].path, routes[i + 1].path);
}

/* The methods of a path, of which row i is the last. */
static void list_methods(char *out, size_t room, size_t i)
{
    size_t first = i, n = 0;
    while (first > 0 && has_other_method(first - 1)) first--;
    for (size_t k = first; k <= i && n < room; k++)
        n += (size_t)snprintf(out + n, room - n, "%s%s", k > first ? ", " : "", routes[k].method);
}

/* The dialect of a path, NULL without. */
static const ek_dialect *dialect_of(const ek_server *s, const char *path)
{
    for (const ek_dialect *const *d = s->dialects; *d; d++)
        if (is_path(path, (*d)->path)) return *d;
    return NULL;
}

void ek_route_error(void *server, ek_buf *out, const char *path, int status, const char *text)
{
    const ek_server *s = server;
    const ek_dialect *d = dialect_of(s, path);
    ek_log_refusal(NULL, path, status, text);
    (d ? d : s->dialects[0])->error(out, status, text, NULL, NULL);
}

/* Any media type: curl says application/x-www-form-urlencoded unless it is told otherwise, and what is no JSON is
 * refused by the reader. A coding is not undone here. */
static bool is_coded(const ek_exchange *x)
{
    const char *coding = ek_exchange_find(x, "content-encoding");
    return coding && *coding && strcasecmp(coding, "identity");
}

/* The key a client sends, NULL without: OpenAI's clients in one header, Anthropic's in another. */
static const char *key_of(const ek_exchange *x)
{
    const char *bearer = ek_exchange_find(x, "authorization");
    if (!bearer || strncasecmp(bearer, "bearer ", 7) != 0) return ek_exchange_find(x, "x-api-key");
    return bearer + 7 + strspn(bearer + 7, " ");
}

uint64_t ek_route_owner(const ek_server *s, const ek_exchange *x)
{
    return ek_keys_count(s->keys) > 0 ? ek_keys_identity(key_of(x)) : 0;
}

static bool may_use(const ek_server *s, const ek_exchange *x)
{
    return ek_keys_count(s->keys) == 0 || ek_keys_allow(s->keys, key_of(x));
}

/* DNS rebinding: a page whose own name came to mean this machine. Who has a key is no such page. */
static bool is_foreign_host(const ek_server *s, const ek_exchange *x)
{
    bool checked = s->allowed_hosts || (ek_keys_count(s->keys) == 0 && ek_http_is_loopback(s->http));
    return checked && !ek_origins_host_fits(s->allowed_hosts, ek_exchange_find(x, "host"));
}

/* A page of somebody else's, in the browser of somebody who may reach this server; it has no key. */
static bool is_foreign_page(const ek_server *s, const ek_exchange *x)
{
    const char *origin = ek_exchange_find(x, "origin");
    return origin && ek_keys_count(s->keys) == 0 &&
           !ek_origins_page_fits(s->cors_origins, origin, ek_exchange_find(x, "host"));
}

bool ek_route_takes_body(void *server, const ek_exchange *x)
{
    return may_use(server, x) && !is_foreign_host(server, x) && !is_foreign_page(server, x);
}

static void refuse_foreign(ek_server *s, ek_exchange *x, const ek_dialect *d, const char *header, const char *option)
{
    ek_buf b = {0};
    char value[81];
    snprintf(value, sizeof value, "%s", ek_exchange_find(x, header)); /* the log has it, too */
    for (char *p = value; *p; p++)
        if (*p < ' ' || *p > '~' || *p == '"' || *p == '\\') *p = '?';
    ek_buf_fmt(&b, "requests with %s: %s are not served here; %s can allow them", header, value, option);
    ek_reply_error(x, d ? d : s->dialects[0], 403, ek_buf_text(&b), NULL, NULL);
    ek_buf_fini(&b);
}

static void refuse_key(ek_exchange *x, const ek_dialect *d)
{
    ek_exchange_header(x, "www-authenticate", "Bearer");
    ek_reply_error(x, d, 401, "a valid API key is needed: authorization: Bearer KEY, or x-api-key: KEY", NULL,
                   "invalid_api_key");
}

static void api(ek_server *s, ek_exchange *x, const ek_dialect *d)
{
    if (s->n_signals) ek_reply_error(x, d, 503, "the server is shutting down", NULL, NULL);
    else if (is_coded(x)) ek_reply_error(x, d, 415, "the body must be JSON without a content encoding", NULL, NULL);
    /* How long a prompt takes tells whether it is cached: users of different keys do not learn that of each other. */
    else ek_session_open(s, x, d, ek_route_owner(s, x));
}

static bool method_fits(const char *method, const char *allowed)
{
    return !strcmp(method, allowed) || (!strcmp(allowed, "GET") && !strcmp(method, "HEAD"));
}

/* Methods and paths are the client's: bytes of any kind, cleaned where they are quoted. */
static void wrong_method(ek_exchange *x, const ek_dialect *d, const char *path, const char *allowed)
{
    ek_buf b = {0};
    ek_exchange_header(x, "allow", allowed);
    ek_buf_fmt(&b, "%s takes %s, not %.40s", path, allowed, ek_exchange_method(x));
    ek_reply_error(x, d, 405, ek_buf_text(&b), NULL, NULL);
    ek_buf_fini(&b);
}

void ek_route(void *server, ek_exchange *x)
{
    ek_server *s = server;
    const char *method = ek_exchange_method(x), *path = ek_exchange_path(x);
    const ek_dialect *d = dialect_of(s, path);
    char id[32];
    snprintf(id, sizeof id, "req_%08x%08llx", (unsigned)s->nonce,
             (unsigned long long)(ek_exchange_number(x) & 0xffffffff));
    ek_exchange_header(x, "x-request-id", id);
    if (d && d->error == ek_anthropic_error) ek_exchange_header(x, "request-id", id); /* Anthropic's name for it */
    if (is_foreign_host(s, x)) {
        refuse_foreign(s, x, d, "host", "--allowed-hosts");
        return;
    }
    if (ek_cors_handle(s->cors_origins, x)) return;
    if (is_foreign_page(s, x)) {
        refuse_foreign(s, x, d, "origin", "--cors-origins");
        return;
    }
    if (ek_page_answer(x)) return;
    if (d) {
        if (!method_fits(method, "POST")) wrong_method(x, d, d->path, "POST");
        else if (!may_use(s, x)) refuse_key(x, d);
        else api(s, x, d);
        return;
    }
    for (size_t i = 0; i < N_ROUTES; i++) {
        const char *known = routes[i].path, *rest = path;
        size_t n = strlen(known);
        if (!strncmp(known, "/v1", 3) && strncmp(path, "/v1", 3) != 0) known += 3, n -= 3;
        bool fits = !strncmp(path, known, n) && (routes[i].prefix ? path[n] != '\0' : path[n] == '\0');
        if (!fits || (!method_fits(method, routes[i].method) && has_other_method(i))) continue;
        rest += n;
        char methods[64];
        list_methods(methods, sizeof methods, i);
        if (!method_fits(method, routes[i].method)) wrong_method(x, s->dialects[0], routes[i].path, methods);
        else if (!routes[i].open && !may_use(s, x)) refuse_key(x, s->dialects[0]);
        else routes[i].handler(s, x, rest);
        return;
    }
    ek_buf b = {0};
    ek_buf_fmt(&b, "there is nothing at %.200s; see docs/SERVER.md for the paths", path);
    ek_reply_error(x, s->dialects[0], 404, ek_buf_text(&b), NULL, NULL);
    ek_buf_fini(&b);
}
