/* One run of a program of poppler over a PDF, locked up. Inside src/media. */
#ifndef EK_MEDIA_PDF_RUN_H
#define EK_MEDIA_PDF_RUN_H

#include "base/buf.h"
#include "base/err.h"

/* A smallest file with a word, which a program that runs locked up reads. */
extern const char ek_pdf_sample[];
extern const size_t ek_pdf_sample_len;

/* *out: its real path, to be freed. name: of the program; path: of the operator's, NULL: where it usually is. */
ek_err ek_pdf_program_find(char **out, const char *name, const char *path);

typedef struct ek_pdf_run {
    const char *const *argv;
    const char *writes; /* "text": what it writes, for sentences */
    size_t max;         /* bytes of it */
    int cpu_seconds, seconds;
    bool fonts;
} ek_pdf_run;

/* Appends what it writes. EPARSE for a damaged PDF, ETOOLARGE beyond the bounds; ECANCELLED, EIO, ENOMEM. */
ek_err ek_pdf_run_over(ek_buf *out, const ek_pdf_run *r, const void *bytes, size_t n);

#endif
