#include "receipts/commit.h"

#include <string.h>

#include "base/encoding.h"
#include "base/hash/hash.h"

ek_hash ek_commit_salt(const ek_hash *secret, const char *label)
{
    ek_sha256_state s;
    ek_hash out;
    ek_sha256_init(&s);
    ek_sha256_add(&s, secret->h, EK_HASH);
    ek_sha256_add(&s, label, strlen(label));
    ek_sha256_end_bytes(&s, out.h);
    return out;
}

static void begin(ek_sha256_state *s, const ek_hash *secret, const char *label, uint64_t n)
{
    const ek_hash salt = ek_commit_salt(secret, label);
    ek_sha256_init(s);
    ek_sha256_add(s, label, strlen(label));
    ek_sha256_add(s, salt.h, EK_HASH);
    ek_sha256_add_u64(s, n);
}

static ek_hash end(ek_sha256_state *s)
{
    ek_hash out;
    ek_sha256_end_bytes(s, out.h);
    return out;
}

ek_hash ek_commit_bytes(const ek_hash *secret, const char *label, uint64_t n, const void *bytes, size_t n_bytes)
{
    ek_sha256_state s;
    begin(&s, secret, label, n);
    ek_sha256_add(&s, bytes, n_bytes);
    return end(&s);
}

ek_hash ek_commit_tokens(const ek_hash *secret, const char *label, const int32_t *tokens, size_t n,
                         const ek_commit_part *part, size_t n_parts)
{
    uint8_t b[1024];
    size_t used = 0;
    ek_sha256_state s;
    begin(&s, secret, label, n);
    for (size_t i = 0; i < n; i++) {
        ek_put_le(b + used, (uint32_t)tokens[i], 4);
        used += 4;
        if (used < sizeof b && i + 1 < n) continue;
        ek_sha256_add(&s, b, used);
        used = 0;
    }
    for (size_t i = 0; i < n_parts; i++) {
        ek_put_le(b, (uint32_t)part[i].first, 4);
        ek_put_le(b + 4, (uint32_t)part[i].kind, 4);
        memcpy(b + 8, part[i].digest, 32);
        ek_sha256_add(&s, b, 40);
    }
    return end(&s);
}

ek_hash ek_commit_texts(const ek_hash *secret, const char *label, const char *const *text, const size_t *len, size_t n)
{
    ek_sha256_state s;
    begin(&s, secret, label, n);
    for (size_t i = 0; i < n; i++) {
        ek_sha256_add_u64(&s, len[i]);
        ek_sha256_add(&s, text[i], len[i]);
    }
    return end(&s);
}

ek_hash ek_commit_row(const ek_hash *salt, uint32_t t, int32_t token, const ek_hash *root)
{
    uint8_t b[2 * EK_HASH + 8];
    memcpy(b, salt->h, EK_HASH);
    ek_put_le(b + EK_HASH, t, 4);
    ek_put_le(b + EK_HASH + 4, (uint32_t)token, 4);
    memcpy(b + EK_HASH + 8, root->h, EK_HASH);
    return ek_tree_leaf(b, sizeof b);
}
