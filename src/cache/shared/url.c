#include "cache/shared/link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/address.h"
#include "base/alloc.h"
#include "base/encoding.h"
#include "base/log.h"

enum { MAX_URL = 2048, MAX_DB = 65535 };

/* What is behind the last @ of a text, so that no password is shown, however broken the text is. */
static ek_err wrong(const char *text, const char *what)
{
    char shown[EK_PLAIN_NAME];
    const char *at = strrchr(text, '@'), *rest = strstr(text, "://");
    bool secret = at != NULL;
    return ek_fail(EK_EINVAL, "%s%s: %s; it must be redis://[[USER]:PASSWORD@]HOST[:PORT][/DB], or rediss:// for TLS",
                   secret ? (rest && rest < at ? "[…]@" : "…@") : "", ek_plain_name(shown, secret ? at + 1 : text),
                   what);
}

/* NULL: a broken %XX, or a zero byte. */
static char *decode(const char *p, size_t n)
{
    char *out = ek_alloc(n + 1), *to = out;
    for (size_t i = 0; i < n; i++) {
        int c = (unsigned char)p[i];
        if (c == '%') {
            c = ek_hex_byte(p + i + 1, n - i - 1);
            i += 2;
        }
        if (c <= 0) {
            free(out);
            return NULL;
        }
        *to++ = (char)c;
    }
    *to = '\0';
    return out;
}

/* n bytes in front of the @. */
static const char *read_user(ek_shared_url *u, const char *p, size_t n)
{
    const char *colon = memchr(p, ':', n);
    if (!colon || colon + 1 == p + n) return "there is no password in front of the @";
    if (colon > p && !(u->user = decode(p, (size_t)(colon - p)))) return "a user may hold %XX for a byte other than 0";
    u->password = decode(colon + 1, (size_t)(p + n - colon - 1));
    return u->password ? NULL : "a password may hold %XX for a byte other than 0";
}

/* n bytes: host and port. */
static const char *read_host(ek_shared_url *u, const char *p, size_t n)
{
    ek_address a;
    const char *what = ek_address_read(&a, p, n);
    if (what) return what;
    if (*a.host == '*') return "there is no host";
    u->host = ek_alloc(a.n_host + 1);
    memcpy(u->host, a.host, a.n_host);
    u->port = a.port == EK_PORT_NONE ? EK_SHARED_PORT : a.port;
    return u->port > 0 ? NULL : "a port is between 1 and 65535";
}

static const char *read_url(ek_shared_url *u, const char *text)
{
    static const struct {
        const char *name;
        bool tls;
    } schemes[] = {{"redis://", false}, {"rediss://", true}, {"valkey://", false}, {"valkeys://", true}};
    const char *p = NULL, *what;
    if (strlen(text) > MAX_URL) return "longer than 2048 bytes";
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        size_t n = strlen(schemes[i].name);
        if (strncasecmp(text, schemes[i].name, n) != 0) continue;
        p = text + n;
        u->tls = schemes[i].tls;
    }
    if (!p) return "the scheme is none of redis, rediss, valkey and valkeys";
    const char *at = strrchr(p, '@');
    if (at && (what = read_user(u, p, (size_t)(at - p))) != NULL) return what;
    if (at) p = at + 1;
    size_t n = strcspn(p, "/");
    if ((what = read_host(u, p, n)) != NULL) return what;
    p += n;
    if (*p && p[1]) u->db = ek_decimal(p + 1, strlen(p + 1), MAX_DB);
    return u->db >= 0 ? NULL : "a DB is a number between 0 and 65535";
}

ek_err ek_shared_url_parse(ek_shared_url *out, const char *text)
{
    *out = (ek_shared_url){0};
    const char *what = read_url(out, text);
    if (!what) return EK_OK;
    ek_shared_url_fini(out);
    return wrong(text, what);
}

void ek_shared_url_fini(ek_shared_url *u)
{
    free(u->host);
    free(u->user);
    free(u->password);
    *u = (ek_shared_url){0};
}

const char *ek_shared_url_text(const ek_shared_url *u, char out[EK_SHARED_TEXT])
{
    bool v6 = strchr(u->host, ':') != NULL;
    snprintf(out, EK_SHARED_TEXT, "%s://%s%s%s:%d/%d", u->tls ? "rediss" : "redis", v6 ? "[" : "", u->host,
             v6 ? "]" : "", u->port, u->db);
    return out;
}
