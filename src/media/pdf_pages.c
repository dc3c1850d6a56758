#include "media/pdf_pages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "media/pdf.h"
#include "media/pdf_run.h"

struct ek_pdftoppm {
    char *path;
};

/* --- the pictures, one after the other --- */

static uint32_t big_endian(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* The length of the PNG at the beginning of p, up to its end mark; 0: there is no PNG, or it is cut. */
static size_t png_bytes(const uint8_t *p, size_t n)
{
    static const uint8_t head[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    enum { FRAME = 12 }; /* length, type, checksum */
    if (n < sizeof head || memcmp(p, head, sizeof head) != 0) return 0;
    for (size_t at = sizeof head; n - at >= FRAME;) {
        const size_t data = big_endian(p + at);
        if (data > n - at - FRAME) return 0;
        const bool last = !memcmp(p + at + 4, "IEND", 4);
        at += FRAME + data;
        if (last) return at;
    }
    return 0;
}

static int count(const ek_buf *all)
{
    int pages = 0;
    for (size_t at = 0, n; at < all->len; at += n, pages++) {
        n = png_bytes((const uint8_t *)all->data + at, all->len - at);
        if (n == 0) return -1;
    }
    return pages;
}

static ek_err give(const ek_buf *all, ek_pdf_page_fn *page, void *arg)
{
    for (size_t at = 0, n; at < all->len; at += n) {
        n = png_bytes((const uint8_t *)all->data + at, all->len - at);
        EK_TRY(page(arg, all->data + at, n));
    }
    return EK_OK;
}

ek_err ek_pdf_pages(const ek_pdftoppm *p, const void *bytes, size_t n, int max, ek_pdf_page_fn *page, void *arg)
{
    char last[16], side[16];
    if (max > EK_PDF_PAGES) max = EK_PDF_PAGES;
    snprintf(last, sizeof last, "%d", max + 1); /* one more page shows that there are too many */
    snprintf(side, sizeof side, "%d", EK_PDF_PAGE_SIDE);
    const char *const argv[] = {p->path, "-q", "-png", "-scale-to", side, "-f", "1", "-l", last, "-", NULL};
    const ek_pdf_run r = {.argv = argv,
                          .writes = "pictures of pages",
                          .max = EK_PDF_PAGES_BYTES,
                          .cpu_seconds = EK_PDF_PAGES_CPU_SECONDS,
                          .seconds = EK_PDF_PAGES_WALL_SECONDS,
                          .fonts = true};
    ek_buf all = {0};
    ek_err err = ek_pdf_run_over(&all, &r, bytes, n);
    const int pages = err ? 0 : count(&all);
    if (!err && pages < 0) err = ek_fail(EK_EPARSE, "a damaged PDF: a page gives no picture");
    if (!err && pages == 0) err = ek_fail(EK_EPARSE, "a damaged PDF: it has no page");
    if (!err && pages > max)
        err = ek_fail(EK_ETOOLARGE, "a PDF with more than %d pages: as pictures, so many are read", max);
    if (!err) err = give(&all, page, arg);
    ek_buf_fini(&all);
    return err;
}

/* --- the program --- */

static ek_err is_picture(void *arg, const void *png, size_t n)
{
    *(bool *)arg = png && n > 0;
    return EK_OK;
}

ek_err ek_pdftoppm_open(ek_pdftoppm **out, const char *path)
{
    ek_pdftoppm *p = ek_alloc(sizeof *p);
    bool drawn = false;
    ek_err err = ek_pdf_program_find(&p->path, "pdftoppm", path);
    if (!err) err = ek_pdf_pages(p, ek_pdf_sample, ek_pdf_sample_len, 1, is_picture, &drawn);
    if (!err && !drawn) err = ek_fail(EK_EIO, "it does not draw a PDF with one word");
    if (err && p->path) err = ek_fail_in(EK_EIO, "%s does not run locked up", p->path);
    if (err) {
        ek_pdftoppm_close(p);
        p = NULL;
    }
    *out = p;
    return err;
}

void ek_pdftoppm_close(ek_pdftoppm *p)
{
    if (!p) return;
    free(p->path);
    free(p);
}

const char *ek_pdftoppm_text(const ek_pdftoppm *p)
{
    return p->path;
}
