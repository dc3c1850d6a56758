/* Which handler answers which request, and errors in OpenAI's shape. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "serve/chat_reply.h"
#include "serve/server_state.h"

void ek_reply_json(ek_exchange *x, int status, const ek_buf *body)
{
    ek_exchange_reply(x, status, "application/json", ek_buf_text(body), body->len);
}

void ek_reply_error(ek_exchange *x, int status, const char *message, const char *param, const char *code)
{
    ek_buf b = {0};
    ek_error_body(&b, status, message, param, code);
    if (status == 429) ek_exchange_header(x, "retry-after", "1");
    if (status == 503) ek_exchange_header(x, "retry-after", "5");
    ek_reply_json(x, status, &b);
    ek_buf_fini(&b);
}

void ek_reply_failure(ek_exchange *x, ek_err err, const char *param)
{
    ek_reply_error(x, ek_err_http(err), ek_err_text(), param, err == EK_ETOOLONG ? "context_length_exceeded" : NULL);
}

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

static void chat(ek_server *s, ek_exchange *x, const char *rest)
{
    (void)rest;
    if (s->n_signals) ek_reply_error(x, 503, "the server is shutting down", NULL, NULL);
    else if (is_json(x)) ek_session_open(s, x);
    else ek_reply_error(x, 415, "the body must be application/json without a content encoding", NULL, NULL);
}

static const struct {
    const char *path;
    bool prefix; /* the rest of the path is an argument */
    const char *method;
    void (*handler)(ek_server *s, ek_exchange *x, const char *rest);
} routes[] = {
    {"/v1/chat/completions", false, "POST", chat},
    {"/v1/models", false, "GET", models_list},
    {"/v1/models/", true, "GET", ek_models_one},
    {"/health", false, "GET", health},
};

static bool method_fits(const char *method, const char *want)
{
    return !strcmp(method, want) || (!strcmp(want, "GET") && !strcmp(method, "HEAD"));
}

/* Methods and paths are the client's: bytes of any kind, cleaned where they are quoted. */
void ek_route(void *server, ek_exchange *x)
{
    ek_server *s = server;
    const char *method = ek_exchange_method(x), *path = ek_exchange_path(x);
    char id[32];
    snprintf(id, sizeof id, "req_%08x%08llx", (unsigned)s->nonce,
             (unsigned long long)(ek_exchange_number(x) & 0xffffffff));
    ek_exchange_header(x, "x-request-id", id);

    ek_buf b = {0};
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        size_t n = strlen(routes[i].path);
        bool fits = !strncmp(path, routes[i].path, n) && (routes[i].prefix ? path[n] != '\0' : path[n] == '\0');
        if (!fits) continue;
        if (method_fits(method, routes[i].method)) {
            routes[i].handler(s, x, path + n);
            return;
        }
        ek_exchange_header(x, "allow", routes[i].method);
        ek_buf_fmt(&b, "%s takes %s, not %.40s", routes[i].path, routes[i].method, method);
        ek_reply_error(x, 405, ek_buf_text(&b), NULL, NULL);
        ek_buf_fini(&b);
        return;
    }
    ek_buf_fmt(&b, "there is nothing at %.200s; see docs/SERVER.md for the paths", path);
    ek_reply_error(x, 404, ek_buf_text(&b), NULL, NULL);
    ek_buf_fini(&b);
}
