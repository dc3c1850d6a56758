#include "serve/api/media.h"

#include <string.h>
#include <strings.h>

#include "base/encoding.h"

static const char scheme[] = "data:", coded[] = "base64";
enum { SCHEME = sizeof scheme - 1, CODED = sizeof coded - 1, MAX_HEAD = 1024 };

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r' && c != '\v');
}

void ek_url_trim(const char **s, size_t *n)
{
    while (*n > 0 && (unsigned char)(*s)[0] <= ' ') ++*s, --*n;
    while (*n > 0 && (unsigned char)(*s)[*n - 1] <= ' ') --*n;
}

bool ek_is_data_url(const char *s, size_t n)
{
    ek_url_trim(&s, &n);
    return n >= SCHEME && !strncasecmp(s, scheme, SCHEME);
}

/* Whether c may stand in the names of a media type (RFC 2045). */
static bool is_token_char(char c)
{
    return c > ' ' && c < 127 && !strchr("()<>@,;:\\\"/[]?=", c);
}

static size_t skip_token(const char *s, size_t at, size_t end)
{
    while (at < end && is_token_char(s[at])) at++;
    return at;
}

/* Reads TYPE/SUBTYPE. Other texts ("None", "image", "undefined") are ignored. */
static void parse_type(ek_data_url *out, const char *s, size_t end)
{
    ek_url_trim(&s, &end);
    const size_t slash = skip_token(s, 0, end);
    const size_t stop = slash < end && s[slash] == '/' ? skip_token(s, slash + 1, end) : slash;
    out->type = s;
    out->n_type = slash > 0 && stop > slash + 1 && stop == end ? end : 0;
}

/* [s, end) is ;PARAMETER;…: finds base64 among the parameters. Blanks around it are ignored. Other parameters do not
 * concern a file. */
static const char *parse_parameters(ek_data_url *out, const char *s, const char *end)
{
    while (s < end) {
        const char *p = s + 1, *stop = memchr(p, ';', (size_t)(end - p));
        if (!stop) stop = end;
        size_t n = (size_t)(stop - p);
        ek_url_trim(&p, &n);
        if (n == CODED && !strncasecmp(p, coded, CODED)) {
            if (stop != end) return "has something between ;base64 and the comma";
            out->base64 = true;
        }
        s = stop;
    }
    return NULL;
}

const char *ek_data_url_parse(ek_data_url *out, const char *s, size_t n)
{
    *out = (ek_data_url){0};
    ek_url_trim(&s, &n);
    if (!ek_is_data_url(s, n)) return "does not begin with data:";
    s += SCHEME, n -= SCHEME;
    const char *comma = memchr(s, ',', n < MAX_HEAD ? n : MAX_HEAD);
    if (!comma) return n < MAX_HEAD ? "has no comma" : "has no comma in its first 1,024 bytes";
    const char *semicolon = memchr(s, ';', (size_t)(comma - s));
    if (!semicolon) semicolon = comma;
    parse_type(out, s, (size_t)(semicolon - s));
    out->data = comma + 1;
    out->n_data = n - (size_t)(comma + 1 - s);
    return parse_parameters(out, semicolon, comma);
}

size_t ek_data_url_bytes(const ek_data_url *u)
{
    return u->base64 ? ek_base64_bytes(u->data, u->n_data, true) : u->n_data + 1;
}

/* Decodes %41 as A; line breaks and tabs are not part of a URL. */
static bool add_unescaped(ek_buf *out, const char *s, size_t n)
{
    if (!ek_buf_reserve(out, n + 1)) return false;
    char *at = out->data + out->len;
    for (size_t i = 0; i < n; i++) {
        const int byte = s[i] == '%' ? ek_hex_byte(s + i + 1, n - i - 1) : -1;
        if (byte < 0 && is_blank(s[i]) && s[i] != ' ') continue;
        *at++ = byte >= 0 ? (char)byte : s[i];
        if (byte >= 0) i += 2;
    }
    out->len = (size_t)(at - out->data);
    *at = '\0';
    return true;
}

bool ek_data_url_decode(ek_buf *out, const ek_data_url *u)
{
    const char *end = memchr(u->data, '#', u->n_data); /* a fragment does not belong to the data */
    const size_t n = end ? (size_t)(end - u->data) : u->n_data;
    return u->base64 ? ek_base64_decode_escaped(out, u->data, n) : add_unescaped(out, u->data, n);
}
