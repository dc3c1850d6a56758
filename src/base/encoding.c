#include "base/encoding.h"

void ek_hex(char *out, const void *bytes, size_t n)
{
    static const char digit[] = "0123456789abcdef";
    const uint8_t *p = bytes;
    for (size_t i = 0; i < n; i++) *out++ = digit[p[i] >> 4], *out++ = digit[p[i] & 15];
    *out = '\0';
}

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void ek_base64_encode(ek_buf *out, const void *bytes, size_t n)
{
    const uint8_t *s = bytes;
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)s[i] << 16;
        if (i + 1 < n) v |= (uint32_t)s[i + 1] << 8;
        if (i + 2 < n) v |= s[i + 2];
        ek_buf_char(out, digits[v >> 18]);
        ek_buf_char(out, digits[v >> 12 & 63]);
        ek_buf_char(out, i + 1 < n ? digits[v >> 6 & 63] : '=');
        ek_buf_char(out, i + 2 < n ? digits[v & 63] : '=');
    }
}

static int value_of(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r' && c != '\v');
}

/* Reads the character at *i and moves *i to its last byte. escaped: the character may be written as %2B. */
static char next(const char *s, size_t n, size_t *i, bool escaped)
{
    const int byte = escaped && s[*i] == '%' ? ek_hex_byte(s + *i + 1, n - *i - 1) : -1;
    if (byte < 0) return s[*i];
    *i += 2;
    return (char)byte;
}

size_t ek_base64_bytes(const char *s, size_t n, bool escaped)
{
    size_t n_digits = 0;
    for (size_t i = 0; i < n; i++) n_digits += !is_blank(next(s, n, &i, escaped));
    return n_digits / 4 * 3 + 3;
}

static bool decode(ek_buf *out, const char *s, size_t n, bool escaped)
{
    if (!ek_buf_reserve(out, ek_base64_bytes(s, n, escaped))) return false;
    char *at = out->data + out->len;
    uint32_t v = 0;
    int bits = 0, pad = 0;
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        const char c = next(s, n, &i, escaped);
        const int d = value_of(c);
        if (is_blank(c)) continue;
        if (c == '=') {
            ok = ++pad <= 2;
            continue;
        }
        ok = d >= 0 && pad == 0;
        v = v << 6 | (uint32_t)(d & 63);
        bits += 6;
        if (bits < 8) continue;
        bits -= 8;
        *at++ = (char)(v >> bits & 255);
    }
    /* A single digit after the last group is not a byte. Padding has to complete the group. */
    ok = ok && bits < 6 && (pad == 0 || pad * 2 == bits);
    if (ok) out->len = (size_t)(at - out->data);
    out->data[out->len] = '\0';
    return ok;
}

bool ek_base64_decode(ek_buf *out, const char *s, size_t n)
{
    return decode(out, s, n, false);
}

bool ek_base64_decode_escaped(ek_buf *out, const char *s, size_t n)
{
    return decode(out, s, n, true);
}
