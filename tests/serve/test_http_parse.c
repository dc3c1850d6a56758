/* The HTTP parser: what it takes, what it refuses, and that cuts never matter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "serve/http_parse.h"

static int parse(ek_http_head *h, const char *s)
{
    return ek_http_parse(h, s, strlen(s));
}

static void test_takes_a_request(void **state)
{
    (void)state;
    const char *s = "POST /v1/chat/completions?x=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\ncontent-TYPE:  application/json \r\n\r\n{";
    ek_http_head h;
    assert_int_equal(parse(&h, s), (int)strlen(s) - 1);
    assert_true(ek_span_is(h.method, "POST"));
    assert_true(ek_span_is(h.target, "/v1/chat/completions?x=1"));
    assert_true(ek_span_is(ek_http_find(&h, "Content-Type"), "application/json"));
    assert_int_equal(h.length, 12);
    assert_true(h.keep_alive);
    assert_false(h.chunked);
    assert_null(ek_http_find(&h, "accept").p);
}

static void test_keep_alive(void **state)
{
    (void)state;
    ek_http_head h;
    assert_true(parse(&h, "GET / HTTP/1.0\r\n\r\n") > 0);
    assert_false(h.keep_alive);
    assert_true(parse(&h, "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n") > 0);
    assert_true(h.keep_alive);
    assert_true(parse(&h, "GET / HTTP/1.1\r\nConnection: te, Close\r\n\r\n") > 0);
    assert_false(h.keep_alive);
    assert_true(parse(&h, "\r\n\r\nGET / HTTP/1.1\n\n") > 0); /* bare LF, empty lines before */
    assert_true(h.keep_alive);
}

static void test_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int status;
    } bad[] = {
        {"GET\r\n\r\n", -400},
        {"GET / HTTP/2.0\r\n\r\n", -505},
        {"GET / FTP/1.1\r\n\r\n", -400},
        {"GET  / HTTP/1.1\r\n\r\n", -400},
        {"G\x01T / HTTP/1.1\r\n\r\n", -400},
        {"GET / HTTP/1.1\r\nno colon\r\n\r\n", -400},
        {"GET / HTTP/1.1\r\nname : x\r\n\r\n", -400},
        {"GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n", -400},
        {"GET / HTTP/1.1\r\nA: b\x01\r\n\r\n", -400},
        {"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", -400},
        {"POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\n", -400},
        {"POST / HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\n", -400},
        {"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", -400},
        {"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", -400},
        {"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", -501},
        {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", -400},
        {"{\"a\": 1}\r\n\r\n", -400},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ek_http_head h;
        int got = parse(&h, bad[i].text);
        if (got != bad[i].status) print_error("%s gives %d\n", bad[i].text, got);
        assert_int_equal(got, bad[i].status);
    }
}

static void test_too_many_headers(void **state)
{
    (void)state;
    char s[4096] = "GET / HTTP/1.1\r\n";
    size_t n = strlen(s);
    for (int i = 0; i <= EK_HTTP_MAX_HEADERS; i++) memcpy(s + n, "a: b\r\n", 6), n += 6;
    ek_http_head h;
    assert_int_equal(ek_http_parse(&h, s, n), -431);
}

static void test_cuts_never_matter(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        "GET / HTTP/1.1\r\nno colon\r\n\r\n",
        "GET / HTTP/2.0\r\n\r\n",
    };
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
        ek_http_head h;
        size_t n = strlen(texts[t]);
        int whole = ek_http_parse(&h, texts[t], n);
        for (size_t cut = 0; cut < n; cut++) {
            char *part = malloc(cut + 1); /* its own block: reading past the cut is caught by asan */
            memcpy(part, texts[t], cut);
            int early = ek_http_parse(&h, part, cut);
            free(part);
            assert_true(early == 0 || early == whole);
        }
    }
}

/* The body of a chunked text fed in pieces of the given size; -1 if malformed, -2 if unfinished. */
static int unchunk(const char *s, size_t piece, char *out)
{
    ek_chunked c = {0};
    size_t n = strlen(s), len = 0;
    for (size_t i = 0; i < n;) {
        size_t here = n - i < piece ? n - i : piece, took;
        ek_span got;
        int r = ek_chunked_feed(&c, s + i, here, &took, &got);
        if (r < 0) return -1;
        memcpy(out + len, got.p ? got.p : "", got.n);
        len += got.n;
        i += took;
        if (r == 1) return (int)len;
    }
    return -2;
}

static void test_chunked(void **state)
{
    (void)state;
    char out[256];
    for (size_t piece = 1; piece < 40; piece++) {
        assert_int_equal(unchunk("4\r\nwiki\r\n5;ext=1\r\npedia\r\n0\r\nTrailer: x\r\n\r\n", piece, out), 9);
        assert_memory_equal(out, "wikipedia", 9);
        assert_int_equal(unchunk("A\nabcdefghij\n0\n\n", piece, out), 10);
        assert_int_equal(unchunk("0\r\n\r\n", piece, out), 0);
        assert_int_equal(unchunk("4\r\nwikiX", piece, out), -1);
        assert_int_equal(unchunk("x\r\n", piece, out), -1);
        assert_int_equal(unchunk("ffffffffffffffff\r\n", piece, out), -1);
        assert_int_equal(unchunk("4\r\nwi", piece, out), -2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_takes_a_request), cmocka_unit_test(test_keep_alive),         cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_too_many_headers), cmocka_unit_test(test_cuts_never_matter), cmocka_unit_test(test_chunked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
