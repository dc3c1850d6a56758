#include "cli/frame/lines.h"
#include "cli/frame/open.h"
#include "text/json/json.h"
#include "text/tokenizer/tokenizer.h"

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
    int status = ek_cli_each(cli, encode, t);
    ek_tokenizer_close(t);
    return status;
}
