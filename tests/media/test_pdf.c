/* PDFs through a locked pdftotext: text, what is none, and what is too much. Skipped where it is not installed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "media/image.h"
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

static char *open_or_skip(void)
{
    char *p;
    const ek_err err = ek_pdftotext_find(&p, NULL);
    if (err == EK_ENOTFOUND) skip();
    if (err) fail_msg("%s", ek_err_text());
    return p;
}

static void its_text_is_read(void **state)
{
    (void)state;
    static const char *const lines[] = {"A tiller steers.", "A keel keeps even."};
    char *p = open_or_skip();
    ek_buf file = pdf_of(lines, 2), out = {0};
    ek_buf_str(&out, "before:");
    if (ek_pdf_read(p, &out, file.data, file.len)) fail_msg("%s", ek_err_text());
    assert_memory_equal(out.data, "before:A tiller steers.", 23);
    const char *second = strstr(out.data, "\fA keel keeps even.");
    assert_non_null(second);
    ek_buf_fini(&out);
    ek_buf_fini(&file);
    free(p);
}

static void what_is_no_text_is_said(void **state)
{
    (void)state;
    static const char *const none[] = {""};
    char *p = open_or_skip();
    ek_buf file = pdf_of(none, 1), out = {0};
    assert_int_equal(ek_pdf_read(p, &out, file.data, file.len), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "without text"));
    assert_int_equal(ek_pdf_read(p, &out, "%PDF-1.4\nnothing", 16), EK_EPARSE);
    assert_non_null(strstr(ek_err_text(), "damaged PDF"));
    assert_int_equal(ek_pdf_read(p, &out, "text", 4), EK_EPARSE);
    assert_int_equal(out.len, 0);
    ek_buf_fini(&file);
    ek_buf_fini(&out);
    free(p);
}

static void a_program_that_is_none_is_refused(void **state)
{
    (void)state;
    char *p;
    assert_int_equal(ek_pdftotext_find(&p, "/nothing/pdftotext"), EK_ENOTFOUND);
    assert_null(p);
    char *q;
    assert_int_equal(ek_pdftoppm_find(&q, "/nothing/pdftoppm"), EK_ENOTFOUND);
    assert_int_equal(ek_pdftoppm_find(&q, "/usr/bin/env"), EK_EIO);
    assert_null(q);
    assert_int_equal(ek_pdftotext_find(&p, "/usr/bin/env"), EK_EIO);
    assert_non_null(strstr(ek_err_text(), "does not run locked up"));
    assert_null(p);
}

/* What the pages look like: width, height, and how many samples are dark. */
typedef struct drawn {
    int n, width, height, dark[4];
} drawn;

static ek_err look(void *arg, const void *png, size_t n)
{
    drawn *d = arg;
    ek_image image;
    if (ek_image_decode(&image, png, n, EK_ALPHA_DROP)) fail_msg("%s", ek_err_text());
    d->width = image.width, d->height = image.height;
    for (size_t i = 0; d->n < 4 && i < ek_image_bytes(&image); i++) d->dark[d->n] += image.rgb[i] < 64;
    d->n++;
    ek_image_free(&image);
    return EK_OK;
}

static char *open_pages_or_skip(void)
{
    char *p;
    const ek_err err = ek_pdftoppm_find(&p, NULL);
    if (err == EK_ENOTFOUND) skip();
    if (err) fail_msg("%s", ek_err_text());
    return p;
}

/* Letters, too, whose fonts are the system's and lie outside of the sandbox's folders. */
static void pages_are_drawn(void **state)
{
    (void)state;
    static const char *const lines[] = {"A tiller steers.", "", "A keel keeps even, and a rudder turns."};
    char *p = open_pages_or_skip();
    ek_buf file = pdf_of(lines, 3);
    drawn d = {0};
    if (ek_pdf_pages(p, file.data, file.len, 3, look, &d)) fail_msg("%s", ek_err_text());
    assert_int_equal(d.n, 3);
    assert_int_equal(d.width, EK_PDF_PAGE_SIDE);
    assert_in_range(d.height, 390, 400); /* of a page of 400 x 99 */
    assert_int_equal(d.dark[1], 0);
    assert_true(d.dark[0] > 1000 && d.dark[2] > d.dark[0]);
    d = (drawn){0};
    assert_int_equal(ek_pdf_pages(p, file.data, file.len, 2, look, &d), EK_ETOOLARGE);
    assert_non_null(strstr(ek_err_text(), "more than 2 pages"));
    assert_int_equal(d.n, 0);
    assert_int_equal(ek_pdf_pages(p, "%PDF-1.4\nnothing", 16, 9, look, &d), EK_EPARSE);
    assert_int_equal(ek_pdf_pages(p, "text", 4, 9, look, &d), EK_EPARSE);
    assert_int_equal(d.n, 0);
    ek_buf_fini(&file);
    free(p);
}

/* Pages that say that they are as large as a field, or as thin as a hair. */
static void a_page_of_any_size_is_bounded(void **state)
{
    (void)state;
    static const char *const boxes[] = {"0 0 9999999 9999999", "0 0 90000 1", "0 0 0.01 0.01"};
    char *p = open_pages_or_skip();
    for (int i = 0; i < 3; i++) {
        ek_buf b = {0};
        drawn d = {0};
        ek_buf_fmt(&b,
                   "%%PDF-1.1\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count "
                   "1>>endobj\n3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[%s]>>endobj\ntrailer<</Root 1 0 R/Size "
                   "4>>\n%%%%EOF\n",
                   boxes[i]);
        const ek_err err = ek_pdf_pages(p, b.data, b.len, 1, look, &d);
        if (err) assert_true(err == EK_EPARSE || err == EK_ETOOLARGE);
        else assert_true(d.n == 1 && d.width <= EK_PDF_PAGE_SIDE && d.height <= EK_PDF_PAGE_SIDE);
        ek_buf_fini(&b);
    }
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_text_is_read),
        cmocka_unit_test(what_is_no_text_is_said),
        cmocka_unit_test(a_program_that_is_none_is_refused),
        cmocka_unit_test(pages_are_drawn),
        cmocka_unit_test(a_page_of_any_size_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
