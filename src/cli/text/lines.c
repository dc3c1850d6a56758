#define _GNU_SOURCE
#include "cli/text/lines.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "text/json/json.h"

enum { MAX_INPUT = 1 << 30, MAX_LINE = 256 << 20 };

static bool print(ek_buf *out)
{
    bool ok = fwrite(ek_buf_text(out), 1, out->len, stdout) == out->len && fflush(stdout) == 0;
    ek_buf_clear(out);
    return ok;
}

static ek_err whole(ek_line_fn *fn, void *arg)
{
    ek_buf in = {0}, out = {0};
    ek_err e = ek_fd_read(&in, 0, MAX_INPUT);
    if (e != EK_OK) e = ek_fail_in(e, "standard input");
    if (e == EK_OK) e = fn(arg, NULL, &in, &out);
    if (e == EK_OK && !print(&out)) e = ek_fail(EK_EIO, "standard output could not be written");
    ek_buf_fini(&in);
    ek_buf_fini(&out);
    return e;
}

static bool blank(const char *s, ssize_t n)
{
    for (ssize_t i = 0; i < n; i++)
        if (s[i] != ' ' && s[i] != '\t' && s[i] != '\r' && s[i] != '\n') return false;
    return true;
}

/* Reads the next line of standard input, without its newline. False at the end of the input, or after an error. */
static bool next_line(ek_buf *line, long number, ek_err *e)
{
    int c;
    ek_buf_clear(line);
    while ((c = getc_unlocked(stdin)) != EOF && c != '\n') {
        if (line->len == MAX_LINE) {
            *e = ek_fail(EK_ETOOLARGE, "standard input: line %ld has more than %d bytes", number, (int)MAX_LINE);
            return false;
        }
        ek_buf_char(line, (char)c);
    }
    if (ferror(stdin)) *e = ek_fail(EK_EIO, "standard input: %s", strerror(errno));
    return !*e && (c == '\n' || line->len > 0);
}

static ek_err lines(ek_line_fn *fn, void *arg)
{
    ek_buf line = {0}, out = {0};
    ek_err e = EK_OK;
    for (long number = 1; e == EK_OK && next_line(&line, number, &e); number++) {
        if (blank(ek_buf_text(&line), (ssize_t)line.len)) continue;
        json_t *value;
        e = ek_json_read(&value, ek_buf_text(&line), line.len, 0);
        if (e == EK_OK) e = fn(arg, value, NULL, &out);
        json_decref(value);
        if (e != EK_OK) {
            e = ek_fail_in(e, "line %ld", number);
            break;
        }
        ek_buf_char(&out, '\n');
        if (!print(&out)) e = ek_fail(EK_EIO, "standard output could not be written");
    }
    ek_buf_fini(&line);
    ek_buf_fini(&out);
    return e;
}

int ek_cli_each(const ek_cli *cli, ek_line_fn *fn, void *arg)
{
    return (cli->jsonl ? lines(fn, arg) : whole(fn, arg)) == EK_OK ? 0 : ek_cli_failed(cli);
}
