#include "serve/http/origins.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

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
    for (const char *p = allowed; p && *p;) {
        size_t n = strcspn(p, ",");
        const char *next = p + n + (p[n] == ',');
        while (n && *p == ' ') p++, n--;
        while (n && p[n - 1] == ' ') n--;
        if (n == 1 && *p == '*') return true;
        bool fits = good && split(&b, p, n) && same(a.host, a.n_host, b.host, b.n_host);
        if (fits && (!b.port || same(a.port ? a.port : "", a.n_port, b.port, b.n_port))) return true;
        p = next;
    }
    return false;
}

ek_err ek_origins_check_hosts(const char *allowed)
{
    authority a;
    for (const char *p = allowed; p && *p;) {
        size_t n = strcspn(p, ",");
        const char *next = p + n + (p[n] == ',');
        while (n && *p == ' ') p++, n--;
        while (n && p[n - 1] == ' ') n--;
        char shown[81];
        snprintf(shown, sizeof shown, "%.*s", (int)(n < 80 ? n : 80), p);
        bool good = (n == 1 && *p == '*') || (split(&a, p, n) && !(a.port && a.n_port == 0));
        for (size_t i = 0; i < n && n > 1; i++) good &= p[i] > ' ' && p[i] < 127 && !strchr("*/@?#", p[i]);
        if (!good)
            return ek_fail(EK_EINVAL, "\"%s\" matches no header host: NAME or NAME:PORT is needed, or * alone for all",
                           shown);
        p = next;
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
