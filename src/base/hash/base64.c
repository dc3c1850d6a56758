#include "base/hash/base64.h"

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

bool ek_base64_decode(ek_buf *out, const char *s, size_t n)
{
    if (!ek_buf_reserve(out, n / 4 * 3 + 3)) return false;
    char *at = out->data + out->len;
    uint32_t v = 0;
    int bits = 0, pad = 0;
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        int d = value_of(s[i]);
        if (s[i] == '\n' || s[i] == '\r') continue;
        if (s[i] == '=') {
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
    /* A single digit beyond the last group is no byte; what padding there is must complete the group. */
    ok = ok && bits < 6 && (pad == 0 || pad * 2 == bits);
    if (ok) out->len = (size_t)(at - out->data);
    out->data[out->len] = '\0';
    return ok;
}
