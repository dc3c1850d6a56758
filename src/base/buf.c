#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"

static void reserve(ek_buf *b, size_t more)
{
    if (b->len + more + 1 <= b->cap) return;
    size_t cap = b->cap ? b->cap : 64;
    while (cap < b->len + more + 1) cap *= 2;
    b->data = ek_realloc(b->data, cap);
    b->cap = cap;
}

bool ek_buf_reserve(ek_buf *b, size_t n)
{
    if (b->len + n + 1 <= b->cap) return true;
    char *data = realloc(b->data, b->len + n + 1);
    if (!data) return false;
    data[b->len] = '\0';
    b->data = data;
    b->cap = b->len + n + 1;
    return true;
}

void ek_buf_add(ek_buf *b, const void *bytes, size_t n)
{
    reserve(b, n);
    if (n) memcpy(b->data + b->len, bytes, n);
    b->len += n;
    b->data[b->len] = '\0';
}

void ek_buf_str(ek_buf *b, const char *s)
{
    ek_buf_add(b, s, strlen(s));
}

void ek_buf_char(ek_buf *b, char c)
{
    ek_buf_add(b, &c, 1);
}

void ek_buf_fmt(ek_buf *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    const size_t room = b->cap - b->len; /* this is nearly always enough */
    const int n = vsnprintf(room ? b->data + b->len : NULL, room, fmt, ap);
    va_end(ap);
    EK_ASSERT(n >= 0);
    if ((size_t)n >= room) {
        reserve(b, (size_t)n);
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
    }
    va_end(again);
    b->len += (size_t)n;
}

void ek_buf_clear(ek_buf *b)
{
    b->len = 0;
    if (b->data) b->data[0] = '\0';
}

void ek_buf_fini(ek_buf *b)
{
    free(b->data);
    *b = (ek_buf){0};
}

const char *ek_buf_text(const ek_buf *b)
{
    return b->data ? b->data : "";
}

/* The digits are few[0] '.' few[2 …] 'e' exponent. They read back as x. */
static void put_digits(ek_buf *b, const char *few)
{
    const char *mark = strchr(few, 'e');
    const int exponent = atoi(mark + 1), minus = few[0] == '-';
    char digit[24];
    int n = 0;
    for (const char *c = few + minus; c < mark; c++)
        if (*c != '.') digit[n++] = *c;
    while (n > 1 && digit[n - 1] == '0') n--;
    if (minus) ek_buf_char(b, '-');
    if (exponent < -4 || exponent >= 16) {
        ek_buf_fmt(b, "%c%s%.*se%+03d", digit[0], n > 1 ? "." : "", n - 1, digit + 1, exponent);
        return;
    }
    const int first = exponent > 0 ? exponent : 0, last = exponent - n + 1 < -1 ? exponent - n + 1 : -1;
    for (int power = first; power >= last; power--) {
        const int i = exponent - power;
        if (power == -1) ek_buf_char(b, '.');
        ek_buf_char(b, i >= 0 && i < n ? digit[i] : '0');
    }
}

void ek_buf_float(ek_buf *b, float x)
{
    char few[32];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(few, sizeof few, "%.*e", digits - 1, (double)x);
        if (strtof(few, NULL) == x) break;
    }
    put_digits(b, few);
}

void ek_buf_double(ek_buf *b, double x)
{
    char few[32];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(few, sizeof few, "%.*e", digits - 1, x);
        if (strtod(few, NULL) == x) break;
    }
    put_digits(b, few);
}
