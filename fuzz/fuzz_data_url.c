/* data: URLs from bytes, and base64. Properties: what is found lies in the bytes, behind one another, and its parts
 * written again are the same URL; what stands behind the comma decides nothing; base64 that is taken gives, written and
 * read again, the same bytes, three for four digits. */
#include <stdint.h>
#include <string.h>

#include "base/encoding.h"
#include "serve/api/media.h"

static void check_base64(const char *s, size_t n)
{
    ek_buf bytes = {0}, digits = {0}, again = {0};
    if (ek_base64_decode(&bytes, s, n)) {
        if (bytes.len > n / 4 * 3 + 2) __builtin_trap();
        ek_base64_encode(&digits, ek_buf_text(&bytes), bytes.len);
        if (!ek_base64_decode(&again, ek_buf_text(&digits), digits.len) || again.len != bytes.len) __builtin_trap();
        if (bytes.len && memcmp(again.data, bytes.data, bytes.len) != 0) __builtin_trap();
    } else if (bytes.len != 0) {
        __builtin_trap();
    }
    ek_buf_fini(&bytes);
    ek_buf_fini(&digits);
    ek_buf_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *s = (const char *)data;
    ek_data_url u, other;
    const char *why = ek_data_url_parse(&u, s, n);
    check_base64(s, n);
    if (why) return 0;
    ek_url_trim(&s, &n);
    if (u.type < s + 5 || u.data <= u.type || u.data[-1] != ',') __builtin_trap();
    if (u.data + u.n_data != s + n || u.type + u.n_type >= u.data) __builtin_trap();
    if (memchr(u.type, ',', u.n_type) || memchr(u.type, ';', u.n_type)) __builtin_trap();
    size_t head = (size_t)(u.data - s);
    if (ek_data_url_parse(&other, s, head) || other.n_type != u.n_type || other.base64 != u.base64 || other.n_data != 0)
        __builtin_trap();
    check_base64(u.data, u.n_data);
    ek_buf bytes = {0};
    if (ek_data_url_decode(&bytes, &u) ? bytes.len > ek_data_url_bytes(&u) : bytes.len != 0) __builtin_trap();
    ek_buf_fini(&bytes);
    return 0;
}
