#include "media/pdf.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "media/locked/child.h"

#define MEMORY ((size_t)1 << 30) /* bytes of address space */

struct ek_pdftotext {
    char *path;
};

static bool is_program(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode) && access(path, X_OK) == 0;
}

static ek_err find_program(ek_pdftotext *p, const char *path)
{
    static const char *const usual[] = {"/usr/bin/pdftotext", "/usr/local/bin/pdftotext"};
    for (int i = 0; !path && i < 2; i++)
        if (is_program(usual[i])) path = usual[i];
    if (!path)
        return ek_fail(EK_ENOTFOUND, "there is no pdftotext in /usr/bin or /usr/local/bin: install poppler-utils, or "
                                     "name it");
    if (!is_program(path)) return ek_fail(EK_ENOTFOUND, "%s is no program", path);
    p->path = realpath(path, NULL);
    return p->path ? EK_OK : ek_fail(EK_EIO, "%s: out of names", path);
}

/* One run over a file; text: what it writes. */
static ek_err run(const ek_pdftotext *p, ek_buf *text, int file, ek_child_end *end, char says[120])
{
    const char *const argv[] = {p->path, "-q", "-enc", "UTF-8", "-eol", "unix", "-", "-", NULL};
    const ek_child_opts o = {.argv = argv,
                             .input = file,
                             .cpu_seconds = EK_PDF_CPU_SECONDS,
                             .seconds = EK_PDF_WALL_SECONDS,
                             .memory = MEMORY};
    ek_child c;
    char piece[16 << 10];
    ek_err err = EK_OK;
    EK_TRY(ek_child_start(&c, &o));
    for (size_t n = 1; !err && n > 0;) {
        err = ek_child_read(&c, piece, sizeof piece, &n);
        if (err) break;
        ek_buf_add(text, piece, n);
        if (text->len > EK_PDF_TEXT) err = ek_fail(EK_ETOOLARGE, "a PDF with more than %d bytes of text", EK_PDF_TEXT);
    }
    *end = ek_child_finish(&c, err != EK_OK);
    snprintf(says, 120, "%.*s", (int)strcspn(c.says, "\n"), c.says);
    for (char *s = says; *s; s++)
        if (*s < ' ' || *s > '~') *s = '?';
    return err;
}

static ek_err late(void)
{
    return ek_fail(EK_ETOOLARGE, "a PDF that takes more than %d seconds of processor time, or %d on the clock, to read",
                   EK_PDF_CPU_SECONDS, EK_PDF_WALL_SECONDS);
}

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
    ek_buf text = {0};
    ek_child_end end = {0};
    char says[120];
    int file;
    if (!ek_is_pdf(bytes, n)) return ek_fail(EK_EPARSE, "a PDF begins with %%PDF-");
    EK_TRY(ek_child_file(&file, bytes, n, "a PDF"));
    ek_err err = run(p, &text, file, &end, says);
    close(file);
    if (err == EK_ETIMEOUT || (!err && end.late) || end.signal == SIGXCPU) err = late();
    else if (!err && !ek_is_wanted()) err = EK_ECANCELLED;
    else if (!err && end.status != 0)
        err = ek_fail(EK_EPARSE, "a damaged PDF: %s", *says ? says : "reading it ended pdftotext");
    else if (!err && !has_text(ek_buf_text(&text), text.len))
        err = ek_fail(EK_EINVAL, "a PDF without text: pages that are pictures are not read");
    if (!err) ek_buf_add(out, text.data, text.len);
    ek_buf_fini(&text);
    return err;
}

/* A smallest file with a word, which a program that runs locked up reads. */
static const char sample[] =
    "%PDF-1.1\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
    "3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]/Contents 4 0 R/Resources<</Font<</F<</Type/Font/Subtype/Type1"
    "/BaseFont/Helvetica>>>>>>>>endobj\n4 0 obj<</Length 31>>stream\nBT /F 9 Tf 9 9 Td (keel) Tj ET \nendstream endobj\n"
    "trailer<</Root 1 0 R/Size 5>>\n%%EOF\n";

ek_err ek_pdftotext_open(ek_pdftotext **out, const char *path)
{
    ek_pdftotext *p = ek_alloc(sizeof *p);
    ek_buf text = {0};
    ek_err err = find_program(p, path);
    if (!err) err = ek_pdf_read(p, &text, sample, sizeof sample - 1);
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
