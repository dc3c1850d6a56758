#include "base/address.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <string.h>

int ek_decimal(const char *s, size_t n, int max)
{
    int64_t v = 0;
    if (n == 0) return -1;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9') return -1;
        v = v * 10 + (s[i] - '0');
        if (v > max) return -1;
    }
    return (int)v;
}

static bool is_name(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char c = s[i];
        const bool word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!word && c != '-' && c != '.' && c != '_') return false;
    }
    return n > 0;
}

static bool is_v6(const char *s, size_t n)
{
    char text[INET6_ADDRSTRLEN];
    struct in6_addr unused;
    const char *zone = memchr(s, '%', n);
    const size_t k = zone ? (size_t)(zone - s) : n;
    if (k >= sizeof text) return false;
    memcpy(text, s, k);
    text[k] = '\0';
    return inet_pton(AF_INET6, text, &unused) == 1 && (!zone || is_name(zone + 1, n - (size_t)(zone + 1 - s)));
}

const char *ek_address_read(ek_address *out, const char *text, size_t n)
{
    const char *end = text + n;
    const bool v6 = n > 0 && *text == '[';
    const char *first = text + v6, *stop = memchr(first, v6 ? ']' : ':', (size_t)(end - first));
    if (v6 && !stop) return "the host's [ has no ]";
    if (!stop) stop = end;
    *out = (ek_address){.host = first, .n_host = (size_t)(stop - first), .v6 = v6, .port = EK_PORT_NONE};
    const bool any = !v6 && out->n_host == 1 && *first == '*';
    if (out->n_host > EK_ADDRESS_HOST || !(any || (v6 ? is_v6 : is_name)(first, out->n_host)))
        return "there is no host, or one with bytes that no host has";
    stop += v6;
    if (stop == end) return NULL;
    if (*stop != ':') return "behind the host's ] stands a port or nothing";
    out->port = ek_decimal(stop + 1, (size_t)(end - stop - 1), 65535);
    if (out->port < 0) out->port = EK_PORT_WRONG;
    return NULL;
}
