/* A tokenizer.json from bytes, and text for a good one. Properties: an accepted tokenizer gives
 * ids of its own only, and cut at an added token the same ids; the good one gives the text back; ids that are counted
 * in pieces, where that is exact, are as many. */
#include <stdlib.h>
#include <string.h>

#include "text/json/json.h"
#include "text/tokenizer/tokenizer.h"
#include "text/utf8.h"

static const char sample[] = "a \xE2\x96\x81\n<|turn>ab<0x41>\xF0\x9F\x9A\x80\xFF"
                             "abab  x [M] ";

static void check_ids(const ek_tokenizer *t, const char *s, size_t n, size_t n_control)
{
    ek_ids ids = {0};
    ek_buf b = {0};
    if (ek_encode(t, s, n, NULL, n_control, &ids) != EK_OK) __builtin_trap();
    for (size_t i = 0; i < ids.len; i++) {
        size_t len;
        if (ids.data[i] < 0 || ids.data[i] >= ek_tokenizer_size(t)) __builtin_trap();
        ek_tokenizer_bytes(t, ids.data[i], &len);
    }
    ek_decode(t, ids.data, ids.len, false, &b);
    if (!ek_utf8_valid(ek_buf_text(&b), b.len)) __builtin_trap();
    ek_ids_fini(&ids);
    ek_buf_fini(&b);
}

static void check_count(const ek_tokenizer *t, const char *s, size_t n, size_t n_control)
{
    ek_ids ids = {0};
    if (ek_encode(t, s, n, NULL, n_control, &ids) != EK_OK) __builtin_trap();
    for (size_t piece = 1; piece < 8; piece++) {
        ek_count c = {.piece = piece};
        ek_encode_count(t, s, n, NULL, n_control, &c);
        if (c.bytes != n || (c.exact && c.ids != ids.len)) __builtin_trap();
    }
    ek_ids_fini(&ids);
}

static ek_tokenizer *good(void)
{
    static ek_tokenizer *t;
    if (t) return t;
    ek_buf b = {0};
    ek_buf_str(
        &b,
        "{\"added_tokens\":[{\"id\":0,\"content\":\"<|turn>\",\"special\":true},{\"id\":1,\"content\":\"[M]\",\"special\":false}],"
        "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xE2\x96\x81\"},\"decoder\":{\"type\":\"Sequence\",\"decoders\":"
        "[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xE2\x96\x81\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]},"
        "\"model\":{\"byte_fallback\":true,\"vocab\":{\"a\":2,\"b\":3,\"\xE2\x96\x81\":4,\"\\n\":5,\"ab\":6,\"aba\":7,\"\xE2\x96\x81\xE2\x96\x81\":8,\"\\n\\n\":9");
    for (int i = 0; i < 256; i++) ek_buf_fmt(&b, ",\"<0x%02X>\":%d", i, 10 + i);
    ek_buf_str(&b, "},\"merges\":[\"\\n \\n\",[\"\xE2\x96\x81\",\"\xE2\x96\x81\"],\"a b\",[\"ab\",\"a\"]]}}");
    if (ek_tokenizer_parse(&t, b.data, b.len) != EK_OK) __builtin_trap();
    ek_buf_fini(&b);
    return t;
}

static void check_text(const char *s, size_t n)
{
    const ek_tokenizer *t = good();
    ek_buf clean = {0}, spaced = {0}, back = {0};
    ek_utf8_clean(&clean, s, n);
    for (size_t i = 0; i < clean.len; i++) /* what encoding cannot tell from a space */
        if (clean.len - i >= 3 && memcmp(clean.data + i, "\xE2\x96\x81", 3) == 0) {
            ek_buf_char(&spaced, ' ');
            i += 2;
        } else {
            ek_buf_char(&spaced, clean.data[i]);
        }
    for (int all = 0; all < 2; all++) {
        ek_ids ids = {0};
        if (ek_encode(t, s, n, NULL, all ? EK_CONTROL_ALL : 0, &ids) != EK_OK) __builtin_trap();
        ek_buf_clear(&back);
        ek_decode(t, ids.data, ids.len, false, &back);
        if (back.len != spaced.len || (back.len && memcmp(back.data, spaced.data, back.len) != 0)) __builtin_trap();
        ek_ids_fini(&ids);
        check_count(t, s, n, all ? EK_CONTROL_ALL : 0);
    }
    ek_buf_fini(&clean);
    ek_buf_fini(&spaced);
    ek_buf_fini(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *s = (const char *)data;
    check_text(s, n);
    ek_tokenizer *t;
    if (ek_tokenizer_parse(&t, s, n) != EK_OK) {
        if (t || strchr(ek_err_text(), '\n')) __builtin_trap();
        return 0;
    }
    check_ids(t, sample, sizeof sample - 1, EK_CONTROL_ALL);
    check_ids(t, sample, sizeof sample - 1, 0);
    check_ids(t, s, n < 500 ? n : 500, EK_CONTROL_ALL);
    ek_tokenizer_close(t);
    return 0;
}
