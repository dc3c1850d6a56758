#define _GNU_SOURCE /* memmem */
#include "serve/http/multipart.h"

#include <string.h>
#include <strings.h>

static bool boundary_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (c != '\0' && strchr("'()+_,-./:=? ", c) != NULL);
}

/* The end of "--BOUNDARY" at the beginning of a line; NULL: none. Blanks after it are ignored. */
static const char *end_of_boundary(const char *line, size_t n, const char **next_line)
{
    const size_t max = n < EK_FORM_MAX_BOUNDARY + 4 ? n : EK_FORM_MAX_BOUNDARY + 4;
    const char *end = n >= 2 && line[0] == '-' && line[1] == '-' ? memmem(line, max, "\r\n", 2) : NULL;
    if (!end) return NULL;
    *next_line = end + 2;
    while (end > line + 2 && (end[-1] == ' ' || end[-1] == '\t')) end--;
    for (const char *c = line + 2; c < end; c++)
        if (!boundary_char(*c)) return NULL;
    return end > line + 2 ? end : NULL;
}

static bool begins_head(const char *line, const char *end)
{
    static const char content[] = "content-";
    return (size_t)(end - line) >= sizeof content - 1 && !strncasecmp(line, content, sizeof content - 1);
}

/* RFC 2046 allows ignored lines before the first boundary. If a line that may be the boundary is not the body's first,
 * the next line must begin a part's head. */
const char *ek_form_begin(ek_form *f, const char *body, size_t n)
{
    const char *end = body + n, *next = NULL;
    *f = (ek_form){0};
    for (const char *line = body; line && line < end;) {
        const char *stop = end_of_boundary(line, (size_t)(end - line), &next);
        if (stop && (line == body || begins_head(next, end))) {
            *f = (ek_form){.at = next, .end = end, .boundary = line, .n_boundary = (size_t)(stop - line)};
            return NULL;
        }
        line = memmem(line, (size_t)(end - line), "\r\n", 2);
        if (line) line += 2;
    }
    return "the body must be multipart/form-data";
}

/* The value of NAME="VALUE" or NAME=VALUE among the parameters of a line. */
static bool parameter(const char *line, const char *end, const char *name, const char **value, size_t *n)
{
    const size_t len = strlen(name);
    bool quoted = false;
    for (const char *c = line; c < end; c++) {
        if (quoted) {
            if (*c == '\\' && c + 1 < end) c++;
            else if (*c == '"') quoted = false;
            continue;
        }
        if (*c == '"') quoted = true;
        if (*c != ';') continue;
        const char *key = c + 1;
        while (key < end && (*key == ' ' || *key == '\t')) key++;
        if ((size_t)(end - key) <= len || strncasecmp(key, name, len) != 0 || key[len] != '=') continue;
        const char *v = key + len + 1, *last = v;
        if (v < end && *v == '"') {
            for (last = ++v; last < end && *last != '"'; last++)
                if (*last == '\\' && last + 1 < end) last++;
            if (last >= end) return false;
        } else {
            while (last < end && *last != ';' && *last != ' ' && *last != '\t') last++;
        }
        *value = v, *n = (size_t)(last - v);
        return true;
    }
    return false;
}

/* Reads the lines before a part's data; *data points behind them. */
static const char *read_head(ek_form_part *p, const char *at, const char *end, const char **data)
{
    static const char disposition[] = "content-disposition:";
    const size_t n = sizeof disposition - 1;
    for (;;) {
        const char *line_end = memmem(at, (size_t)(end - at), "\r\n", 2);
        if (!line_end) return "the body has a part whose head does not end within 8192 bytes";
        if (line_end == at) break;
        if ((size_t)(line_end - at) > n && strncasecmp(at, disposition, n) == 0) {
            if (!parameter(at + n, line_end, "name", &p->name, &p->n_name)) return "the body has a part without a name";
            if (!parameter(at + n, line_end, "filename", &p->file_name, &p->n_file_name)) p->file_name = NULL;
        }
        at = line_end + 2;
    }
    *data = at + 2;
    return p->name ? NULL : "the body has a part without a name";
}

/* "\r\n--BOUNDARY" from `at` on; NULL if there is none. A line that only begins so also ends the part, as in RFC 2046,
 * because boundaries do not occur in the data. */
static const char *find_boundary(const ek_form *f, const char *at)
{
    char line[EK_FORM_MAX_BOUNDARY + 6] = "\r\n";
    memcpy(line + 2, f->boundary, f->n_boundary);
    return memmem(at, (size_t)(f->end - at), line, f->n_boundary + 2);
}

const char *ek_form_next(ek_form *f, ek_form_part *out)
{
    static const char cut[] = "the body ends before its last boundary";
    const char *head_end = f->end - f->at > EK_FORM_MAX_HEAD ? f->at + EK_FORM_MAX_HEAD : f->end;
    *out = (ek_form_part){0};
    if (f->done) return NULL;
    if (++f->n_parts > EK_FORM_MAX_PARTS) return "the body has more than 64 parts";
    const char *why = read_head(out, f->at, head_end, &out->data);
    if (why) return why;
    /* For empty data the line end before the boundary is the one that ended the head. */
    const char *last = find_boundary(f, out->data - 2);
    if (!last) return cut;
    out->n = last > out->data ? (size_t)(last - out->data) : 0;
    const char *at = last + 2 + f->n_boundary;
    if (f->end - at >= 2 && at[0] == '-' && at[1] == '-') {
        f->done = true;
        f->at = f->end;
        return NULL;
    }
    while (at < f->end && (*at == ' ' || *at == '\t')) at++;
    if (f->end - at < 2 || at[0] != '\r' || at[1] != '\n') return cut;
    f->at = at + 2;
    return NULL;
}

bool ek_form_is(const ek_form_part *p, const char *name)
{
    return p->n_name == strlen(name) && memcmp(p->name, name, p->n_name) == 0;
}
