/* Where pages are shared: a URL that is read comes out of its own text again, and one that is not shows no password.
 * What lies under a page's key: only the record that was written for this page is read, whatever bytes there are. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "cache/shared/shared.h"
#include "cache/shared/link.h"

static void put_escaped(ek_buf *b, const char *text)
{
    for (; text && *text; text++) ek_buf_fmt(b, "%%%02x", (unsigned char)*text);
}

static void check_url(const char *text)
{
    ek_shared_url u, again;
    char shown[EK_SHARED_TEXT];
    if (ek_shared_url_parse(&u, text)) {
        const char *at = strrchr(text, '@'), *why = ek_err_text();
        if (u.host || u.user || u.password || !*why || strchr(why, '\n')) __builtin_trap();
        if (at && at - text > 16 && strstr(why, text)) __builtin_trap();
        return;
    }
    if (!u.host || !*u.host || u.port < 1 || u.port > 65535 || u.db < 0 || (u.user && !u.password)) __builtin_trap();
    ek_buf b = {0};
    const char *bare = strstr(ek_shared_url_text(&u, shown), "://") + 3;
    ek_buf_str(&b, u.tls ? "rediss://" : "redis://");
    put_escaped(&b, u.user);
    if (u.password) ek_buf_char(&b, ':');
    put_escaped(&b, u.password);
    if (u.password) ek_buf_char(&b, '@');
    ek_buf_str(&b, bare);
    if (strlen(text) <= 500) { /* escaped, it is longer */
        if (ek_shared_url_parse(&again, ek_buf_text(&b))) __builtin_trap();
        if (strcmp(u.host, again.host) || u.port != again.port || u.db != again.db || u.tls != again.tls)
            __builtin_trap();
        if (!u.user != !again.user || (u.user && strcmp(u.user, again.user))) __builtin_trap();
        if (!u.password != !again.password || (u.password && strcmp(u.password, again.password))) __builtin_trap();
        ek_shared_url_fini(&again);
    }
    ek_buf_fini(&b);
    ek_shared_url_fini(&u);
}

/* The first bytes say what is done to a good record, the others are a record of their own. */
static void check_record(const uint8_t *data, size_t n)
{
    static const ek_kv_layout layout = {.page_bytes = {[EK_FULL] = 256, [EK_SLIDING] = 128}};
    uint8_t good[256 + EK_RECORD_HEAD], page[EK_KIND_COUNT][256], back[EK_KIND_COUNT][256];
    ek_store_page p = {.depth = (int)(n % 1000)};
    if (n < 4) return;
    for (int i = 0; i < EK_PAGE_TOKENS; i++) p.token[i] = data[(size_t)i % n];
    ek_chain root = ek_chain_root(data[0]);
    p.chain = ek_chain_next(&root, p.token, p.content);
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        for (size_t i = 0; i < sizeof page[k]; i++) page[k][i] = data[(i * 7 + (size_t)k) % n];
        p.bytes[k] = page[k];
    }
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        const size_t size = ek_record_bytes(&layout, &p, k);
        ek_store_page got = p;
        ek_record_write(good, &layout, &p, k);
        got.bytes[k] = back[k];
        if (!ek_record_read(good, size, &layout, &got, k) || memcmp(back[k], page[k], size - EK_RECORD_HEAD))
            __builtin_trap();
        if (ek_record_read(data, n, &layout, &got, k) && (n != size || memcmp(data, good, n))) __builtin_trap();
        uint8_t bit = (uint8_t)(1 << data[0] % 8);
        good[(size_t)(data[1] * 256 + data[2]) % size] ^= bit;
        if (ek_record_read(good, size, &layout, &got, k)) __builtin_trap();
        good[(size_t)(data[1] * 256 + data[2]) % size] ^= bit;
        if (ek_record_read(good, data[3] % size, &layout, &got, k)) __builtin_trap();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *text = malloc(n + 1);
    memcpy(text, data, n);
    text[n] = '\0';
    check_url(text);
    check_record(data, n);
    free(text);
    return 0;
}
