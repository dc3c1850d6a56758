#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/json/json.h"
#include "text/utf8.h"

void ek_json_escape(ek_buf *out, const char *s, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    size_t from = 0;
    for (size_t i = 0; i < n; i++) {
        uint8_t c = (uint8_t)s[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        ek_utf8_clean(out, s + from, i - from);
        from = i + 1;
        ek_buf_char(out, '\\');
        switch (c) {
        case '"':
        case '\\': ek_buf_char(out, (char)c); break;
        case '\b': ek_buf_char(out, 'b'); break;
        case '\f': ek_buf_char(out, 'f'); break;
        case '\n': ek_buf_char(out, 'n'); break;
        case '\r': ek_buf_char(out, 'r'); break;
        case '\t': ek_buf_char(out, 't'); break;
        default:
            ek_buf_add(out, "u00", 3);
            ek_buf_char(out, hex[c >> 4]);
            ek_buf_char(out, hex[c & 15]);
        }
    }
    ek_utf8_clean(out, s + from, n - from);
}

void ek_json_quote(ek_buf *out, const char *s, size_t n)
{
    ek_buf_char(out, '"');
    ek_json_escape(out, s, n);
    ek_buf_char(out, '"');
}

void ek_json_double(ek_buf *out, double x)
{
    if (isnan(x) || isinf(x)) {
        ek_buf_str(out, isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
        return;
    }
    char e[40], digits[24];
    int places = 0;
    do snprintf(e, sizeof e, "%.*e", places, x);
    while (strtod(e, NULL) != x && ++places < 17);
    /* Splits "-d.ddde±XX" into the digits and the position of the point among them. */
    const char *p = e;
    if (*p == '-') ek_buf_char(out, *p++);
    int n = 0;
    for (; *p != 'e'; p++)
        if (*p != '.') digits[n++] = *p;
    int point = atoi(p + 1) + 1;
    while (n > 1 && digits[n - 1] == '0') n--;
    if (point > -4 && point <= 16) {
        if (point <= 0) {
            ek_buf_str(out, "0.");
            for (int i = point; i < 0; i++) ek_buf_char(out, '0');
            ek_buf_add(out, digits, (size_t)n);
            return;
        }
        for (int i = 0; i < point || i < n; i++) {
            if (i == point) ek_buf_char(out, '.');
            ek_buf_char(out, i < n ? digits[i] : '0');
        }
        if (n <= point) ek_buf_str(out, ".0");
        return;
    }
    ek_buf_char(out, digits[0]);
    if (n > 1) ek_buf_char(out, '.');
    ek_buf_add(out, digits + 1, (size_t)n - 1);
    ek_buf_fmt(out, "e%c%02d", point - 1 < 0 ? '-' : '+', abs(point - 1));
}

void ek_json_write(ek_buf *out, const json_t *v)
{
    const char *odd = ek_json_odd_number(v);
    if (odd) {
        const char *inf = strstr(odd, "inf");
        if (strcmp(odd, "nan") == 0) ek_buf_str(out, "null");
        else if (inf) ek_buf_str(out, odd[0] == '-' ? "-1e999" : "1e999");
        else ek_buf_str(out, odd);
    } else if (json_is_string(v)) {
        ek_json_quote(out, json_string_value(v), json_string_length(v));
    } else if (json_is_integer(v)) {
        ek_buf_fmt(out, "%lld", (long long)json_integer_value(v));
    } else if (json_is_real(v)) {
        ek_json_double(out, json_real_value(v));
    } else if (json_is_array(v)) {
        ek_buf_char(out, '[');
        for (size_t i = 0; i < json_array_size(v); i++) {
            if (i) ek_buf_char(out, ',');
            ek_json_write(out, json_array_get(v, i));
        }
        ek_buf_char(out, ']');
    } else if (json_is_object(v)) {
        json_t *o = (json_t *)v; /* jansson iterates without changing it */
        ek_buf_char(out, '{');
        for (void *i = json_object_iter(o), *first = i; i; i = json_object_iter_next(o, i)) {
            if (i != first) ek_buf_char(out, ',');
            ek_json_quote(out, json_object_iter_key(i), json_object_iter_key_len(i));
            ek_buf_char(out, ':');
            ek_json_write(out, json_object_iter_value(i));
        }
        ek_buf_char(out, '}');
    } else {
        ek_buf_str(out, json_is_true(v) ? "true" : json_is_false(v) ? "false" : "null");
    }
}
