#include "serve/routes.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "text/json/json.h"

enum { MAX_REASON = 600 }; /* maximum bytes of a sentence in the log */

void ek_reply_json(ek_exchange *x, int status, const ek_buf *body)
{
    ek_exchange_reply(x, status, "application/json", ek_buf_text(body), body->len);
}

/* Allows a burst of lines, then a fixed number per second. */
static bool may_log(uint64_t *suppressed)
{
    enum { BURST = 50, PER_SECOND = 10 };
    static double left = BURST, last;
    static uint64_t dropped;
    double now = ek_now();
    left += (now - last) * PER_SECOND;
    if (left > BURST) left = BURST;
    last = now;
    if (left < 1) {
        dropped++;
        return false;
    }
    left--;
    *suppressed = dropped;
    dropped = 0;
    return true;
}

void ek_log_refusal(const ek_exchange *x, const char *path, int status, const char *text)
{
    uint64_t suppressed = 0;
    if (!may_log(&suppressed)) return;
    if (suppressed) ek_log(EK_LOG_INFO, "event=refused_suppressed lines=%llu", (unsigned long long)suppressed);
    char clean[100];
    size_t n = 0;
    for (; path[n] && n + 1 < sizeof clean; n++)
        clean[n] = path[n] > ' ' && path[n] < 0x7F && path[n] != '"' && path[n] != '\\' ? path[n] : '?';
    clean[n] = '\0';
    ek_buf reason = {0};
    size_t len = text ? strnlen(text, MAX_REASON) : 0;
    while (len == MAX_REASON && ((uint8_t)text[len] & 0xc0) == 0x80) len--;
    if (text) ek_json_escape(&reason, text, len);
    const char *id = x ? ek_exchange_header_of(x, "x-request-id") : NULL;
    const char *parent = x ? ek_exchange_find(x, "traceparent") : NULL;
    char trace[EK_HTTP_TRACE];
    const bool traced = parent && ek_http_trace(trace, parent);
    ek_log(EK_LOG_INFO, "event=refused request=%s%s%s status=%d path=\"%s\" reason=\"%s\"", id ? id : "-",
           traced ? " trace=" : "", traced ? trace : "", status, clean, ek_buf_text(&reason));
    ek_buf_fini(&reason);
}

void ek_reply_error(ek_exchange *x, const ek_dialect *d, int status, const char *text, const char *param,
                    const char *code)
{
    ek_buf b = {0};
    d->error(&b, status, text, param, code);
    ek_log_refusal(x, ek_exchange_path(x), status, text);
    if (status == 429) ek_exchange_header(x, "retry-after", "1");
    if (status == 503) ek_exchange_header(x, "retry-after", "5");
    ek_reply_json(x, status, &b);
    ek_buf_fini(&b);
}

void ek_reply_failure(ek_exchange *x, const ek_dialect *d, ek_err err, const char *param, const char *own)
{
    ek_reply_error(x, d, ek_err_http(err), ek_err_text(), param, own ? own : ek_api_error_code(err, param));
}
