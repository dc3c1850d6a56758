#include "serve/http/keys.h"

#include <string.h>

/* Paths that routers use, without /v1, which clients may leave out. * stands for the rest. */
static const char *const paths[] = {
    "/metrics",
    "/load",
    "/version",
    "/models",
    "/models/*",
    "/tokenize",
    "/detokenize",
    "/render",
    "/chat/completions/render",
    "/completions/render",
};
enum { N_PATHS = sizeof paths / sizeof *paths };

static bool fits(const char *path, size_t n, const char *known)
{
    size_t k = strcspn(known, "*");
    if (n > 3 && !strncmp(path, "/v1/", 4)) path += 3, n -= 3;
    return known[k] ? n > k && !strncmp(path, known, k) : n == k && !strncmp(path, known, k);
}

/* Bits of the paths that n bytes name: /render both of them, /models those below it too. */
static unsigned bits_of(const char *path, size_t n)
{
    unsigned bits = 0;
    for (unsigned i = 0; i < N_PATHS; i++)
        if (fits(path, n, paths[i])) bits |= 1u << i;
    if (fits(path, n, "/render")) bits |= 1u << (N_PATHS - 2) | 1u << (N_PATHS - 1);
    if (fits(path, n, "/models")) bits |= bits << 1;
    return bits;
}

ek_err ek_open_paths_parse(ek_open_paths *out, const char *text)
{
    *out = (ek_open_paths){0};
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, ",");
        const char *next = p + n + (p[n] == ',');
        while (n > 0 && *p == ' ') p++, n--;
        while (n > 0 && p[n - 1] == ' ') n--;
        unsigned bits = bits_of(p, n);
        if (n == 8 && !strncmp(p, "loopback", n)) out->loopback = true;
        else if (bits) out->everybody |= bits;
        else if (n > 0 && !(n == 4 && !strncmp(p, "none", n)))
            return ek_fail(EK_EINVAL,
                           "--open-paths %.*s: it is none of /metrics, /load, /version, /v1/models, /tokenize, "
                           "/detokenize, /render, loopback, none",
                           n < 80 ? (int)n : 80, p);
        p = next;
    }
    return EK_OK;
}

bool ek_open_paths_knows(const char *path)
{
    return bits_of(path, strlen(path)) != 0;
}

bool ek_open_paths_to_all(const ek_open_paths *o, const char *path)
{
    return (bits_of(path, strlen(path)) & o->everybody) != 0;
}

bool ek_open_paths_to_loopback(const ek_open_paths *o, const char *path)
{
    return o->loopback && (bits_of(path, strlen(path)) & ~bits_of("/models", 7)) != 0;
}
