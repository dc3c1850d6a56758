#include "serve/events/address.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "base/address.h"

static ek_err wrong(const char *option, const char *text, const char *need)
{
    return ek_fail(EK_EINVAL, "%s %.80s: %s", option, text, need);
}

static bool is_loopback(const char *host)
{
    struct in_addr v4;
    if (inet_pton(AF_INET, host, &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
    return !strcmp(host, "[::1]") || !strcmp(host, "lo");
}

ek_err ek_events_address_parse(ek_events_address *out, const char *option, const char *text, bool must_bind)
{
    static const char scheme[] = "tcp://", need[] = "tcp://HOST:PORT is needed, with @ in front of it to bind at HOST";
    const char *host = text + (*text == '@');
    if (strncmp(host, scheme, sizeof scheme - 1) != 0) return wrong(option, text, need);
    host += sizeof scheme - 1;
    ek_address a;
    if (ek_address_read(&a, host, strlen(host)) || a.port == EK_PORT_NONE) return wrong(option, text, need);
    char name[EK_EVENTS_HOST_MAX + 3];
    snprintf(name, sizeof name, a.v6 ? "[%.*s]" : "%.*s", (int)a.n_host, a.host);
    bool any = !strcmp(name, "*") || !strcmp(name, "[::]");
    *out = (ek_events_address){.bind = must_bind || *text == '@' || any, .v6 = a.v6};
    out->open = out->bind && !is_loopback(name);
    if (a.port < 0 || (a.port == 0 && !out->bind))
        return wrong(option, text, out->bind ? "the port is 0 to 65535" : "the port to connect to is 1 to 65535");
    if (a.port == 0) snprintf(out->endpoint, sizeof out->endpoint, "%s%s:*", scheme, name);
    else snprintf(out->endpoint, sizeof out->endpoint, "%s%s:%d", scheme, name, a.port);
    return EK_OK;
}
