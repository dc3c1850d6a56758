/* Runs a program of poppler over a PDF in a sandbox. Inside src/media. */
#ifndef EK_MEDIA_PDF_RUN_H
#define EK_MEDIA_PDF_RUN_H

#include "base/buf.h"
#include "base/err.h"

/* A minimal PDF with a word, to test that a program runs in the sandbox. */
extern const char ek_pdf_sample[];
extern const size_t ek_pdf_sample_len;

/* Finds the program `name`. *out: its real path, to be freed. path: given by the operator; NULL: the usual folders. */
ek_err ek_pdf_program_find(char **out, const char *name, const char *path);

typedef struct ek_pdf_run {
    const char *const *argv;
    const char *writes; /* the kind of output, such as "text", for messages */
    size_t max;         /* maximum bytes of output */
    int cpu_seconds, seconds;
    bool fonts;
} ek_pdf_run;

/* Appends the output. EPARSE for a damaged PDF, ETOOLARGE beyond the bounds; ECANCELLED, EIO, ENOMEM. */
ek_err ek_pdf_run_over(ek_buf *out, const ek_pdf_run *r, const void *bytes, size_t n);

#endif
