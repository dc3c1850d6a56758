#include "serve/sealed.h"

#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char prefix[] = "ek1+";
enum { PREFIX = sizeof prefix - 1 };

void ek_seal(ek_buf *out, const char *text, size_t n)
{
    ek_buf_str(out, prefix);
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)(uint8_t)text[i] << 16;
        if (i + 1 < n) v |= (uint32_t)(uint8_t)text[i + 1] << 8;
        if (i + 2 < n) v |= (uint8_t)text[i + 2];
        ek_buf_char(out, digits[v >> 18]);
        ek_buf_char(out, digits[v >> 12 & 63]);
        ek_buf_char(out, i + 1 < n ? digits[v >> 6 & 63] : '=');
        ek_buf_char(out, i + 2 < n ? digits[v & 63] : '=');
    }
}

static int value_of(char c)
{
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

bool ek_unseal(ek_buf *out, const char *s, size_t n)
{
    if (n < PREFIX || memcmp(s, prefix, PREFIX) != 0 || (n - PREFIX) % 4 != 0) return false;
    size_t before = out->len;
    for (size_t i = PREFIX; i < n; i += 4) {
        bool last = i + 4 == n;
        int pad = last && s[i + 3] == '=' ? s[i + 2] == '=' ? 2 : 1 : 0, v = 0;
        for (int k = 0; k < 4; k++) {
            int d = k >= 4 - pad ? 0 : value_of(s[i + (size_t)k]);
            if (d < 0) {
                out->len = before;
                return false;
            }
            v = v << 6 | d;
        }
        ek_buf_char(out, (char)(v >> 16));
        if (pad < 2) ek_buf_char(out, (char)(v >> 8 & 255));
        if (pad < 1) ek_buf_char(out, (char)(v & 255));
    }
    return true;
}
