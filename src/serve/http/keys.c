#include "serve/http/access.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/hash/hash.h"

enum { DIGEST = 64, MAX_KEY = 4096 };

typedef struct key {
    char digest[DIGEST + 1]; /* keys themselves are not kept */
} key;

typedef struct list {
    key *v;
    int n;
} list;

struct ek_keys {
    list given, file;
    char *path;
};

static ek_err add_key(list *l, const char *text, size_t n)
{
    while (n && (*text == ' ' || *text == '\t')) text++, n--;
    while (n && (text[n - 1] == ' ' || text[n - 1] == '\t' || text[n - 1] == '\r')) n--;
    if (n == 0) return EK_OK;
    if (n > MAX_KEY) return ek_fail(EK_EINVAL, "an API key of %zu bytes, at most %d are allowed", n, MAX_KEY);
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return ek_fail(EK_EINVAL, "an API key may hold printable ASCII characters without spaces only");
    l->v = ek_realloc(l->v, (size_t)(l->n + 1) * sizeof *l->v);
    ek_sha256_hex(l->v[l->n++].digest, text, n);
    return EK_OK;
}

static ek_err read_given(list *l, const char *given)
{
    for (const char *p = given; p && *p;) {
        size_t n = strcspn(p, ",");
        EK_TRY(add_key(l, p, n));
        p += n + (p[n] == ',');
    }
    return EK_OK;
}

static ek_err read_lines(list *l, const char *text, const char *path)
{
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, "\n");
        if (*p != '#') EK_TRY(add_key(l, p, n));
        p += n + (p[n] == '\n');
    }
    return l->n ? EK_OK : ek_fail(EK_EINVAL, "%s: no API key in it", path);
}

static ek_err read_file(list *l, const char *path)
{
    if (!path) return EK_OK;
    ek_buf b = {0};
    ek_err err = ek_file_read(&b, path, 1 << 20);
    if (!err) {
        err = read_lines(l, ek_buf_text(&b), path);
        if (b.len) memset(b.data, 0, b.len);
    }
    ek_buf_fini(&b);
    return err;
}

ek_err ek_keys_open(ek_keys **out, const char *given, const char *path)
{
    ek_keys *k = ek_alloc(sizeof *k);
    if (path) k->path = ek_strdup(path);
    ek_err err = read_given(&k->given, given);
    if (!err && given && k->given.n == 0) err = ek_fail(EK_EINVAL, "an empty API key");
    if (!err) err = read_file(&k->file, path);
    if (err) ek_keys_close(k);
    else *out = k;
    return err;
}

ek_err ek_keys_reload(ek_keys *k)
{
    list fresh = {0};
    ek_err err = read_file(&fresh, k->path);
    if (!err) {
        free(k->file.v);
        k->file = fresh;
    } else {
        free(fresh.v);
    }
    return err;
}

int ek_keys_count(const ek_keys *k)
{
    return k->given.n + k->file.n;
}

/* Looks at every byte of every key, so that the time reveals nothing. */
static bool find(const list *l, const char *digest)
{
    bool found = false;
    for (int i = 0; i < l->n; i++) {
        volatile unsigned char differ = 0;
        for (int b = 0; b < DIGEST; b++) differ |= (unsigned char)(l->v[i].digest[b] ^ digest[b]);
        found |= differ == 0;
    }
    return found;
}

bool ek_keys_allow(const ek_keys *k, const char *text)
{
    char digest[DIGEST + 1];
    if (!text) return false;
    ek_sha256_hex(digest, text, strlen(text));
    bool given = find(&k->given, digest), file = find(&k->file, digest);
    return given || file;
}

uint64_t ek_keys_identity(const char *text)
{
    char digest[DIGEST + 1];
    ek_sha256_hex(digest, text, strlen(text));
    digest[16] = '\0';
    return strtoull(digest, NULL, 16) | 1;
}

void ek_keys_close(ek_keys *k)
{
    if (!k) return;
    free(k->given.v);
    free(k->file.v);
    free(k->path);
    free(k);
}

/* --- paths without a key --- */

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

bool ek_open_paths_to_all(const ek_open_paths *o, const char *path)
{
    return (bits_of(path, strlen(path)) & o->everybody) != 0;
}

bool ek_open_paths_to_loopback(const ek_open_paths *o, const char *path)
{
    return o->loopback && (bits_of(path, strlen(path)) & ~bits_of("/models", 7)) != 0;
}
