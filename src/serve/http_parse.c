#include "serve/http_parse.h"

#include <string.h>

bool ek_span_is(ek_span s, const char *text)
{
    return s.p && strlen(text) == s.n && !memcmp(s.p, text, s.n);
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

bool ek_span_is_nocase(ek_span s, const char *text)
{
    if (!s.p || strlen(text) != s.n) return false;
    for (size_t i = 0; i < s.n; i++)
        if (lower(s.p[i]) != lower(text[i])) return false;
    return true;
}

ek_span ek_http_find(const ek_http_head *h, const char *name)
{
    for (int i = 0; i < h->n_headers; i++)
        if (ek_span_is_nocase(h->name[i], name)) return h->value[i];
    return (ek_span){0};
}

static bool is_token(char c)
{
    return (c >= '0' && c <= '9') || (lower(c) >= 'a' && lower(c) <= 'z') || (c && strchr("!#$%&'*+-.^_`|~", c));
}

/* Visible ASCII and bytes above it: no control character, no space. */
static bool is_target(char c)
{
    return (unsigned char)c > 0x20 && c != 0x7f;
}

/* The line at *at, without its CRLF or LF; moves *at behind it. */
static bool next_line(const char *buf, size_t n, size_t *at, ek_span *line)
{
    const char *nl = memchr(buf + *at, '\n', n - *at);
    if (!nl) return false;
    *line = (ek_span){buf + *at, (size_t)(nl - buf) - *at};
    *at = (size_t)(nl - buf) + 1;
    if (line->n && line->p[line->n - 1] == '\r') line->n--;
    return true;
}

static int read_request_line(ek_http_head *h, ek_span line)
{
    size_t i = 0;
    while (i < line.n && is_token(line.p[i])) i++;
    h->method = (ek_span){line.p, i};
    if (i == 0 || i >= line.n || line.p[i] != ' ') return -400;
    size_t start = ++i;
    while (i < line.n && is_target(line.p[i])) i++;
    h->target = (ek_span){line.p + start, i - start};
    if (i == start || i >= line.n || line.p[i] != ' ') return -400;
    ek_span version = {line.p + i + 1, line.n - i - 1};
    if (version.n != 8 || memcmp(version.p, "HTTP/", 5) || version.p[6] != '.') return -400;
    if (version.p[5] != '1' || version.p[7] < '0' || version.p[7] > '9') return -505;
    h->minor = version.p[7] == '0' ? 0 : 1;
    return 0;
}

static int read_length(ek_http_head *h, ek_span v, bool again)
{
    uint64_t x = 0;
    if (v.n == 0 || v.n > 18) return -400;
    for (size_t i = 0; i < v.n; i++) {
        if (v.p[i] < '0' || v.p[i] > '9') return -400;
        x = x * 10 + (uint64_t)(v.p[i] - '0');
    }
    if (again && x != h->length) return -400;
    h->length = x;
    return 0;
}

static bool has_word(ek_span v, const char *word)
{
    for (size_t i = 0; i < v.n;) {
        size_t end = i;
        while (end < v.n && v.p[end] != ',') end++;
        size_t a = i, b = end;
        while (a < b && (v.p[a] == ' ' || v.p[a] == '\t')) a++;
        while (b > a && (v.p[b - 1] == ' ' || v.p[b - 1] == '\t')) b--;
        if (ek_span_is_nocase((ek_span){v.p + a, b - a}, word)) return true;
        i = end + 1;
    }
    return false;
}

typedef struct seen {
    bool length, coding;
} seen;

static int read_header(ek_http_head *h, ek_span line, seen *s)
{
    size_t i = 0;
    while (i < line.n && is_token(line.p[i])) i++;
    if (i == 0 || i >= line.n || line.p[i] != ':') return -400; /* also folded lines and "name :" */
    ek_span name = {line.p, i}, value = {line.p + i + 1, line.n - i - 1};
    while (value.n && (*value.p == ' ' || *value.p == '\t')) value.p++, value.n--;
    while (value.n && (value.p[value.n - 1] == ' ' || value.p[value.n - 1] == '\t')) value.n--;
    for (size_t k = 0; k < value.n; k++)
        if (((unsigned char)value.p[k] < 0x20 && value.p[k] != '\t') || value.p[k] == 0x7f) return -400;
    if (h->n_headers == EK_HTTP_MAX_HEADERS) return -431;
    h->name[h->n_headers] = name;
    h->value[h->n_headers++] = value;

    if (ek_span_is_nocase(name, "content-length")) {
        int bad = read_length(h, value, s->length);
        s->length = true;
        return bad;
    }
    if (ek_span_is_nocase(name, "transfer-encoding")) {
        if (s->coding) return -400;
        s->coding = true;
        if (!ek_span_is_nocase(value, "chunked")) return -501;
        h->chunked = true;
    } else if (ek_span_is_nocase(name, "connection")) {
        if (has_word(value, "close")) h->keep_alive = false;
        else if (h->minor == 0 && has_word(value, "keep-alive")) h->keep_alive = true;
    } else if (ek_span_is_nocase(name, "expect")) {
        h->expect_continue = ek_span_is_nocase(value, "100-continue");
    }
    return 0;
}

/* Lines are judged as they complete, so an early cut and a late one say the same. */
int ek_http_parse(ek_http_head *h, const char *buf, size_t n)
{
    *h = (ek_http_head){0};
    size_t at = 0;
    ek_span line;
    do { /* RFC 9112 2.2: empty lines before a request are skipped */
        if (!next_line(buf, n, &at, &line)) return 0;
    } while (line.n == 0);
    int bad = read_request_line(h, line);
    if (bad) return bad;
    h->keep_alive = h->minor == 1;
    seen s = {0};
    for (;;) {
        if (!next_line(buf, n, &at, &line)) return 0;
        if (line.n == 0) break;
        bad = read_header(h, line, &s);
        if (bad) return bad;
    }
    if (s.length && s.coding) return -400;
    if (h->chunked && h->minor == 0) return -400;
    return (int)at;
}

enum { SIZE, EXTENSION, DATA, DATA_CR, DATA_LF, TRAILER, END };
enum { MAX_LINE = 4096 };

static int hex(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c = lower(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One byte outside chunk data. Returns -1 if malformed. */
static int chunk_byte(ek_chunked *c, char b)
{
    switch (c->state) {
    case SIZE:
        if (hex(b) >= 0) {
            if (++c->digits > 15) return -1;
            c->left = c->left * 16 + (uint64_t)hex(b);
            return 0;
        }
        if (c->digits == 0) return -1;
        c->state = EXTENSION;
        c->line = 0;
        return chunk_byte(c, b);
    case EXTENSION:
        if (b != '\n') return ++c->line > MAX_LINE ? -1 : 0;
        c->state = c->left ? DATA : TRAILER;
        c->digits = c->line = 0;
        return 0;
    case DATA_CR:
        if (b == '\r') {
            c->state = DATA_LF;
            return 0;
        } /* fall through */
    case DATA_LF:
        if (b != '\n') return -1;
        c->state = SIZE;
        return 0;
    default: /* TRAILER: lines are skipped; an empty one ends the body */
        if (b == '\n') {
            c->state = c->digits == 0 ? END : TRAILER;
            c->digits = 0;
        } else if (b != '\r') {
            c->digits = 1;
            if (++c->line > MAX_LINE) return -1;
        }
        return 0;
    }
}

int ek_chunked_feed(ek_chunked *c, const char *in, size_t n, size_t *took, ek_span *piece)
{
    *piece = (ek_span){0};
    size_t i = 0;
    while (i < n && c->state != END) {
        if (c->state == DATA) {
            size_t take = n - i < c->left ? n - i : (size_t)c->left;
            *piece = (ek_span){in + i, take};
            c->left -= take;
            if (c->left == 0) c->state = DATA_CR;
            *took = i + take;
            return 0;
        }
        if (chunk_byte(c, in[i++])) return -1;
    }
    *took = i;
    return c->state == END;
}
