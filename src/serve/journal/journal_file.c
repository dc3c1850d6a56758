#include "serve/journal/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"

typedef struct line_at {
    int64_t begin, end, number; /* end: without the line end; number: in the file, from 1 */
} line_at;

struct ek_journal_file {
    char *path;
    int fd;
    line_at *line; /* those that are not empty */
    int64_t n, cap;
    ek_buf text;          /* the text of the line read last */
    char *form_id, *form; /* the form found last, and its reply */
};

static ek_err add_line(ek_journal_file *f, line_at at)
{
    if (at.begin == at.end) return EK_OK;
    if (f->n == EK_JOURNAL_LINES_MAX)
        return ek_fail(EK_ETOOLARGE, "%s: more than %d lines that are not empty: cut the journal into parts", f->path,
                       (int)EK_JOURNAL_LINES_MAX);
    if (f->n == f->cap) {
        const int64_t cap = f->cap ? 2 * f->cap : 1024;
        line_at *more = realloc(f->line, (size_t)cap * sizeof *more);
        if (!more)
            return ek_fail(EK_ENOMEM, "%s: no memory for where %lld lines begin, %lld bytes", f->path, (long long)cap,
                           (long long)cap * (long long)sizeof *more);
        f->line = more, f->cap = cap;
    }
    f->line[f->n++] = at;
    return EK_OK;
}

static ek_err find_lines(ek_journal_file *f)
{
    enum { PART = 1 << 20 };
    char *part = ek_alloc(PART);
    line_at line = {.number = 1};
    int64_t at = 0;
    ssize_t n;
    ek_err err = EK_OK;
    while (!err && (n = read(f->fd, part, PART)) != 0) {
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) err = ek_fail(EK_EIO, "%s: %s", f->path, strerror(errno));
        for (char *p = part; !err && (p = memchr(p, '\n', (size_t)(part + n - p))); p++) {
            line.end = at + (p - part);
            err = add_line(f, line);
            line.begin = line.end + 1, line.number++;
        }
        at += n;
    }
    free(part);
    line.end = at;
    return err ? err : add_line(f, line);
}

ek_err ek_journal_file_open(ek_journal_file **out, const char *path)
{
    ek_journal_file *f = ek_alloc(sizeof *f);
    f->path = ek_strdup(path);
    f->fd = open(path, O_RDONLY | O_CLOEXEC);
    ek_err err = f->fd >= 0 ? find_lines(f)
                            : ek_fail(errno == ENOENT ? EK_ENOTFOUND : EK_EIO, "%s: %s", path, strerror(errno));
    if (err) {
        ek_journal_file_close(f);
        return err;
    }
    *out = f;
    return EK_OK;
}

void ek_journal_file_close(ek_journal_file *f)
{
    if (!f) return;
    if (f->fd >= 0) close(f->fd);
    ek_buf_fini(&f->text);
    free(f->form_id);
    free(f->form);
    free(f->line);
    free(f->path);
    free(f);
}

int64_t ek_journal_file_lines(const ek_journal_file *f)
{
    return f->n;
}

int64_t ek_journal_file_number(const ek_journal_file *f, int64_t i)
{
    return f->line[i].number;
}

/* Reads bytes [at, at + n) of the file into f->text. */
static ek_err fetch(ek_journal_file *f, int64_t at, size_t n)
{
    char part[65536];
    ek_buf_clear(&f->text);
    while (f->text.len < n) {
        size_t want = n - f->text.len < sizeof part ? n - f->text.len : sizeof part;
        ssize_t took = pread(f->fd, part, want, at + (int64_t)f->text.len);
        if (took < 0 && errno == EINTR) continue;
        if (took <= 0) return ek_fail(EK_EIO, "%s", took < 0 ? strerror(errno) : "the file has become shorter");
        ek_buf_add(&f->text, part, (size_t)took);
    }
    return EK_OK;
}

static ek_err read_line(ek_journal_file *f, int64_t i, ek_journal_line *l)
{
    const int64_t begin = f->line[i].begin;
    const size_t n = (size_t)(f->line[i].end - begin);
    *l = (ek_journal_line){0};
    ek_err err = n <= EK_JOURNAL_LINE_MAX ? fetch(f, begin, n) : EK_OK;
    return err ? err : ek_journal_line_read(l, ek_buf_text(&f->text), n);
}

static void keep_form(ek_journal_file *f, const char *id, const char *form)
{
    free(f->form_id);
    free(f->form);
    f->form_id = ek_strdup(id);
    f->form = form ? ek_strdup(form) : NULL;
}

/* The form of the reply's choice 0, whose line comes before line i; NULL if that line is missing. */
static const char *find_form(ek_journal_file *f, int64_t i, const char *id)
{
    if (f->form_id && !strcmp(f->form_id, id)) return f->form;
    bool found = false;
    keep_form(f, id, NULL);
    while (!found && i-- > 0) {
        ek_journal_line l;
        ek_err err = read_line(f, i, &l);
        found = !err && l.id && !strcmp(l.id, id) && l.choice == 0;
        if (found) keep_form(f, id, l.record.form);
        ek_journal_line_fini(&l);
    }
    return f->form;
}

ek_err ek_journal_file_read(ek_journal_file *f, int64_t i, ek_journal_line *l)
{
    EK_TRY(read_line(f, i, l));
    ek_record *r = &l->record;
    if (!r->same_form) return EK_OK;
    const char *form = find_form(f, i, l->id);
    if (form) r->form = ek_strdup(form);
    else r->has_bounds = false; /* its logits can still be compared */
    return EK_OK;
}
