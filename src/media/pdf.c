#include "media/pdf.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "media/pdf_run.h"

struct ek_pdftotext {
    char *path;
};

bool ek_is_pdf(const void *bytes, size_t n)
{
    static const char head[] = "%PDF-";
    return n >= sizeof head - 1 && !memcmp(bytes, head, sizeof head - 1);
}

static bool has_text(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \n\f\t", s[i]) || !s[i]) return true;
    return false;
}

ek_err ek_pdf_read(const ek_pdftotext *p, ek_buf *out, const void *bytes, size_t n)
{
    const char *const argv[] = {p->path, "-q", "-enc", "UTF-8", "-eol", "unix", "-", "-", NULL};
    const ek_pdf_run r = {.argv = argv,
                          .writes = "text",
                          .max = EK_PDF_TEXT,
                          .cpu_seconds = EK_PDF_CPU_SECONDS,
                          .seconds = EK_PDF_WALL_SECONDS};
    ek_buf text = {0};
    ek_err err = ek_pdf_run_over(&text, &r, bytes, n);
    if (!err && !has_text(ek_buf_text(&text), text.len))
        err = ek_fail(EK_EINVAL, "a PDF without text: its pages can be read as pictures alone");
    if (!err) ek_buf_add(out, text.data, text.len);
    ek_buf_fini(&text);
    return err;
}

ek_err ek_pdftotext_open(ek_pdftotext **out, const char *path)
{
    ek_pdftotext *p = ek_alloc(sizeof *p);
    ek_buf text = {0};
    ek_err err = ek_pdf_program_find(&p->path, "pdftotext", path);
    if (!err) err = ek_pdf_read(p, &text, ek_pdf_sample, ek_pdf_sample_len);
    if (!err && !strstr(text.data, "keel")) err = ek_fail(EK_EIO, "it does not read a PDF with one word");
    if (err && p->path) err = ek_fail_in(EK_EIO, "%s does not run locked up", p->path);
    ek_buf_fini(&text);
    if (err) {
        ek_pdftotext_close(p);
        p = NULL;
    }
    *out = p;
    return err;
}

void ek_pdftotext_close(ek_pdftotext *p)
{
    if (!p) return;
    free(p->path);
    free(p);
}

const char *ek_pdftotext_text(const ek_pdftotext *p)
{
    return p->path;
}
