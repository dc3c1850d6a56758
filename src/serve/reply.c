#include "serve/reply.h"

void ek_reply_json(ek_exchange *x, int status, const ek_buf *body)
{
    ek_exchange_reply(x, status, "application/json", ek_buf_text(body), body->len);
}

void ek_reply_error(ek_exchange *x, const ek_dialect *d, int status, const char *text, const char *param,
                    const char *code)
{
    ek_buf b = {0};
    d->error(&b, status, text, param, code);
    if (status == 429) ek_exchange_header(x, "retry-after", "1");
    if (status == 503) ek_exchange_header(x, "retry-after", "5");
    ek_reply_json(x, status, &b);
    ek_buf_fini(&b);
}

void ek_reply_failure(ek_exchange *x, const ek_dialect *d, ek_err err, const char *param)
{
    const char *code = err == EK_ETOOLONG ? "context_length_exceeded" : NULL;
    ek_reply_error(x, d, ek_err_http(err), ek_err_text(), param, code);
}
