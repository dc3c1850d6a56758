/* render and parse: from a chat request to the prompt's text, and from a model's output to its parts. */
#include <string.h>

#include "chat/order.h"
#include "cli/text/lines.h"
#include "text/json/json.h"
#include "text/reply/reply.h"
#include "text/template/chat.h"

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
    return ek_cli_each(cli, render, NULL);
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
    return ek_cli_each(cli, parse, NULL);
}
