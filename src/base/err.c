#include "base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

static _Thread_local char text[1024];

static const int http_status[] = {
#define ERR(name, http) http,
#include "base/err.def"
#undef ERR
};

/* Sentences contain names from files, arguments and requests. These must not break the line or control a terminal. */
static void make_one_line(void)
{
    char was[sizeof text];
    memcpy(was, text, sizeof was);
    ek_plain(text, sizeof text, was, strlen(was));
}

ek_err ek_fail(ek_err code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    make_one_line();
    return code;
}

ek_err ek_fail_in(ek_err code, const char *fmt, ...)
{
    char was[sizeof text];
    memcpy(was, text, sizeof was);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof text)
        snprintf(text + n, sizeof text - (size_t)n, ": %.*s", (int)(sizeof text - (size_t)n - 3), was);
    make_one_line();
    return code;
}

const char *ek_err_text(void)
{
    return text;
}

int ek_err_http(ek_err code)
{
    return (unsigned)code < EK_ERR_COUNT ? http_status[code] : 500;
}

void ek_assert_failed(const char *cond, const char *file, int line)
{
    char words[512];
    int n = snprintf(words, sizeof words, "evenkeel: broken promise at %s:%d: %.300s\n", file, line, cond);
    ek_log_last_words(words, (size_t)n < sizeof words ? (size_t)n : sizeof words - 1);
    abort();
}
