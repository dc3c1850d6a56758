/* Routes a request to its handler by path and method. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "serve/page.h"
#include "serve/reply.h"
#include "serve/session.h"

static void models_list(ek_server *s, ek_exchange *x, const char *rest)
{
    (void)rest;
    ek_models_list(s, x);
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
    const char *method;
    void (*handler)(ek_server *s, ek_exchange *x, const char *rest);
} routes[] = {
    {"/v1/models", false, "GET", models_list},
    {"/v1/models/", true, "GET", ek_models_one},
    {"/health", false, "GET", health},
};

/* The dialect of a path, NULL without. */
static const ek_dialect *dialect_of(const ek_server *s, const char *path)
{
    for (const ek_dialect *const *d = s->dialects; *d; d++)
        if (!strcmp((*d)->path, path)) return *d;
    return NULL;
}

void ek_route_error(void *server, ek_buf *out, const char *path, int status, const char *text)
{
    const ek_server *s = server;
    const ek_dialect *d = dialect_of(s, path);
    (d ? d : s->dialects[0])->error(out, status, text, NULL, NULL);
}

/* No media type means JSON; any other than JSON would be read wrongly. */
static bool is_json(const ek_exchange *x)
{
    static const char json[] = "application/json";
    const char *type = ek_exchange_find(x, "content-type"), *coding = ek_exchange_find(x, "content-encoding");
    if (coding && strcasecmp(coding, "identity")) return false;
    if (!type) return true;
    size_t n = strcspn(type, "; ");
    return n == strlen(json) && !strncasecmp(type, json, n);
}

static void api(ek_server *s, ek_exchange *x, const ek_dialect *d)
{
    if (s->n_signals) ek_reply_error(x, d, 503, "the server is shutting down", NULL, NULL);
    else if (is_json(x)) ek_session_open(s, x, d);
    else ek_reply_error(x, d, 415, "the body must be application/json without a content encoding", NULL, NULL);
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
    if (ek_page_answer(x)) return;
    if (d) {
        if (method_fits(method, "POST")) api(s, x, d);
        else wrong_method(x, d, d->path, "POST");
        return;
    }
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        size_t n = strlen(routes[i].path);
        bool fits = !strncmp(path, routes[i].path, n) && (routes[i].prefix ? path[n] != '\0' : path[n] == '\0');
        if (!fits) continue;
        if (method_fits(method, routes[i].method)) routes[i].handler(s, x, path + n);
        else wrong_method(x, s->dialects[0], routes[i].path, routes[i].method);
        return;
    }
    ek_buf b = {0};
    ek_buf_fmt(&b, "there is nothing at %.200s; see docs/SERVER.md for the paths", path);
    ek_reply_error(x, s->dialects[0], 404, ek_buf_text(&b), NULL, NULL);
    ek_buf_fini(&b);
}
