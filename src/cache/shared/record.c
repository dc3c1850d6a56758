#include "cache/shared/shared.h"

#include <stdio.h>
#include <string.h>

#include "base/encoding.h"
#include "base/hash/hash.h"

static const char magic[8] = "ekpage1";

void ek_record_space(char out[EK_RECORD_SPACE], const char *what)
{
    char hash[65];
    ek_sha256_hex(hash, what, strlen(what));
    snprintf(out, EK_RECORD_SPACE, "%.32s", hash);
}

void ek_record_key(char out[EK_RECORD_KEY], const char *space, const ek_chain *chain, int kind)
{
    static const char digits[] = "0123456789abcdef";
    int n = snprintf(out, EK_RECORD_KEY - 65, "evenkeel:page:1:%s:%c:", space, kind == EK_FULL ? 'f' : 's');
    char *at = out + n;
    for (size_t i = 0; i < sizeof chain->h; i++) {
        *at++ = digits[chain->h[i] >> 4];
        *at++ = digits[chain->h[i] & 15];
    }
    *at = '\0';
}

size_t ek_record_bytes(const ek_kv_layout *layout, const ek_store_page *p, int kind)
{
    return EK_RECORD_HEAD + ek_kv_page_bytes(layout, (ek_layer_kind)kind, p->depth);
}

static void put_head(uint8_t out[EK_RECORD_HEAD], const ek_store_page *p, int kind, size_t bytes)
{
    memcpy(out, magic, sizeof magic);
    ek_put_le(out + 8, (uint64_t)kind, 4);
    ek_put_le(out + 12, (uint64_t)p->depth, 4);
    ek_put_le(out + 16, bytes, 8);
    ek_put_le(out + 24, ek_store_sum(p, kind, bytes), 8);
}

void ek_record_write(uint8_t *out, const ek_kv_layout *layout, const ek_store_page *p, int kind)
{
    const size_t bytes = ek_record_bytes(layout, p, kind) - EK_RECORD_HEAD;
    put_head(out, p, kind, bytes);
    memcpy(out + EK_RECORD_HEAD, p->bytes[kind], bytes);
}

bool ek_record_read(const uint8_t *data, size_t n, const ek_kv_layout *layout, const ek_store_page *p, int kind)
{
    uint8_t head[EK_RECORD_HEAD];
    if (n != ek_record_bytes(layout, p, kind)) return false;
    memcpy(p->bytes[kind], data + EK_RECORD_HEAD, n - EK_RECORD_HEAD);
    put_head(head, p, kind, n - EK_RECORD_HEAD); /* of the bytes that are used, not of a copy */
    return memcmp(head, data, sizeof head) == 0;
}
