/* The text of PDF files, by the operator's pdftotext (poppler), locked up as ffmpeg is (media/locked/child.h): one run
 * for each file, which reads nothing else. Any thread, several at once. */
#ifndef EK_MEDIA_PDF_H
#define EK_MEDIA_PDF_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

typedef struct ek_pdftotext ek_pdftotext;

enum { EK_PDF_CPU_SECONDS = 10, EK_PDF_WALL_SECONDS = 30, EK_PDF_TEXT = 4 << 20 }; /* bytes of text */

/* path: NULL: where it usually is. ENOTFOUND; EIO where it does not run locked up. */
ek_err ek_pdftotext_open(ek_pdftotext **out, const char *path);
void ek_pdftotext_close(ek_pdftotext *p);             /* NULL is fine */
const char *ek_pdftotext_text(const ek_pdftotext *p); /* its path, for people */

bool ek_is_pdf(const void *bytes, size_t n);
/* Appends the text, UTF-8 without NUL; a form feed ends each page. EPARSE for what it cannot read; EINVAL for a file
 * without text, such as pictures of pages; ETOOLARGE beyond the limits above; ECANCELLED where nobody wants it any more
 * (base/clock.h); EIO, ENOMEM. */
ek_err ek_pdf_read(const ek_pdftotext *p, ek_buf *out, const void *bytes, size_t n);

#endif
