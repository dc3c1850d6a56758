/* PDF files: their text by the operator's pdftotext, their pages as pictures by pdftoppm (both of poppler), in the
 * sandbox of media/locked/child.h: one run per file, which can read nothing else; pdftoppm also reads the system's
 * fonts. Any thread, several at once. Reading fails with EPARSE for an unreadable file, ETOOLARGE beyond the limits
 * below, ECANCELLED if the request was dropped (base/clock.h), EIO, ENOMEM. */
#ifndef EK_MEDIA_PDF_H
#define EK_MEDIA_PDF_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

enum { EK_PDF_CPU_SECONDS = 10, EK_PDF_WALL_SECONDS = 30, EK_PDF_TEXT = 4 << 20 }; /* bytes of text */
enum {
    EK_PDF_PAGES = 64,             /* per file */
    EK_PDF_PAGE_SIDE = 1600,       /* pixels of the longer side, for pages of any size */
    EK_PDF_PAGES_BYTES = 64 << 20, /* of all pictures of a file */
    EK_PDF_PAGES_CPU_SECONDS = 20,
    EK_PDF_PAGES_WALL_SECONDS = 60
};

/* Finds the program and tries it on a file with one word. *out: its real path, to be freed; NULL after an error. path
 * NULL: the usual places. ENOTFOUND; EIO if it does not run in the sandbox. */
ek_err ek_pdftotext_find(char **out, const char *path);
ek_err ek_pdftoppm_find(char **out, const char *path);

bool ek_is_pdf(const void *bytes, size_t n);
/* Appends the text, UTF-8 without NUL; a form feed ends each page. EINVAL for a file without text, such as scanned
 * pages. */
ek_err ek_pdf_read(const char *pdftotext, ek_buf *out, const void *bytes, size_t n);

/* Called for each page, in order, with a PNG. An error stops the pages and is returned unchanged. */
typedef ek_err ek_pdf_page_fn(void *arg, const void *png, size_t n);
/* Draws at most max pages, with max <= EK_PDF_PAGES. ETOOLARGE, also of pages, before any page was given. */
ek_err ek_pdf_pages(const char *pdftoppm, const void *bytes, size_t n, int max, ek_pdf_page_fn *page, void *arg);

#endif
