#include "batch/batch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/hash/hash.h"

enum { PART = 1 << 20 };

/* The hash of a custom_id. It has 128 bits, so that no two in a batch are equal by chance. */
typedef struct name {
    uint8_t hash[16];
    uint64_t line; /* index */
} name;

typedef struct scan {
    ek_batch_input *in;
    bool requests;
    ek_sha256_state whole, state; /* whole: of the file; state: of the line */
    ek_buf line;                  /* the line's bytes, up to EK_BATCH_LINE_MAX */
    uint64_t at, from, n;         /* in the file: the next byte; the line's first byte; n: bytes of the line so far */
    uint64_t number;
    bool cr, blank; /* cr: a CR was seen, which is text if more follows; blank: only blanks so far */
    size_t cap, n_names, cap_names;
    name *names;
} scan;

static uint64_t hash_of(const char *s, size_t n)
{
    char hex[65];
    ek_sha256_hex(hex, s, n);
    return ek_batch_sum(hex);
}

static void begin_line(scan *s)
{
    ek_buf_clear(&s->line);
    ek_sha256_init(&s->state);
    s->from = s->at;
    s->n = 0;
    s->cr = false;
    s->blank = true;
}

static void note_name(scan *s)
{
    ek_batch_line l;
    uint8_t hash[32];
    ek_batch_line_read(&l, ek_buf_text(&s->line), s->line.len);
    if (l.name) {
        if (s->n_names == s->cap_names) {
            s->cap_names = s->cap_names ? 2 * s->cap_names : 1024;
            s->names = ek_realloc(s->names, s->cap_names * sizeof *s->names);
        }
        ek_sha256(hash, l.name, l.n_name);
        memcpy(s->names[s->n_names].hash, hash, sizeof s->names->hash);
        s->names[s->n_names++].line = s->in->n;
    }
    ek_batch_line_fini(&l);
}

static void end_line(scan *s)
{
    char hex[65];
    s->number++;
    if (s->blank) return;
    ek_batch_input *in = s->in;
    if (in->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 1024;
        in->lines = ek_realloc(in->lines, s->cap * sizeof *in->lines);
    }
    if (s->requests && s->n <= EK_BATCH_LINE_MAX) note_name(s);
    ek_sha256_end(&s->state, hex);
    in->lines[in->n++] = (ek_batch_entry){s->from, s->n, ek_batch_sum(hex), s->number};
}

static void feed(scan *s, const char *p, size_t n)
{
    for (size_t i = 0; i < n && s->blank; i++) s->blank = p[i] == ' ' || p[i] == '\t' || p[i] == '\r';
    ek_sha256_add(&s->state, p, n);
    if (s->requests && s->n + n <= EK_BATCH_LINE_MAX) ek_buf_add(&s->line, p, n);
    s->n += n;
}

/* Takes more bytes of the line, without its end. A CR at the end waits for the next bytes. */
static void take(scan *s, const char *p, size_t n)
{
    if (n == 0) return;
    if (s->cr) feed(s, "\r", 1);
    s->cr = p[n - 1] == '\r';
    feed(s, p, n - s->cr);
}

static void take_part(scan *s, const char *p, size_t n)
{
    ek_sha256_add(&s->whole, p, n);
    if (s->at == 0 && n >= 3 && !memcmp(p, "\xEF\xBB\xBF", 3)) {
        s->at = 3, p += 3, n -= 3;
        begin_line(s);
    }
    while (n > 0) {
        const char *end = memchr(p, '\n', n);
        const size_t k = end ? (size_t)(end - p) : n;
        take(s, p, k);
        s->at += k;
        if (!end) return;
        end_line(s);
        s->at++;
        p = end + 1, n -= k + 1;
        begin_line(s);
    }
}

static int by_hash(const void *a, const void *b)
{
    const name *x = a, *y = b;
    const int order = memcmp(x->hash, y->hash, sizeof x->hash);
    return order ? order : (x->line > y->line) - (x->line < y->line);
}

static ek_err check_names(const scan *s)
{
    const name *first = NULL, *second = NULL;
    if (s->n_names > 1) qsort(s->names, s->n_names, sizeof *s->names, by_hash);
    for (size_t i = 1; i < s->n_names; i++) {
        if (memcmp(s->names[i - 1].hash, s->names[i].hash, sizeof s->names->hash) != 0) continue;
        if (!second || s->names[i].line < second->line) first = &s->names[i - 1], second = &s->names[i];
    }
    if (!second) return EK_OK;
    ek_buf line = {0}, quoted = {0};
    ek_batch_line l;
    char id[EK_BATCH_ID];
    ek_err err = ek_batch_input_request(s->in, second->line, &line, &l, id);
    if (!err) {
        ek_json_quote(&quoted, l.name ? l.name : "", l.n_name);
        err = ek_fail(EK_EINVAL, "%s: custom_id %.100s is on line %llu and on line %llu", s->in->path,
                      ek_buf_text(&quoted), (unsigned long long)s->in->lines[first->line].number,
                      (unsigned long long)s->in->lines[second->line].number);
        ek_batch_line_fini(&l);
    }
    ek_buf_fini(&line);
    ek_buf_fini(&quoted);
    return err;
}

static ek_err read_all(scan *s)
{
    char *part = ek_alloc(PART);
    ssize_t n;
    ek_sha256_init(&s->whole);
    begin_line(s);
    while ((n = read(s->in->fd, part, PART)) != 0) {
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) break;
        take_part(s, part, (size_t)n);
    }
    const ek_err err = n < 0 ? ek_file_failed(s->in->path) : EK_OK;
    if (s->at > s->from) end_line(s);
    ek_sha256_end(&s->whole, s->in->sha256);
    s->in->bytes = s->at;
    free(part);
    return err ? err : check_names(s);
}

ek_err ek_batch_input_open(ek_batch_input *in, const char *path, bool requests)
{
    *in = (ek_batch_input){.fd = -1, .path = ek_strdup(path)};
    EK_TRY(ek_file_check(path)); /* lines are read in any order */
    in->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (in->fd < 0) return ek_file_failed(path);
    scan s = {.in = in, .requests = requests};
    const ek_err err = read_all(&s);
    ek_buf_fini(&s.line);
    free(s.names);
    return err;
}

void ek_batch_input_close(ek_batch_input *in)
{
    if (in->path && in->fd >= 0) close(in->fd);
    free(in->path);
    free(in->lines);
    *in = (ek_batch_input){.fd = -1};
}

ek_err ek_batch_input_line(const ek_batch_input *in, size_t i, ek_buf *out)
{
    const ek_batch_entry *e = &in->lines[i];
    ek_buf_clear(out);
    if (!ek_buf_reserve(out, (size_t)e->n + 1))
        return ek_fail(EK_ENOMEM, "%s: line %llu has %llu bytes, more than the system has memory for", in->path,
                       (unsigned long long)e->number, (unsigned long long)e->n);
    while (out->len < e->n) {
        const ssize_t n = pread(in->fd, out->data + out->len, (size_t)e->n - out->len, (off_t)(e->at + out->len));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        out->len += (size_t)n;
    }
    if (out->data) out->data[out->len] = '\0';
    if (out->len == e->n && hash_of(ek_buf_text(out), out->len) == e->hash) return EK_OK;
    return ek_fail(EK_EIO, "%s: line %llu is no longer as it was at the start", in->path,
                   (unsigned long long)e->number);
}

ek_err ek_batch_input_request(const ek_batch_input *in, size_t i, ek_buf *text, ek_batch_line *line,
                              char id[EK_BATCH_ID])
{
    const ek_batch_entry *e = &in->lines[i];
    ek_buf_clear(text);
    if (e->n > EK_BATCH_LINE_MAX) {
        ek_batch_line_too_long(line, e->n);
        char hash[20];
        snprintf(hash, sizeof hash, "%016llx", (unsigned long long)e->hash);
        ek_batch_line_id(id, hash, 16);
        return EK_OK;
    }
    EK_TRY(ek_batch_input_line(in, i, text));
    ek_batch_line_read(line, ek_buf_text(text), text->len);
    ek_batch_line_id(id, ek_buf_text(text), text->len);
    return EK_OK;
}
