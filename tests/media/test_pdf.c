/* PDFs through a locked pdftotext: text, what is none, and what is too much. Skipped where it is not installed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "media/pdf.h"

/* A file with these lines of text on as many pages. */
static ek_buf pdf_of(const char *const *lines, int n)
{
    ek_buf b = {0};
    ek_buf_fmt(&b, "%%PDF-1.1\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Count %d/Kids[", n);
    for (int i = 0; i < n; i++) ek_buf_fmt(&b, "%d 0 R ", 3 + 2 * i);
    ek_buf_str(&b, "]>>endobj\n");
    for (int i = 0; i < n; i++) {
        ek_buf_fmt(
            &b,
            "%d 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 400 99]/Contents %d 0 R/Resources<</Font<</F<</Type"
            "/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>>>endobj\n%d 0 obj<</Length %zu>>stream\nBT /F 9 Tf 9 9 "
            "Td (%s) Tj ET\nendstream endobj\n",
            3 + 2 * i, 4 + 2 * i, 4 + 2 * i, strlen(lines[i]) + 29, lines[i]);
    }
    ek_buf_fmt(&b, "trailer<</Root 1 0 R/Size %d>>\n%%%%EOF\n", 3 + 2 * n);
    return b;
}

static ek_pdftotext *open_or_skip(void)
{
    ek_pdftotext *p;
    const ek_err err = ek_pdftotext_open(&p, NULL);
    if (err == EK_ENOTFOUND) skip();
    if (err) fail_msg("%s", ek_err_text());
    return p;
}

static void its_text_is_read(void **state)
{
    (void)state;
    static const char *const lines[] = {"A tiller steers.", "A keel keeps even."};
    ek_pdftotext *p = open_or_skip();
    ek_buf file = pdf_of(lines, 2), out = {0};
    ek_buf_str(&out, "before:");
    if (ek_pdf_read(p, &out, file.data, file.len)) fail_msg("%s", ek_err_text());
    assert_memory_equal(out.data, "before:A tiller steers.", 23);
    const char *second = strstr(out.data, "\fA keel keeps even.");
    assert_non_null(second);
    ek_buf_fini(&out);
    ek_buf_fini(&file);
    ek_pdftotext_close(p);
}

static void what_is_no_text_is_said(void **state)
{
    (void)state;
    static const char *const none[] = {""};
    ek_pdftotext *p = open_or_skip();
    ek_buf file = pdf_of(none, 1), out = {0};
    assert_int_equal(ek_pdf_read(p, &out, file.data, file.len), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "without text"));
    assert_int_equal(ek_pdf_read(p, &out, "%PDF-1.4\nnothing", 16), EK_EPARSE);
    assert_non_null(strstr(ek_err_text(), "damaged PDF"));
    assert_int_equal(ek_pdf_read(p, &out, "text", 4), EK_EPARSE);
    assert_int_equal(out.len, 0);
    ek_buf_fini(&file);
    ek_buf_fini(&out);
    ek_pdftotext_close(p);
}

static void a_program_that_is_none_is_refused(void **state)
{
    (void)state;
    ek_pdftotext *p;
    assert_int_equal(ek_pdftotext_open(&p, "/nothing/pdftotext"), EK_ENOTFOUND);
    assert_null(p);
    assert_int_equal(ek_pdftotext_open(&p, "/usr/bin/env"), EK_EIO);
    assert_non_null(strstr(ek_err_text(), "does not run locked up"));
    assert_null(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_text_is_read),
        cmocka_unit_test(what_is_no_text_is_said),
        cmocka_unit_test(a_program_that_is_none_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
