#include "serve/api/data_url.h"

#include <string.h>
#include <strings.h>

static const char scheme[] = "data:", coded[] = "base64";
enum { SCHEME = sizeof scheme - 1, CODED = sizeof coded - 1, MAX_HEAD = 1024 };

bool ek_is_data_url(const char *s, size_t n)
{
    return n >= SCHEME && !strncasecmp(s, scheme, SCHEME);
}

/* Of names in media types (RFC 2045). */
static bool is_token_char(char c)
{
    return c > ' ' && c < 127 && !strchr("()<>@,;:\\\"/[]?=", c);
}

static size_t skip_token(const char *s, size_t at, size_t end)
{
    while (at < end && is_token_char(s[at])) at++;
    return at;
}

static const char *parse_type(ek_data_url *out, const char *s, size_t end)
{
    size_t slash = skip_token(s, 0, end), stop = slash;
    out->type = s;
    if (slash < end && s[slash] == '/') stop = skip_token(s, slash + 1, end);
    out->n_type = stop;
    bool whole = stop == 0 || (slash > 0 && stop > slash + 1);
    bool ends = stop == end || s[stop] == ';';
    return whole && ends ? NULL : "has no media type of the form TYPE/SUBTYPE";
}

/* ;NAME=VALUE or ;base64, which must be the last. */
static const char *parse_parameters(ek_data_url *out, const char *s, size_t at, size_t end)
{
    while (at < end) {
        size_t from = at + 1, stop = from; /* behind the semicolon */
        while (stop < end && s[stop] != ';') stop++;
        bool last = stop == end;
        if (stop - from == CODED && !strncasecmp(s + from, coded, CODED)) {
            if (!last) return "has something between ;base64 and the comma";
            out->base64 = true;
        } else {
            size_t equals = skip_token(s, from, stop);
            if (equals == from || equals == stop || s[equals] != '=') return "has a parameter without NAME=VALUE";
        }
        at = stop;
    }
    return NULL;
}

const char *ek_data_url_parse(ek_data_url *out, const char *s, size_t n)
{
    *out = (ek_data_url){0};
    if (!ek_is_data_url(s, n)) return "does not begin with data:";
    s += SCHEME, n -= SCHEME;
    const char *comma = memchr(s, ',', n < MAX_HEAD ? n : MAX_HEAD);
    if (!comma) return n < MAX_HEAD ? "has no comma" : "has no comma in its first 1,024 bytes";
    size_t head = (size_t)(comma - s);
    const char *why = parse_type(out, s, head);
    if (!why) why = parse_parameters(out, s, out->n_type, head);
    out->data = comma + 1;
    out->n_data = n - head - 1;
    return why;
}
