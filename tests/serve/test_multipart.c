/* Forms with files: what clients write, and what is none; a part is the bytes that stand between two boundaries. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "serve/http/multipart.h"

/* Every part as NAME(FILE)=DATA; or the sentence. */
static void read_all(ek_buf *out, const char *body, size_t n)
{
    ek_form f;
    const char *why = ek_form_begin(&f, body, n);
    while (!why && !f.done) {
        ek_form_part p;
        why = ek_form_next(&f, &p);
        if (why) break;
        ek_buf_add(out, p.name, p.n_name);
        if (p.file_name) ek_buf_fmt(out, "(%.*s)", (int)p.n_file_name, p.file_name);
        ek_buf_char(out, '=');
        ek_buf_add(out, p.data, p.n);
        ek_buf_char(out, ';');
    }
    if (why) ek_buf_str(out, why);
}

static void check(const char *body, const char *want)
{
    ek_buf got = {0};
    read_all(&got, body, strlen(body));
    if (strcmp(ek_buf_text(&got), want) != 0) fail_msg("%s\ngives %s\nshould %s", body, ek_buf_text(&got), want);
    ek_buf_fini(&got);
}

#define D "Content-Disposition: form-data; name="

static void what_clients_write(void **state)
{
    (void)state;
    check("--x\r\n" D "\"model\"\r\n\r\nm\r\n--x--\r\n", "model=m;");
    check("--x\r\n" D "\"a\"\r\n\r\n\r\n--x\r\n" D "\"b\"\r\n\r\n2\r\n--x--", "a=;b=2;");
    check("------formdata-undici-0123\r\ncontent-disposition: FORM-DATA; name=\"file\"; filename=\"a b.wav\"\r\n"
          "Content-Type: audio/wav\r\n\r\nRIFF\r\n--x\r\n-\r\n------formdata-undici-0123--\r\n",
          "file(a b.wav)=RIFF\r\n--x\r\n-;");
    check("--b\r\nContent-Type: text/plain\r\n" D "n; filename=\"\\\"; name=\\\"evil\"\r\n\r\nv\r\n--b--\r\nepilogue",
          "n(\\\"; name=\\\"evil)=v;");
    check("--b\r\n" D "\"a;b\"; filename*=UTF-8''x\r\n\r\n-b\r\n--b \t\r\n" D "c\r\n\r\n\r\n\r\n\r\n--b--",
          "a;b=-b;c=\r\n\r\n;");
}

/* RFC 2046: before the first boundary and behind the last one stands what nobody reads. */
static void what_stands_around(void **state)
{
    (void)state;
    static const char form[] = "--x\r\n" D "\"a\"\r\n\r\n1\r\n--x\r\nContent-Type: text/plain\r\n" D
                               "\"b\"\r\n\r\n2\r\n--x--\r\n";
    static const char *const before[] = {"",
                                         "\r\n",
                                         "\r\n\r\n",
                                         "This is a multi-part message.\r\n",
                                         "-- \r\n--no boundary\r\nof this form\r\n\r\n",
                                         "--\r\n",
                                         "a\n--x\r\n"};
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        ek_buf b = {0};
        ek_buf_fmt(&b, "%s%sepilogue\r\n--x\r\n", before[i], form);
        check(b.data, "a=1;b=2;");
        ek_buf_fini(&b);
    }
    check("--x \t\r\n" D "a\r\n\r\nv\r\n--x--", "a=v;");
    check("\r\n--x\r\n\r\nv\r\n--x--", "the body must be multipart/form-data");
}

static void what_is_no_form(void **state)
{
    (void)state;
    static const char none[] = "the body must be multipart/form-data", cut[] = "the body ends before its last boundary";
    check("", none);
    check("{\"model\":\"m\"}", none);
    check("--", none);
    check("--\r\n", none);
    check("--x\n" D "a\n\nb\n--x--\n", none);
    check("--x\x01\r\n", none);
    check("--x\r\n", "the body has a part whose head does not end within 8192 bytes");
    check("--x\r\n\r\nv\r\n--x--", "the body has a part without a name");
    check("--x\r\nContent-Disposition: form-data\r\n\r\nv\r\n--x--", "the body has a part without a name");
    check("--x\r\n" D "\"a\r\n\r\nv\r\n--x--", "the body has a part without a name");
    check("--x\r\n" D "a\r\n\r\nv\r\n--y--", cut);
    check("--x\r\n" D "a\r\n\r\nv\r\n--x", cut);
    check("--x\r\n" D "a\r\n\r\nv\r\n--xy--", cut);
    ek_buf b = {0}, got = {0};
    ek_buf_str(&b, "--x\r\nX: ");
    for (int i = 0; i < EK_FORM_MAX_HEAD; i++) ek_buf_char(&b, 'h');
    ek_buf_str(&b, "\r\n" D "a\r\n\r\nv\r\n--x--");
    read_all(&got, b.data, b.len);
    assert_non_null(strstr(ek_buf_text(&got), "8192 bytes"));
    ek_buf_clear(&b), ek_buf_clear(&got);
    ek_buf_str(&b, "--x\r\n");
    for (int i = 0; i < EK_FORM_MAX_PARTS + 1; i++) ek_buf_str(&b, D "a\r\n\r\nv\r\n--x\r\n");
    read_all(&got, b.data, b.len);
    assert_non_null(strstr(ek_buf_text(&got), "more than 64 parts"));
    ek_buf_fini(&b), ek_buf_fini(&got);
}

/* Bytes of every value, NUL among them, come out as they went in; cut anywhere the form is none. */
static void files_are_their_bytes(void **state)
{
    (void)state;
    ek_buf b = {0};
    char data[600];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (char)(i % 256);
    ek_buf_str(&b, "--x\r\n" D "\"file\"; filename=\"f\"\r\n\r\n");
    ek_buf_add(&b, data, sizeof data);
    ek_buf_str(&b, "\r\n--x--");
    char *exact = malloc(b.len);
    for (size_t n = 0; n <= b.len; n++) {
        ek_form f;
        ek_form_part p;
        char *end = exact + b.len - n; /* a reader beyond the end would leave the memory */
        memcpy(end, b.data, n);
        const char *why = ek_form_begin(&f, end, n);
        if (!why) why = ek_form_next(&f, &p);
        assert_int_equal(why == NULL, n == b.len);
        if (why) continue;
        assert_true(f.done);
        assert_int_equal(p.n, sizeof data);
        assert_memory_equal(p.data, data, sizeof data);
    }
    free(exact);
    ek_buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_clients_write), cmocka_unit_test(what_stands_around),
                                       cmocka_unit_test(what_is_no_form), cmocka_unit_test(files_are_their_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
