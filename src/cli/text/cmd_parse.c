#include "cli/frame/lines.h"
#include "text/json/json.h"
#include "text/reply/reply.h"

static ek_err parse(void *arg, const json_t *value, const ek_buf *raw, ek_buf *out)
{
    (void)arg;
    size_t n = raw ? raw->len : 0;
    const char *text = raw ? ek_buf_text(raw) : ek_json_get_text(value, "text", &n);
    if (!text) return ek_fail(EK_EINVAL, "expected an object with a text, e.g. {\"text\":\"Hello\"}");
    ek_answer answer = {0};
    /* The prompt is not known here: tools may be called, and a thought may start without its
     * marker. */
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
