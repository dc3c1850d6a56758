/* The text of PDF files, by the operator's pdftotext (poppler), in the sandbox of media/locked/child.h: one run per
 * file, which can read nothing else. Any thread, several at once. */
#ifndef EK_MEDIA_PDF_H
#define EK_MEDIA_PDF_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

typedef struct ek_pdftotext ek_pdftotext;

enum { EK_PDF_CPU_SECONDS = 10, EK_PDF_WALL_SECONDS = 30, EK_PDF_TEXT = 4 << 20 }; /* bytes of text */

/* path NULL: the usual place. ENOTFOUND; EIO if it does not run in the sandbox. */
ek_err ek_pdftotext_open(ek_pdftotext **out, const char *path);
void ek_pdftotext_close(ek_pdftotext *p);             /* NULL is allowed */
const char *ek_pdftotext_text(const ek_pdftotext *p); /* its path, for messages */

bool ek_is_pdf(const void *bytes, size_t n);
/* Appends the text, UTF-8 without NUL; a form feed ends each page. EPARSE for an unreadable file; EINVAL for a file
 * without text, such as scanned pages; ETOOLARGE beyond the limits above; ECANCELLED if the request was dropped
 * (base/clock.h); EIO, ENOMEM. */
ek_err ek_pdf_read(const ek_pdftotext *p, ek_buf *out, const void *bytes, size_t n);

#endif
