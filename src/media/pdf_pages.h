/* The pages of PDF files as pictures, by the operator's pdftoppm (poppler), locked up as pdftotext is (media/pdf.h). It
 * reads the system's fonts besides. Any thread, several at once. */
#ifndef EK_MEDIA_PDF_PAGES_H
#define EK_MEDIA_PDF_PAGES_H

#include "base/buf.h"
#include "base/err.h"

typedef struct ek_pdftoppm ek_pdftoppm;

enum {
    EK_PDF_PAGES = 64,             /* of a file */
    EK_PDF_PAGE_SIDE = 1600,       /* pixels of the longer side, whatever the page says of its size */
    EK_PDF_PAGES_BYTES = 64 << 20, /* of all pictures of a file */
    EK_PDF_PAGES_CPU_SECONDS = 20,
    EK_PDF_PAGES_WALL_SECONDS = 60
};

/* path: NULL: where it usually is. ENOTFOUND; EIO where it does not run locked up. */
ek_err ek_pdftoppm_open(ek_pdftoppm **out, const char *path);
void ek_pdftoppm_close(ek_pdftoppm *p);             /* NULL is fine */
const char *ek_pdftoppm_text(const ek_pdftoppm *p); /* its path, for people */

/* Called for each page, in order, with a PNG. Stops at an error, which is returned as it is. */
typedef ek_err ek_pdf_page_fn(void *arg, const void *png, size_t n);

/* At most max pages, of EK_PDF_PAGES. EPARSE for what it cannot read; ETOOLARGE beyond the limits, of pages too; then
 * no page was given. ECANCELLED, EIO, ENOMEM. */
ek_err ek_pdf_pages(const ek_pdftoppm *p, const void *bytes, size_t n, int max, ek_pdf_page_fn *page, void *arg);

#endif
