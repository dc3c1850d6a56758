#include "media/pdf_run.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "media/locked/child.h"
#include "media/pdf.h"

#define MEMORY ((size_t)1 << 30) /* bytes of address space */

const char ek_pdf_sample[] =
    "%PDF-1.1\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
    "3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]/Contents 4 0 R/Resources<</Font<</F<</Type/Font/Subtype/Type1"
    "/BaseFont/Helvetica>>>>>>>>endobj\n4 0 obj<</Length 31>>stream\nBT /F 9 Tf 9 9 Td (keel) Tj ET \nendstream endobj\n"
    "trailer<</Root 1 0 R/Size 5>>\n%%EOF\n";
const size_t ek_pdf_sample_len = sizeof ek_pdf_sample - 1;

static bool is_program(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode) && access(path, X_OK) == 0;
}

ek_err ek_pdf_program_find(char **out, const char *name, const char *path)
{
    static const char *const folders[] = {"/usr/bin", "/usr/local/bin"};
    char usual[64];
    for (int i = 0; !path && i < 2; i++) {
        snprintf(usual, sizeof usual, "%s/%s", folders[i], name);
        if (is_program(usual)) path = usual;
    }
    if (!path)
        return ek_fail(EK_ENOTFOUND, "there is no %s in /usr/bin or /usr/local/bin: install poppler-utils, or name it",
                       name);
    if (!is_program(path)) return ek_fail(EK_ENOTFOUND, "%s is no program", path);
    *out = realpath(path, NULL);
    return *out ? EK_OK : ek_fail(EK_EIO, "%s: out of names", path);
}

static ek_err read_all(ek_child *c, ek_buf *out, const ek_pdf_run *r)
{
    char piece[16 << 10];
    const size_t from = out->len;
    for (size_t n = 1; n > 0;) {
        EK_TRY(ek_child_read(c, piece, sizeof piece, &n));
        ek_buf_add(out, piece, n);
        if (out->len - from > r->max)
            return ek_fail(EK_ETOOLARGE, "a PDF with more than %zu bytes of %s", r->max, r->writes);
    }
    return EK_OK;
}

ek_err ek_pdf_run_over(ek_buf *out, const ek_pdf_run *r, const void *bytes, size_t n)
{
    ek_child c;
    char says[120];
    int file;
    if (!ek_is_pdf(bytes, n)) return ek_fail(EK_EPARSE, "a PDF begins with %%PDF-");
    EK_TRY(ek_child_file(&file, bytes, n, "a PDF"));
    const ek_child_opts o = {.argv = r->argv,
                             .input = file,
                             .cpu_seconds = r->cpu_seconds,
                             .seconds = r->seconds,
                             .memory = MEMORY,
                             .fonts = r->fonts};
    ek_err err = ek_child_start(&c, &o);
    if (err) {
        close(file);
        return err;
    }
    err = read_all(&c, out, r);
    const ek_child_end end = ek_child_finish(&c, err != EK_OK);
    close(file);
    snprintf(says, sizeof says, "%.*s", (int)strcspn(c.says, "\n"), c.says);
    for (char *s = says; *s; s++)
        if (*s < ' ' || *s > '~') *s = '?';
    if (err == EK_ETIMEOUT || (!err && end.late) || end.signal == SIGXCPU)
        return ek_fail(EK_ETOOLARGE,
                       "a PDF that takes more than %d seconds of processor time, or %d on the clock, to read",
                       r->cpu_seconds, r->seconds);
    if (!err && !ek_is_wanted()) return EK_ECANCELLED;
    if (!err && end.status != 0)
        return ek_fail(EK_EPARSE, "a damaged PDF: %s", *says ? says : "reading it ended the program that reads it");
    return err;
}
