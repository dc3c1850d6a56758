#define _GNU_SOURCE
#include "cli/frame/lines.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "text/json/json.h"

enum { MAX_INPUT = 1 << 30 };

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

static ek_err lines(ek_line_fn *fn, void *arg)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    ek_buf out = {0};
    ek_err e = EK_OK;
    for (long number = 1; e == EK_OK && (n = getline(&line, &room, stdin)) >= 0; number++) {
        if (blank(line, n)) continue;
        json_t *value;
        e = ek_json_read(&value, line, (size_t)n, 0);
        if (e == EK_OK) e = fn(arg, value, NULL, &out);
        json_decref(value);
        if (e != EK_OK) {
            e = ek_fail_in(e, "line %ld", number);
            break;
        }
        ek_buf_char(&out, '\n');
        if (!print(&out)) e = ek_fail(EK_EIO, "standard output could not be written");
    }
    if (e == EK_OK && ferror(stdin)) e = ek_fail(EK_EIO, "standard input: %s", strerror(errno));
    free(line);
    ek_buf_fini(&out);
    return e;
}

int ek_cli_each(const ek_cli *cli, ek_line_fn *fn, void *arg)
{
    return (cli->jsonl ? lines(fn, arg) : whole(fn, arg)) == EK_OK ? 0 : ek_cli_failed(cli);
}
