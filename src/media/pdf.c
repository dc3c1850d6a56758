#include "media/pdf.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "media/header.h"
#include "media/locked/child.h"

#define MEMORY ((size_t)1 << 30) /* bytes of address space */

bool ek_is_pdf(const void *bytes, size_t n)
{
    static const char head[] = "%PDF-";
    return n >= sizeof head - 1 && !memcmp(bytes, head, sizeof head - 1);
}

/* --- a run of a program --- */

typedef struct run {
    const char *const *argv;
    const char *writes; /* the kind of output, such as "text", for messages */
    size_t max;         /* maximum bytes of output */
    int cpu_seconds, seconds;
    bool fonts;
} run;

static ek_err read_all(ek_child *c, ek_buf *out, const run *r)
{
    char piece[16 << 10];
    for (size_t n = 1; n > 0;) {
        EK_TRY(ek_child_read(c, piece, sizeof piece, &n));
        ek_buf_add(out, piece, n);
        if (out->len > r->max) return ek_fail(EK_ETOOLARGE, "a PDF with more than %zu bytes of %s", r->max, r->writes);
    }
    return EK_OK;
}

/* out is empty before. */
static ek_err run_over(ek_buf *out, const run *r, const void *bytes, size_t n)
{
    ek_child c;
    char says[EK_CHILD_WORDS];
    int file;
    if (!ek_is_pdf(bytes, n)) return ek_fail(EK_EPARSE, "a PDF begins with %%PDF-");
    EK_TRY(ek_child_file(&file, bytes, n, "a PDF"));
    const ek_child_opts o = {.argv = r->argv,
                             .input = file,
                             .cpu_seconds = r->cpu_seconds,
                             .seconds = r->seconds,
                             .memory = MEMORY,
                             .fonts = r->fonts};
    ek_err err = ek_child_start(&c, &o);
    if (err) {
        close(file);
        return err;
    }
    err = read_all(&c, out, r);
    const ek_child_end end = ek_child_finish(&c, err != EK_OK);
    close(file);
    if (err == EK_ETIMEOUT || (!err && end.late) || end.signal == SIGXCPU)
        return ek_fail(EK_ETOOLARGE,
                       "a PDF that takes more than %d seconds of processor time, or %d on the clock, to read",
                       r->cpu_seconds, r->seconds);
    if (!err && !ek_is_wanted()) return EK_ECANCELLED;
    if (!err && end.status != 0)
        return ek_fail(EK_EPARSE, "a damaged PDF: %s",
                       *ek_child_words(says, c.says) ? says : "reading it ended the program that reads it");
    return err;
}

/* --- text --- */

static bool has_text(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \n\f\t", s[i]) || !s[i]) return true;
    return false;
}

ek_err ek_pdf_read(const char *pdftotext, ek_buf *out, const void *bytes, size_t n)
{
    const char *const argv[] = {pdftotext, "-q", "-enc", "UTF-8", "-eol", "unix", "-", "-", NULL};
    const run r = {.argv = argv,
                   .writes = "text",
                   .max = EK_PDF_TEXT,
                   .cpu_seconds = EK_PDF_CPU_SECONDS,
                   .seconds = EK_PDF_WALL_SECONDS};
    ek_buf text = {0};
    ek_err err = run_over(&text, &r, bytes, n);
    if (!err && !has_text(ek_buf_text(&text), text.len))
        err = ek_fail(EK_EINVAL, "a PDF without text: its pages can be read as pictures alone");
    if (!err) ek_buf_add(out, text.data, text.len);
    ek_buf_fini(&text);
    return err;
}

/* --- pictures of pages, one after the other --- */

/* The length of the PNG at the beginning of p, up to its end mark; 0: there is no PNG, or it is cut. */
static size_t png_bytes(const uint8_t *p, size_t n)
{
    enum { HEAD = 8, FRAME = 12 }; /* FRAME: length, type, checksum */
    if (!ek_is_png((ek_media_bytes){p, n})) return 0;
    for (size_t at = HEAD; n - at >= FRAME;) {
        const size_t data = ek_be32(p + at);
        if (data > n - at - FRAME) return 0;
        const bool last = !memcmp(p + at + 4, "IEND", 4);
        at += FRAME + data;
        if (last) return at;
    }
    return 0;
}

/* Calls page, unless it is NULL, for each picture. *pages: their number; EPARSE if a picture is none. */
static ek_err each_page(const ek_buf *all, int *pages, ek_pdf_page_fn *page, void *arg)
{
    *pages = 0;
    for (size_t at = 0, n; at < all->len; at += n, ++*pages) {
        n = png_bytes((const uint8_t *)all->data + at, all->len - at);
        if (n == 0) return ek_fail(EK_EPARSE, "a damaged PDF: a page gives no picture");
        if (page) EK_TRY(page(arg, all->data + at, n));
    }
    return EK_OK;
}

ek_err ek_pdf_pages(const char *pdftoppm, const void *bytes, size_t n, int max, ek_pdf_page_fn *page, void *arg)
{
    char last[16], side[16];
    if (max > EK_PDF_PAGES) max = EK_PDF_PAGES;
    snprintf(last, sizeof last, "%d", max + 1); /* one more page shows that there are too many */
    snprintf(side, sizeof side, "%d", EK_PDF_PAGE_SIDE);
    const char *const argv[] = {pdftoppm, "-q", "-png", "-scale-to", side, "-f", "1", "-l", last, "-", NULL};
    const run r = {.argv = argv,
                   .writes = "pictures of pages",
                   .max = EK_PDF_PAGES_BYTES,
                   .cpu_seconds = EK_PDF_PAGES_CPU_SECONDS,
                   .seconds = EK_PDF_PAGES_WALL_SECONDS,
                   .fonts = true};
    ek_buf all = {0};
    int pages = 0;
    ek_err err = run_over(&all, &r, bytes, n);
    if (!err) err = each_page(&all, &pages, NULL, NULL);
    if (!err && pages == 0) err = ek_fail(EK_EPARSE, "a damaged PDF: it has no page");
    if (!err && pages > max)
        err = ek_fail(EK_ETOOLARGE, "a PDF with more than %d pages: as pictures, so many are read", max);
    if (!err) err = each_page(&all, &pages, page, arg);
    ek_buf_fini(&all);
    return err;
}

/* --- the programs --- */

static const char sample[] =
    "%PDF-1.1\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
    "3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]/Contents 4 0 R/Resources<</Font<</F<</Type/Font/Subtype/Type1"
    "/BaseFont/Helvetica>>>>>>>>endobj\n4 0 obj<</Length 31>>stream\nBT /F 9 Tf 9 9 Td (keel) Tj ET \nendstream endobj\n"
    "trailer<</Root 1 0 R/Size 5>>\n%%EOF\n";

static ek_err reads_sample(const char *pdftotext)
{
    ek_buf text = {0};
    ek_err err = ek_pdf_read(pdftotext, &text, sample, sizeof sample - 1);
    if (!err && !strstr(text.data, "keel")) err = ek_fail(EK_EIO, "it does not read a PDF with one word");
    ek_buf_fini(&text);
    return err;
}

static ek_err is_picture(void *arg, const void *png, size_t n)
{
    *(bool *)arg = png && n > 0;
    return EK_OK;
}

static ek_err draws_sample(const char *pdftoppm)
{
    bool drawn = false;
    EK_TRY(ek_pdf_pages(pdftoppm, sample, sizeof sample - 1, 1, is_picture, &drawn));
    return drawn ? EK_OK : ek_fail(EK_EIO, "it does not draw a PDF with one word");
}

static ek_err find(char **out, const char *name, const char *path, ek_err (*try)(const char *program))
{
    *out = NULL;
    EK_TRY(ek_child_find(out, name, "poppler-utils", path));
    if (!try(*out)) return EK_OK;
    const ek_err err = ek_fail_in(EK_EIO, "%s does not run locked up", *out);
    free(*out);
    *out = NULL;
    return err;
}

ek_err ek_pdftotext_find(char **out, const char *path)
{
    return find(out, "pdftotext", path, reads_sample);
}

ek_err ek_pdftoppm_find(char **out, const char *path)
{
    return find(out, "pdftoppm", path, draws_sample);
}
