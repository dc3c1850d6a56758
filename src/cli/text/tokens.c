/* tokenize and detokenize: text and token ids of a model. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/text/lines.h"
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
    int status = ek_cli_each(cli, decode, &d);
    ek_tokenizer_close(d.t);
    return status;
}
