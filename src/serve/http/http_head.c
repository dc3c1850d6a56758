#include "serve/http/http_head.h"

#include <string.h>
#include <strings.h>

#include "base/encoding.h"

/* --- the head --- */

int ek_http_head_end(const char *buf, size_t n, size_t *scanned)
{
    for (size_t i = *scanned; i < n; i++) {
        if (buf[i] == '\0') return -1;
        if (buf[i] != '\n') continue;
        if (i == 0 || buf[i - 1] != '\r') return -1;
        if (i >= 3 && buf[i - 2] == '\n') return (int)(i + 1);
    }
    *scanned = n;
    return 0;
}

static bool is_token(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool refuse(ek_http_head *h, int status, const char *why)
{
    h->status = status;
    h->why = why;
    return false;
}

static bool span_is(ek_span s, const char *text)
{
    return s.n == strlen(text) && !strncasecmp(s.p, text, s.n);
}

static bool read_request_line(ek_http_head *h, ek_span line)
{
    const char *end = line.p + line.n, *p = line.p;
    h->method.p = p;
    while (p < end && is_token(*p)) p++;
    h->method.n = (size_t)(p - h->method.p);
    if (h->method.n == 0 || h->method.n > 32 || p == end || *p++ != ' ')
        return refuse(h, 400, "the request line does not begin with a method and a space");
    h->target.p = p;
    while (p<end && * p> 0x20 && *p < 0x7F) p++;
    h->target.n = (size_t)(p - h->target.p);
    if (h->target.n == 0 || p == end || *p++ != ' ')
        return refuse(h, 400, "the request line needs a target of printable characters between single spaces");
    if (end - p != 8 || memcmp(p, "HTTP/", 5) != 0 || p[5] < '0' || p[5] > '9' || p[6] != '.' || p[7] < '0' ||
        p[7] > '9')
        return refuse(h, 400, "the request line does not end with HTTP/1.1");
    if (p[5] != '1') return refuse(h, 505, "this server speaks HTTP/1.1");
    h->minor = p[7] > '0';
    return true;
}

static bool read_field(ek_http_head *h, ek_span line)
{
    if (line.p[0] == ' ' || line.p[0] == '\t') return refuse(h, 400, "a line of the head is folded");
    if (h->n_fields == EK_HTTP_MAX_FIELDS) return refuse(h, 431, "the head has more than 100 fields");
    ek_http_field *f = &h->field[h->n_fields++];
    size_t i = 0;
    while (i < line.n && is_token(line.p[i])) i++;
    if (i == 0 || i == line.n || line.p[i] != ':')
        return refuse(h, 400, "a line of the head is not a name, a colon and a value");
    f->name = (ek_span){line.p, i++};
    while (i < line.n && (line.p[i] == ' ' || line.p[i] == '\t')) i++;
    f->value = (ek_span){line.p + i, line.n - i};
    while (f->value.n && (f->value.p[f->value.n - 1] == ' ' || f->value.p[f->value.n - 1] == '\t')) f->value.n--;
    for (i = 0; i < f->value.n; i++) {
        unsigned char c = (unsigned char)f->value.p[i];
        if ((c < 0x20 && c != '\t') || c == 0x7F) return refuse(h, 400, "a field has control characters in it");
    }
    return true;
}

static bool read_length(ek_http_head *h, ek_span v)
{
    if (h->has_length) return refuse(h, 400, "the request has two content-lengths");
    h->has_length = true;
    for (size_t i = 0; i < v.n; i++) {
        if (v.p[i] < '0' || v.p[i] > '9') return refuse(h, 400, "the content-length is not a number");
        h->length = 10 * h->length + (uint64_t)(v.p[i] - '0');
    }
    if (v.n == 0 || v.n > 18) return refuse(h, 400, "the content-length is not a number below 10^18");
    return true;
}

static void read_connection(ek_http_head *h, ek_span v)
{
    while (v.n > 0) {
        const char *comma = memchr(v.p, ',', v.n);
        ek_span word = {v.p, comma ? (size_t)(comma - v.p) : v.n};
        size_t took = word.n + (comma != NULL);
        v.p += took;
        v.n -= took;
        while (word.n && (*word.p == ' ' || *word.p == '\t')) word.p++, word.n--;
        while (word.n && (word.p[word.n - 1] == ' ' || word.p[word.n - 1] == '\t')) word.n--;
        if (span_is(word, "close")) h->keep_alive = false;
        else if (span_is(word, "keep-alive") && h->minor == 0) h->keep_alive = true;
    }
}

/* Reads the fields that decide where the request ends. */
static bool read_framing(ek_http_head *h)
{
    int hosts = 0;
    h->keep_alive = h->minor == 1;
    for (int i = 0; i < h->n_fields; i++) {
        const ek_http_field *f = &h->field[i];
        if (span_is(f->name, "host")) hosts++;
        else if (span_is(f->name, "connection")) read_connection(h, f->value);
        else if (span_is(f->name, "content-length")) {
            if (!read_length(h, f->value)) return false;
        } else if (span_is(f->name, "transfer-encoding")) {
            if (h->chunked) return refuse(h, 400, "the request has two transfer-encodings");
            if (!span_is(f->value, "chunked")) return refuse(h, 501, "the only transfer-encoding taken is chunked");
            h->chunked = true;
        } else if (span_is(f->name, "expect")) {
            if (!span_is(f->value, "100-continue")) return refuse(h, 417, "the only expectation met is 100-continue");
            h->expects_continue = h->minor == 1;
        }
    }
    if (hosts > 1) return refuse(h, 400, "the request has two hosts");
    if (hosts == 0 && h->minor == 1) return refuse(h, 400, "the request has no host");
    if (h->chunked && h->has_length)
        return refuse(h, 400, "a request has a content-length or a transfer-encoding, not both");
    if (h->chunked && h->minor == 0) return refuse(h, 400, "HTTP/1.0 has no transfer-encoding");
    return true;
}

bool ek_http_head_read(ek_http_head *h, const char *buf, size_t n)
{
    memset(h, 0, offsetof(ek_http_head, field));
    h->n_fields = 0;
    h->keep_alive = h->chunked = h->expects_continue = h->has_length = false;
    h->length = 0;
    h->status = 0;
    h->why = NULL;
    bool first = true;
    for (size_t at = 0; at < n; first = false) {
        const char *end = memchr(buf + at, '\n', n - at);
        size_t len = end ? (size_t)(end - (buf + at)) : 0;
        if (!end || len == 0 || end[-1] != '\r') return refuse(h, 400, "a line of the head does not end with CR LF");
        ek_span line = {buf + at, len - 1};
        at += len + 1;
        if (line.n == 0) break;
        if (memchr(line.p, '\r', line.n)) return refuse(h, 400, "a line of the head has a CR in it");
        if (!(first ? read_request_line(h, line) : read_field(h, line))) return false;
    }
    if (first) return refuse(h, 400, "the request line is empty");
    return read_framing(h);
}

/* --- chunks --- */

enum { SIZE, EXTENSION, SIZE_LF, DATA, DATA_CR, DATA_LF, TRAILER, TRAILER_LINE, TRAILER_LF, LAST_LF, ENDED };

/* Takes one byte that is no data; false if it is not allowed here. */
static bool step(ek_http_chunks *c, char byte)
{
    enum { MAX_LINE = 8192 };
    switch (c->state) {
    case SIZE: {
        int d = ek_hex_digit(byte);
        if (d >= 0) {
            c->left = c->left << 4 | (uint64_t)d;
            return ++c->n_size <= 15;
        }
        if (c->n_size == 0) return false;
        c->state = byte == '\r' ? SIZE_LF : EXTENSION;
        c->n_line = 0;
        return byte == '\r' || byte == ';' || byte == ' ' || byte == '\t';
    }
    case EXTENSION:
        if (byte == '\r') c->state = SIZE_LF;
        return byte != '\n' && byte != '\0' && ++c->n_line < MAX_LINE;
    case SIZE_LF:
        c->state = c->left ? DATA : TRAILER;
        c->n_size = 0;
        c->n_line = 0;
        return byte == '\n';
    case DATA_CR: c->state = DATA_LF; return byte == '\r';
    case DATA_LF: c->state = SIZE; return byte == '\n';
    case TRAILER: c->state = byte == '\r' ? LAST_LF : TRAILER_LINE; return byte != '\n' && ++c->n_line < MAX_LINE;
    case TRAILER_LINE:
        if (byte == '\r') c->state = TRAILER_LF;
        return byte != '\n' && byte != '\0' && ++c->n_line < MAX_LINE;
    case TRAILER_LF: c->state = TRAILER; return byte == '\n';
    case LAST_LF: c->state = ENDED; return byte == '\n';
    default: return false;
    }
}

ptrdiff_t ek_http_chunks_take(ek_http_chunks *c, const char *buf, size_t n, ek_span *data)
{
    size_t i = 0;
    *data = (ek_span){buf, 0};
    while (i < n && c->state != DATA && c->state != ENDED)
        if (!step(c, buf[i++])) return -1;
    if (i < n && c->state == DATA) {
        *data = (ek_span){buf + i, n - i < c->left ? n - i : (size_t)c->left};
        c->left -= data->n;
        i += data->n;
        if (c->left == 0) c->state = DATA_CR;
    }
    return (ptrdiff_t)i;
}

bool ek_http_chunks_ended(const ek_http_chunks *c)
{
    return c->state == ENDED;
}

/* --- the path --- */

bool ek_http_path(char *out, ek_span target)
{
    const char *p = target.p, *end = p + target.n;
    if (target.n > 7 && (!strncasecmp(p, "http://", 7) || (target.n > 8 && !strncasecmp(p, "https://", 8)))) {
        p = memchr(p, ':', target.n);
        p += 3;
        while (p < end && *p != '/' && *p != '?') p++;
    }
    if (p == end || *p == '?') *out++ = '/';
    while (p < end && *p != '?' && *p != '#') {
        const int byte = *p == '%' ? ek_hex_byte(p + 1, (size_t)(end - p) - 1) : -1;
        const char c = byte >= 0 ? (char)byte : *p;
        if (byte >= 0) p += 2;
        if (c == '\0') return false;
        *out++ = c;
        p++;
    }
    *out = '\0';
    return true;
}

/* --- traces --- */

static bool is_hex(const char *s, size_t n, bool nonzero)
{
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        if (!s[i] || !strchr("0123456789abcdef", s[i])) return false;
        any |= s[i] != '0';
    }
    return any || !nonzero;
}

bool ek_http_trace(char out[EK_HTTP_TRACE], const char *value)
{
    enum { VERSION = 2, TRACE = 32, PARENT = 16, FLAGS = 2, LEN = VERSION + TRACE + PARENT + FLAGS + 3 };
    const char *trace = value + VERSION + 1;
    *out = '\0';
    if (strnlen(value, LEN) < LEN || !is_hex(value, VERSION, false) || !strncmp(value, "ff", VERSION)) return false;
    if (value[VERSION] != '-' || !is_hex(trace, TRACE, true) || trace[TRACE] != '-') return false;
    const char *parent = trace + TRACE + 1, *flags = parent + PARENT + 1, *rest = flags + FLAGS;
    if (!is_hex(parent, PARENT, true) || parent[PARENT] != '-' || !is_hex(flags, FLAGS, false)) return false;
    if (*rest && (!strncmp(value, "00", VERSION) || *rest != '-')) return false; /* later versions may have more */
    memcpy(out, trace, TRACE);
    out[TRACE] = '\0';
    return true;
}

/* The end of a name or a value of a query. */
static const char *query_end(const char *p, const char *end, bool name)
{
    while (p < end && *p != '&' && *p != '#' && !(name && *p == '=')) p++;
    return p;
}

/* Decodes p[0, end) into out. Returns its length, or -1 if it does not fit or holds NUL. */
static ptrdiff_t query_decode(char *out, size_t room, const char *p, const char *end)
{
    size_t n = 0;
    while (p < end) {
        const int byte = *p == '%' ? ek_hex_byte(p + 1, (size_t)(end - p) - 1) : -1;
        const char c = byte >= 0 ? (char)byte : *p == '+' ? ' ' : *p;
        p += byte >= 0 ? 3 : 1;
        if (c == '\0' || n + 1 >= room) return -1;
        out[n++] = c;
    }
    out[n] = '\0';
    return (ptrdiff_t)n;
}

int ek_http_query(char *out, size_t room, ek_span target, const char *name)
{
    enum { MAX_NAME = 64 };
    char key[MAX_NAME];
    const char *end = target.p + target.n, *p = target.p;
    while (p < end && *p != '?' && *p != '#') p++;
    *out = '\0';
    while (p < end && *p != '#') {
        const char *from = p + 1, *at = query_end(from, end, true), *next = query_end(at, end, false);
        p = next;
        if (query_decode(key, sizeof key, from, at) < 0 || strcmp(key, name) != 0) continue;
        if (query_decode(out, room, at < next ? at + 1 : at, next) >= 0) return 1;
        *out = '\0';
        return -1;
    }
    return 0;
}

ek_err ek_http_prefix_check(const char *prefix)
{
    static const char names[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
    if (strlen(prefix) > EK_HTTP_MAX_PREFIX)
        return ek_fail(EK_EINVAL, "a path of %zu bytes, it may have %d", strlen(prefix), EK_HTTP_MAX_PREFIX);
    const char *p = prefix;
    while (*p == '/') {
        size_t n = strspn(p + 1, names);
        bool dots = (n == 1 && p[1] == '.') || (n == 2 && p[1] == '.' && p[2] == '.');
        if (n == 0 || dots) break;
        p += 1 + n;
    }
    if (*p || p == prefix)
        return ek_fail(EK_EINVAL,
                       "%s: a path begins with a slash and ends without one, such as /llm, and its names have "
                       "letters, digits and -._~ only",
                       prefix);
    return EK_OK;
}

void ek_http_strip(char *path, const char *prefix)
{
    size_t n = prefix ? strlen(prefix) : 0;
    if (n == 0 || strncmp(path, prefix, n) != 0 || (path[n] != '/' && path[n] != '\0')) return;
    memmove(path, path + n, strlen(path + n) + 1);
}
