/* The pages of PDF files as pictures, by the operator's pdftoppm (poppler), in the same sandbox as pdftotext
 * (media/pdf.h), with the system's fonts. Any thread, several at once. */
#ifndef EK_MEDIA_PDF_PAGES_H
#define EK_MEDIA_PDF_PAGES_H

#include "base/buf.h"
#include "base/err.h"

typedef struct ek_pdftoppm ek_pdftoppm;

enum {
    EK_PDF_PAGES = 64,             /* per file */
    EK_PDF_PAGE_SIDE = 1600,       /* pixels of the longer side, for pages of any size */
    EK_PDF_PAGES_BYTES = 64 << 20, /* of all pictures of a file */
    EK_PDF_PAGES_CPU_SECONDS = 20,
    EK_PDF_PAGES_WALL_SECONDS = 60
};

/* path NULL: the usual place. ENOTFOUND; EIO if it does not run in the sandbox. */
ek_err ek_pdftoppm_open(ek_pdftoppm **out, const char *path);
void ek_pdftoppm_close(ek_pdftoppm *p);             /* NULL is allowed */
const char *ek_pdftoppm_text(const ek_pdftoppm *p); /* its path, for messages */

/* Called for each page, in order, with a PNG. An error stops the pages and is returned unchanged. */
typedef ek_err ek_pdf_page_fn(void *arg, const void *png, size_t n);

/* Draws at most max pages, with max <= EK_PDF_PAGES. EPARSE for an unreadable file; ETOOLARGE beyond the limits, also
 * of pages, before any page was given. ECANCELLED, EIO, ENOMEM. */
ek_err ek_pdf_pages(const ek_pdftoppm *p, const void *bytes, size_t n, int max, ek_pdf_page_fn *page, void *arg);

#endif
