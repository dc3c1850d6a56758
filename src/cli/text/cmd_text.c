/* Commands on standard input: render and parse, from a chat request to the prompt's text, and from a model's output to
 * its parts; tokenize and detokenize, text and token ids of a model. */
#define _GNU_SOURCE
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "chat/order.h"
#include "cli/frame/open.h"
#include "text/json/json.h"
#include "text/reply/reply.h"
#include "text/template/chat.h"
#include "text/tokenizer/tokenizer.h"

/* --- standard input: whole, or one JSON value per line --- */

/* Appends one input's result to out. With --jsonl the input is the line's value and the result
 * one line without its end; otherwise it is the raw bytes of standard input, value NULL. */
typedef ek_err line_fn(void *arg, const json_t *value, const ek_buf *raw, ek_buf *out);

enum { MAX_INPUT = 1 << 30, MAX_LINE = 256 << 20 };

static bool print(ek_buf *out)
{
    bool ok = fwrite(ek_buf_text(out), 1, out->len, stdout) == out->len && fflush(stdout) == 0;
    ek_buf_clear(out);
    return ok;
}

static ek_err whole(line_fn *fn, void *arg)
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

static ek_err lines(line_fn *fn, void *arg)
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

/* Runs fn over standard input and prints results as they come. Returns the command's exit status.
 * An error names its line. */
static int each(const ek_cli *cli, line_fn *fn, void *arg)
{
    return (cli->jsonl ? lines(fn, arg) : whole(fn, arg)) == EK_OK ? 0 : ek_cli_failed(cli);
}

/* --- render and parse --- */

/* Follows the template, except that results with the same id answer calls in turn, as in the server. */
static ek_err render_request(ek_prompt *p, const json_t *request)
{
    json_t *apart = ek_same_ids_apart(request);
    const ek_err e = ek_chat_render_request(p, apart ? apart : request, EK_CHAT_LARGE);
    json_decref(apart);
    return e;
}

/* With --jsonl, an error about one conversation is an answer like any other. */
static ek_err render_line(const json_t *request, ek_buf *out)
{
    ek_prompt p = {0};
    if (render_request(&p, request) == EK_OK) {
        ek_json_quote(out, ek_buf_text(&p.text), p.text.len);
    } else {
        ek_buf_str(out, "{\"error\":");
        ek_json_quote(out, ek_err_text(), strlen(ek_err_text()));
        ek_buf_char(out, '}');
    }
    ek_prompt_fini(&p);
    return EK_OK;
}

static ek_err render(void *arg, const json_t *value, const ek_buf *raw, ek_buf *out)
{
    (void)arg;
    if (value) return render_line(value, out);
    json_t *request;
    ek_prompt p = {0};
    ek_err e = ek_json_read(&request, ek_buf_text(raw), raw->len, 0);
    if (e == EK_OK) e = render_request(&p, request);
    if (e == EK_OK) ek_buf_add(out, ek_buf_text(&p.text), p.text.len);
    ek_prompt_fini(&p);
    json_decref(request);
    return e;
}

int ek_cmd_render(const ek_cli *cli)
{
    return each(cli, render, NULL);
}

static ek_err parse(void *arg, const json_t *value, const ek_buf *raw, ek_buf *out)
{
    (void)arg;
    size_t n = raw ? raw->len : 0;
    const char *text = raw ? ek_buf_text(raw) : ek_json_get_text(value, "text", &n);
    if (!text) return ek_fail(EK_EINVAL, "expected an object with a text, e.g. {\"text\":\"Hello\"}");
    ek_answer answer = {0};
    /* The prompt is not known here, so tools may be called, and a thought may start without its marker. */
    ek_reply_opts opts = {.tools_active = true, .lenient_start = true, .sink = ek_reply_collect, .arg = &answer};
    ek_reply *r = ek_reply_open(NULL, &opts);
    ek_reply_feed_text(r, text, n);
    ek_reply_end(r, false);
    ek_reply_close(r);
    json_t *v = ek_answer_json(&answer);
    ek_json_write(out, v);
    json_decref(v);
    ek_answer_fini(&answer);
    if (raw) ek_buf_char(out, '\n');
    return EK_OK;
}

int ek_cmd_parse(const ek_cli *cli)
{
    return each(cli, parse, NULL);
}

/* --- tokenize and detokenize --- */

static ek_err encode(void *arg, const json_t *value, const ek_buf *raw, ek_buf *out)
{
    if (value && !ek_json_is_text(value)) return ek_fail(EK_EINVAL, "expected a JSON string, e.g. \"Hello\"");
    const char *text = value ? json_string_value(value) : ek_buf_text(raw);
    size_t n = value ? json_string_length(value) : raw->len;
    ek_ids ids = {0};
    ek_err e = ek_encode(arg, text, n, NULL, EK_CONTROL_ALL, &ids);
    if (value) ek_buf_char(out, '[');
    for (size_t i = 0; i < ids.len; i++) ek_buf_fmt(out, "%s%d", i == 0 ? "" : value ? "," : " ", ids.data[i]);
    ek_buf_char(out, value ? ']' : '\n');
    ek_ids_fini(&ids);
    return e;
}

int ek_cmd_tokenize(const ek_cli *cli)
{
    ek_tokenizer *t;
    if (ek_cli_open_tokenizer(cli, &t)) return ek_cli_failed(cli);
    int status = each(cli, encode, t);
    ek_tokenizer_close(t);
    return status;
}

typedef struct decoder {
    ek_tokenizer *t;
    bool skip_special;
} decoder;

static ek_err add(decoder *d, ek_ids *ids, long long id)
{
    if (id < 0 || id >= ek_tokenizer_size(d->t))
        return ek_fail(EK_EINVAL, "token id %lld, this model's go from 0 to %d", id, ek_tokenizer_size(d->t) - 1);
    ek_ids_add(ids, (int32_t)id);
    return EK_OK;
}

static ek_err from_json(decoder *d, ek_ids *ids, const json_t *list)
{
    if (!json_is_array(list)) return ek_fail(EK_EINVAL, "expected a JSON array of token ids, e.g. [2,105]");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v)) return ek_fail(EK_EINVAL, "element %zu is not a token id", i);
        EK_TRY(add(d, ids, json_integer_value(v)));
    }
    return EK_OK;
}

static ek_err from_text(decoder *d, ek_ids *ids, const ek_buf *raw)
{
    static const char between[] = " \n\t\r,";
    const char *s = ek_buf_text(raw), *all = s + raw->len;
    for (;;) {
        s += strspn(s, between);
        if (s == all) return EK_OK;
        size_t n = strcspn(s, between);
        char *end;
        errno = 0;
        long long id = strtoll(s, &end, 10);
        if (n == 0 || end != s + n || *s == '+' || errno)
            return ek_fail(EK_EINVAL, "'%.*s' is not a token id", n < 20 ? (int)n : 20, s);
        EK_TRY(add(d, ids, id));
        s = end;
    }
}

static ek_err decode(void *arg, const json_t *value, const ek_buf *raw, ek_buf *out)
{
    decoder *d = arg;
    ek_ids ids = {0};
    ek_buf text = {0};
    ek_err e = value ? from_json(d, &ids, value) : from_text(d, &ids, raw);
    if (e == EK_OK) {
        ek_decode(d->t, ids.data, ids.len, d->skip_special, &text);
        if (value) ek_json_quote(out, ek_buf_text(&text), text.len);
        else ek_buf_add(out, ek_buf_text(&text), text.len);
    }
    ek_ids_fini(&ids);
    ek_buf_fini(&text);
    return e;
}

int ek_cmd_detokenize(const ek_cli *cli)
{
    decoder d = {.skip_special = cli->skip_special};
    if (ek_cli_open_tokenizer(cli, &d.t)) return ek_cli_failed(cli);
    int status = each(cli, decode, &d);
    ek_tokenizer_close(d.t);
    return status;
}
