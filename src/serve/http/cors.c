#include "serve/http/cors.h"

#include <string.h>
#include <strings.h>

/* http or https, a loopback name, any port. */
static bool is_loopback(const char *origin)
{
    static const char *const hosts[] = {"localhost", "127.0.0.1", "[::1]"};
    const char *p = !strncasecmp(origin, "http://", 7)    ? origin + 7
                    : !strncasecmp(origin, "https://", 8) ? origin + 8
                                                          : "";
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(hosts[i]);
        if (strncasecmp(p, hosts[i], n) != 0) continue;
        if (p[n] == '\0' || (p[n] == ':' && p[n + 1 + strspn(p + n + 1, "0123456789")] == '\0')) return true;
    }
    return false;
}

bool ek_cors_allows(const char *list, const char *origin)
{
    size_t n_origin = strlen(origin);
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ",");
        const char *next = p + n + (p[n] == ',');
        while (n && *p == ' ') p++, n--;
        while (n && p[n - 1] == ' ') n--;
        if (n == 1 && *p == '*') return true;
        if (n == 9 && !strncmp(p, "localhost", 9) && is_loopback(origin)) return true;
        if (n && n == n_origin && !strncasecmp(p, origin, n)) return true;
        p = next;
    }
    return false;
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
