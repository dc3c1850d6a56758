#include "serve/events/address.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

static ek_err wrong(const char *option, const char *text, const char *need)
{
    return ek_fail(EK_EINVAL, "%s %.80s: %s", option, text, need);
}

/* 0 to 65535, or -1. */
static int port_of(const char *s)
{
    int port = 0;
    size_t n = strspn(s, "0123456789");
    if (n == 0 || n > 5 || s[n]) return -1;
    for (; *s; s++) port = port * 10 + (*s - '0');
    return port <= 65535 ? port : -1;
}

static bool is_loopback(const char *host)
{
    struct in_addr v4;
    if (inet_pton(AF_INET, host, &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
    return !strcmp(host, "[::1]") || !strcmp(host, "lo");
}

/* Letters, digits and what names and addresses have besides; an address of IPv6 in its brackets. */
static bool is_host(const char *host, size_t n)
{
    static const char name[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
    char text[64];
    struct in6_addr v6;
    if (n == 1 && *host == '*') return true;
    if (n == 0 || n > EK_EVENTS_HOST_MAX) return false;
    if (*host != '[') return strspn(host, name) >= n;
    if (n < 4 || n - 2 >= sizeof text || host[n - 1] != ']') return false;
    memcpy(text, host + 1, n - 2);
    text[n - 2] = '\0';
    return inet_pton(AF_INET6, text, &v6) == 1;
}

ek_err ek_events_address_parse(ek_events_address *out, const char *option, const char *text, bool must_bind)
{
    static const char scheme[] = "tcp://", need[] = "tcp://HOST:PORT is needed, with @ in front of it to bind at HOST";
    const char *host = text + (*text == '@');
    if (strncmp(host, scheme, sizeof scheme - 1) != 0) return wrong(option, text, need);
    host += sizeof scheme - 1;
    const char *colon = strrchr(host, ':');
    if (!colon || !is_host(host, (size_t)(colon - host))) return wrong(option, text, need);
    int n = (int)(colon - host), port = port_of(colon + 1);
    char name[EK_EVENTS_HOST_MAX + 1];
    snprintf(name, sizeof name, "%.*s", n, host);
    bool any = !strcmp(name, "*") || !strcmp(name, "[::]");
    *out = (ek_events_address){.bind = must_bind || *text == '@' || any, .v6 = *name == '['};
    out->open = out->bind && !is_loopback(name);
    if (port < 0 || (port == 0 && !out->bind))
        return wrong(option, text, out->bind ? "the port is 0 to 65535" : "the port to connect to is 1 to 65535");
    if (port == 0) snprintf(out->endpoint, sizeof out->endpoint, "%s%s:*", scheme, name);
    else snprintf(out->endpoint, sizeof out->endpoint, "%s%s:%d", scheme, name, port);
    return EK_OK;
}
