/* Where packets are cut changes neither where a head or a chunked body ends nor what it says; a head that is taken
 * has one length, one host and no byte that a proxy could read differently. */
#include <stdlib.h>
#include <string.h>

#include "serve/http/http_head.h"

static void check_head(const char *text, size_t n)
{
    static ek_http_head h;
    size_t scanned = 0;
    int whole = ek_http_head_end(text, n, &scanned), end = 0;
    scanned = 0;
    for (size_t cut = 0; cut <= n && end == 0; cut++) end = ek_http_head_end(text, cut, &scanned);
    if (end != whole) __builtin_trap();
    if (whole <= 0) return;
    if (memchr(text, '\0', (size_t)whole) || memcmp(text + whole - 4, "\r\n\r\n", 4) != 0) __builtin_trap();
    if (!ek_http_head_read(&h, text, (size_t)whole)) {
        if (h.status < 400 || h.status > 505 || !h.why) __builtin_trap();
        return;
    }
    if (h.chunked && h.has_length) __builtin_trap();
    for (int i = 0; i < h.n_fields; i++) {
        const ek_http_field *f = &h.field[i];
        if (f->name.n == 0 || f->name.p[f->name.n] != ':' || memchr(f->value.p, '\r', f->value.n)) __builtin_trap();
    }
    char *path = malloc(h.target.n + 1);
    if (ek_http_path(path, h.target) && strlen(path) > h.target.n) __builtin_trap();
    free(path);
    char *value = malloc(h.target.n + 1);
    const char *query = memchr(h.target.p, '?', h.target.n);
    if (ek_http_query(value, h.target.n + 1, h.target, "a") > 0 && (!query || strlen(value) > h.target.n))
        __builtin_trap();
    free(value);
}

/* A trace that is taken stands in the header's value, behind its version. */
static void check_trace(const char *text, size_t n)
{
    char trace[EK_HTTP_TRACE], *value = malloc(n + 1);
    memcpy(value, text, n);
    value[n] = '\0';
    if (ek_http_trace(trace, value)) {
        if (strlen(trace) != 32 || memcmp(trace, value + 3, 32) != 0 || !strpbrk(trace, "123456789abcdef"))
            __builtin_trap();
    } else if (*trace) {
        __builtin_trap();
    }
    free(value);
}

/* Body bytes and end of a chunked text that comes in pieces of at most `piece` bytes. */
static ptrdiff_t decode(const char *text, size_t n, size_t piece, unsigned *sum)
{
    ek_http_chunks c = {0};
    size_t at = 0;
    *sum = 0;
    while (at < n && !ek_http_chunks_ended(&c)) {
        ek_span data;
        ptrdiff_t took = ek_http_chunks_take(&c, text + at, n - at < piece ? n - at : piece, &data);
        if (took < 0) return -1;
        if (took == 0) __builtin_trap();
        for (size_t i = 0; i < data.n; i++) *sum = *sum * 31 + (unsigned char)data.p[i];
        at += (size_t)took;
    }
    return ek_http_chunks_ended(&c) ? (ptrdiff_t)at : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *text = (const char *)data;
    unsigned sum, other;
    check_head(text, n);
    check_trace(text, n);
    ptrdiff_t end = decode(text, n, n ? n : 1, &sum);
    for (size_t piece = 1; piece <= 3; piece++)
        if (decode(text, n, piece, &other) != end || (end > 0 && other != sum)) __builtin_trap();
    return 0;
}
