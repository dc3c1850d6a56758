/* Heads of requests, chunked bodies and paths: what is taken, what is refused, wherever packets are cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "serve/http/http_head.h"

static int status_of(const char *text, size_t n)
{
    static ek_http_head h;
    size_t scanned = 0;
    int end = ek_http_head_end(text, n, &scanned);
    if (end <= 0) return end;
    return ek_http_head_read(&h, text, (size_t)end) ? 200 : h.status;
}

#define STATUS(text) status_of(text, sizeof text - 1)
#define G            "GET / HTTP/1.1\r\n"
#define H            "host: x\r\n"

static void what_two_readers_could_read_differently(void **state)
{
    (void)state;
    assert_int_equal(STATUS(G H "\r\n"), 200);
    assert_int_equal(STATUS(G H "content-length: 5\r\ncontent-length: 5\r\n\r\n"), 400);
    assert_int_equal(STATUS(G H "content-length: 5, 5\r\n\r\n"), 400);
    assert_int_equal(STATUS(G H "content-length: +5\r\n\r\n"), 400);
    assert_int_equal(STATUS(G H "content-length: -1\r\n\r\n"), 400);
    assert_int_equal(STATUS(G H "content-length: 0x5\r\n\r\n"), 400);
    assert_int_equal(STATUS(G H "content-length:\r\n\r\n"), 400);
    assert_int_equal(STATUS(G H "content-length: 9999999999999999999\r\n\r\n"), 400);
    assert_int_equal(STATUS(G H "content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n"), 400);
    assert_int_equal(STATUS(G H "transfer-encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
    assert_int_equal(STATUS(G H "transfer-encoding: gzip, chunked\r\n\r\n"), 501);
    assert_int_equal(STATUS(G H "transfer-encoding: xchunked\r\n\r\n"), 501);
    assert_int_equal(STATUS("GET / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n"), 400);
    assert_int_equal(STATUS(G H "content-length : 5\r\n\r\n"), 400);
    assert_int_equal(STATUS(G H "a\t: 5\r\n\r\n"), 400);
    assert_int_equal(STATUS(G H "a: 5\r\n folded\r\n\r\n"), 400);
    assert_int_equal(STATUS(G H "a: 5\r\n\tfolded\r\n\r\n"), 400);
    assert_int_equal(STATUS(G " folded: 1\r\n" H "\r\n"), 400);
    assert_int_equal(STATUS(G H "host: y\r\n\r\n"), 400);
    assert_int_equal(STATUS(G "\r\n"), 400);
    assert_int_equal(STATUS("GET / HTTP/1.0\r\n\r\n"), 200);
    assert_int_equal(STATUS(G H "a: b\0c\r\n\r\n"), -1);
    assert_int_equal(STATUS(G H "a: b\n\r\n"), -1);
    assert_int_equal(STATUS("GET / HTTP/1.1\n" H "\r\n"), -1);
    assert_int_equal(STATUS(G H "a: b\rc\r\n\r\n"), 400);
    assert_int_equal(STATUS(G H "a: b\x01\r\n\r\n"), 400);
    assert_int_equal(STATUS(G H "a\r\n\r\n"), 400);
    assert_int_equal(STATUS(G H ": b\r\n\r\n"), 400);
    assert_int_equal(STATUS("GET  / HTTP/1.1\r\n" H "\r\n"), 400);
    assert_int_equal(STATUS("GET / HTTP/1.1 \r\n" H "\r\n"), 400);
    assert_int_equal(STATUS("GET /a b HTTP/1.1\r\n" H "\r\n"), 400);
    assert_int_equal(STATUS("GET /\x7f HTTP/1.1\r\n" H "\r\n"), 400);
    assert_int_equal(STATUS("GET / HTTP/2.0\r\n" H "\r\n"), 505);
    assert_int_equal(STATUS("GET / HTTP/11\r\n" H "\r\n"), 400);
    assert_int_equal(STATUS("nonsense\r\n\r\n"), 400);
    assert_int_equal(STATUS(G H "expect: miracles\r\n\r\n"), 417);
    ek_buf many = {0};
    ek_buf_str(&many, G H);
    for (int i = 0; i < 99; i++) ek_buf_str(&many, "a: b\r\n");
    ek_buf_str(&many, "\r\n");
    assert_int_equal(status_of(many.data, many.len), 200);
    ek_buf_clear(&many);
    ek_buf_str(&many, G H);
    for (int i = 0; i < 100; i++) ek_buf_str(&many, "a: b\r\n");
    ek_buf_str(&many, "\r\n");
    assert_int_equal(status_of(many.data, many.len), 431);
    ek_buf_fini(&many);
}

static void what_a_head_says(void **state)
{
    (void)state;
    static ek_http_head h;
    static const char a[] = "POST /v1/x?y HTTP/1.1\r\nHost: h\r\nContent-Length:  17 \r\nConnection: x , CLOSE\r\n"
                            "Expect: 100-Continue\r\nX-A:\t a\tb \t\r\nempty:\r\n\r\n";
    assert_true(ek_http_head_read(&h, a, sizeof a - 1));
    assert_true(h.method.n == 4 && !memcmp(h.target.p, "/v1/x?y", h.target.n) && h.target.n == 7);
    assert_true(h.minor == 1 && h.has_length && h.length == 17 && !h.keep_alive && h.expects_continue && !h.chunked);
    assert_int_equal(h.n_fields, 6);
    assert_true(h.field[4].value.n == 3 && !memcmp(h.field[4].value.p, "a\tb", 3) && h.field[5].value.n == 0);
    static const char b[] = "GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n";
    assert_true(ek_http_head_read(&h, b, sizeof b - 1) && h.keep_alive && h.minor == 0);
    static const char c[] = G H "transfer-encoding: Chunked\r\n\r\n";
    assert_true(ek_http_head_read(&h, c, sizeof c - 1) && h.keep_alive && h.chunked && !h.has_length);
}

static void the_end_is_found_wherever_packets_are_cut(void **state)
{
    (void)state;
    static const char head[] = G H "a: b\r\n\r\nGET /next";
    const int len = (int)(strstr(head, "GET /next") - head);
    for (size_t cut = 0; cut < sizeof head; cut++)
        for (size_t second = cut; second < sizeof head; second++) {
            size_t scanned = 0;
            int end = ek_http_head_end(head, cut, &scanned);
            if (end == 0) end = ek_http_head_end(head, second, &scanned);
            assert_int_equal(end, (int)second >= len || (int)cut >= len ? len : 0);
        }
}

/* The body of a chunked text that comes in pieces of at most n bytes; the bytes that it took, or -1. */
static int decode(ek_buf *out, const char *text, size_t n_text, size_t n)
{
    ek_http_chunks c = {0};
    size_t at = 0;
    while (at < n_text && !ek_http_chunks_ended(&c)) {
        ek_span data;
        size_t piece = n_text - at < n ? n_text - at : n;
        ptrdiff_t took = ek_http_chunks_take(&c, text + at, piece, &data);
        if (took < 0) return -1;
        assert_true(took > 0);
        ek_buf_add(out, data.p, data.n);
        at += (size_t)took;
    }
    return ek_http_chunks_ended(&c) ? (int)at : 0;
}

static void chunks(void **state)
{
    (void)state;
    static const struct {
        const char *text, *body;
        int took;
    } cases[] = {
        {"5\r\nhello\r\n0\r\n\r\nnext", "hello", 15},
        {"3;a=b\r\nabc\r\n00a \r\n0123456789\r\n0\r\nt: v\r\nu: w\r\n\r\n", "abc0123456789", 0},
        {"0\r\n\r\n", "", 5},
        {"A\r\n0123456789\r\n", "0123456789", 0},
        {"5\nhello\r\n0\r\n\r\n", NULL, -1},
        {"5\r\nhelloX\r\n0\r\n\r\n", NULL, -1},
        {"\r\n", NULL, -1},
        {"-1\r\n", NULL, -1},
        {"0x5\r\nhello\r\n", NULL, -1},
        {"fffffffffffffffff\r\n", NULL, -1},
        {"0\r\nt: v\n\r\n", NULL, -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t len = strlen(cases[i].text);
        int want = i == 1 ? (int)len : cases[i].took;
        for (size_t n = 1; n <= len; n++) {
            ek_buf b = {0};
            assert_int_equal(decode(&b, cases[i].text, len, n), want);
            if (cases[i].body) assert_string_equal(ek_buf_text(&b), cases[i].body);
            ek_buf_fini(&b);
        }
    }
}

static void paths(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"/v1/models/a%2Fb%20c?x=%00", "/v1/models/a/b c"},
        {"/%zz%4", "/%zz%4"},
        {"http://h:1/p?q", "/p"},
        {"HTTPS://h", "/"},
        {"*", "*"},
        {"?a", "/"},
        {"/a#b", "/a"},
        {"/%00", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[100];
        ek_span t = {cases[i][0], strlen(cases[i][0])};
        assert_int_equal(ek_http_path(out, t), cases[i][1] != NULL);
        if (cases[i][1]) assert_string_equal(out, cases[i][1]);
    }
}

static void queries(void **state)
{
    (void)state;
    static const struct {
        const char *target, *value; /* of the parameter a, with room for 7 bytes; NULL: none, or none that is read */
        int says;
    } cases[] = {
        {"/p?a=1", "1", 1},
        {"/p?b=2&a=1&a=3", "1", 1},
        {"/p?a", "", 1},
        {"/p?a=&b", "", 1},
        {"/p?%61=x%20y+z", "x y z", 1},
        {"/p?a=b=c", "b=c", 1},
        {"/p?a=1234567", "1234567", 1},
        {"/p?a=12345678", NULL, -1},
        {"/p?a=%00", NULL, -1},
        {"/p?a=%4", "%4", 1},
        {"/p?aa=1&ba=2&A=3", NULL, 0},
        {"/p?&&=&a=1#&a=2", "1", 1},
        {"/p#?a=1", NULL, 0},
        {"/p", NULL, 0},
        {"/a=1", NULL, 0},
        {"?a=1", "1", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[8] = "before";
        ek_span t = {cases[i].target, strlen(cases[i].target)};
        if (ek_http_query(out, sizeof out, t, "a") != cases[i].says) fail_msg("%s", cases[i].target);
        assert_string_equal(out, cases[i].value ? cases[i].value : "");
    }
}

#define TRACE "0af7651916cd43dd8448eb211c80319c"

static void traces(void **state)
{
    (void)state;
    static const char *const good[] = {"00-" TRACE "-b7ad6b7169203331-01", "00-" TRACE "-00000000000000f0-ff",
                                       "01-" TRACE "-b7ad6b7169203331-01", "cc-" TRACE "-b7ad6b7169203331-01-more"};
    static const char *const bad[] = {"",
                                      "00",
                                      TRACE,
                                      "00-" TRACE "-b7ad6b7169203331",
                                      "00-" TRACE "-b7ad6b7169203331-",
                                      "00-" TRACE "-b7ad6b7169203331-0",
                                      "00-" TRACE "-b7ad6b7169203331-01-more",
                                      "00-" TRACE "-b7ad6b7169203331-01x",
                                      "01-" TRACE "-b7ad6b7169203331-01x",
                                      "ff-" TRACE "-b7ad6b7169203331-01",
                                      "0g-" TRACE "-b7ad6b7169203331-01",
                                      "00-" TRACE "-0000000000000000-01",
                                      "00-00000000000000000000000000000000-b7ad6b7169203331-01",
                                      "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
                                      "00-" TRACE "-B7ad6b7169203331-01",
                                      "00 " TRACE "-b7ad6b7169203331-01",
                                      "00-" TRACE "-b7ad6b7169203331-0z"};
    char out[EK_HTTP_TRACE];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (!ek_http_trace(out, good[i])) fail_msg("%s", good[i]);
        assert_string_equal(out, TRACE);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (ek_http_trace(out, bad[i]) || *out) fail_msg("%s", bad[i]);
}

static void prefixes(void **state)
{
    (void)state;
    static const char *const good[] = {"/llm", "/a/b-c_d.e~f", "/.well-known", "/..."};
    static const char *const bad[] = {"",     "/",    "llm",   "/llm/", "//llm", "/a//b",
                                      "/a b", "/a?b", "/a%20", "/a/..", "/.",    "http://h/a"};
    char buf[512];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) assert_int_equal(ek_http_prefix_check(good[i]), EK_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_int_equal(ek_http_prefix_check(bad[i]), EK_EINVAL);
    memset(buf, 'a', sizeof buf);
    buf[0] = '/', buf[EK_HTTP_MAX_PREFIX] = '\0';
    assert_int_equal(ek_http_prefix_check(buf), EK_OK);
    buf[EK_HTTP_MAX_PREFIX] = 'a', buf[EK_HTTP_MAX_PREFIX + 1] = '\0';
    assert_int_equal(ek_http_prefix_check(buf), EK_EINVAL);
    static const char *const rows[][3] = {{"/llm/v1/models", "/llm", "/v1/models"},
                                          {"/llm/", "/llm", "/"},
                                          {"/llm", "/llm", ""},
                                          {"/llmv1", "/llm", "/llmv1"},
                                          {"/v1", "/llm", "/v1"},
                                          {"/a/b/c", "/a/b", "/c"},
                                          {"/v1", NULL, "/v1"},
                                          {"/", "/llm", "/"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        strcpy(buf, rows[i][0]);
        ek_http_strip(buf, rows[i][1]);
        assert_string_equal(buf, rows[i][2]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_two_readers_could_read_differently),
        cmocka_unit_test(what_a_head_says),
        cmocka_unit_test(the_end_is_found_wherever_packets_are_cut),
        cmocka_unit_test(chunks),
        cmocka_unit_test(paths),
        cmocka_unit_test(queries),
        cmocka_unit_test(traces),
        cmocka_unit_test(prefixes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
