#include "serve/journal/journal_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"

struct ek_journal_file {
    char *path;
    int fd;
    int64_t *end; /* of line i, without its line end */
    int64_t n, cap;
    ek_buf text;          /* of the line last read */
    char *form_id, *form; /* the last form that was looked for, and its reply */
};

static void add_line(ek_journal_file *f, int64_t end)
{
    if (f->n == f->cap) {
        f->cap = f->cap ? 2 * f->cap : 1024;
        f->end = ek_realloc(f->end, (size_t)f->cap * sizeof *f->end);
    }
    f->end[f->n++] = end;
}

static ek_err find_lines(ek_journal_file *f)
{
    char *part = ek_alloc(1 << 20);
    int64_t at = 0, begin = 0;
    ssize_t n;
    while ((n = read(f->fd, part, 1 << 20)) > 0) {
        for (char *p = part; (p = memchr(p, '\n', (size_t)(part + n - p))); p++) {
            add_line(f, at + (p - part));
            begin = at + (p - part) + 1;
        }
        at += n;
    }
    free(part);
    if (n < 0) return ek_fail(EK_EIO, "%s: %s", f->path, strerror(errno));
    if (at > begin) add_line(f, at);
    return EK_OK;
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
    free(f->end);
    free(f->path);
    free(f);
}

int64_t ek_journal_file_lines(const ek_journal_file *f)
{
    return f->n;
}

/* Bytes [at, at + n) of the file into f->text. */
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

static ek_err read_line(ek_journal_file *f, int64_t i, ek_journal_line *l, bool *empty)
{
    int64_t begin = i > 0 ? f->end[i - 1] + 1 : 0;
    size_t n = (size_t)(f->end[i] - begin);
    *l = (ek_journal_line){0};
    *empty = n == 0;
    if (n == 0) return EK_OK;
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

/* The form of the reply's choice 0, whose line stands before line i; NULL where it is not there. */
static const char *find_form(ek_journal_file *f, int64_t i, const char *id)
{
    if (f->form_id && !strcmp(f->form_id, id)) return f->form;
    bool found = false, empty;
    keep_form(f, id, NULL);
    while (!found && i-- > 0) {
        ek_journal_line l;
        ek_err err = read_line(f, i, &l, &empty);
        found = !err && !empty && l.id && !strcmp(l.id, id) && l.choice == 0;
        if (found) keep_form(f, id, l.record.form);
        ek_journal_line_fini(&l);
    }
    return f->form;
}

ek_err ek_journal_file_read(ek_journal_file *f, int64_t i, ek_journal_line *l, bool *empty)
{
    ek_err err = read_line(f, i, l, empty);
    if (err) return ek_fail_in(err, "%s line %lld", f->path, (long long)i + 1);
    ek_record *r = &l->record;
    if (!r->same_form) return EK_OK;
    const char *form = find_form(f, i, l->id);
    if (form) r->form = ek_strdup(form);
    else r->has_bounds = false; /* it can still be compared by its logits */
    return EK_OK;
}
