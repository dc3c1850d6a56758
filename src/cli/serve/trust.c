#include "cli/serve/trust.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/encoding.h"

ek_err ek_trust_open(ek_trust *t, const ek_names *paths)
{
    t->key = ek_alloc(((size_t)paths->n + 1) * sizeof *t->key);
    t->n = paths->n;
    for (int i = 0; i < paths->n; i++) {
        const ek_err err = ek_public_key_read(&t->key[i], paths->v[i]);
        if (err) return ek_fail_in(err, "--trust");
    }
    return EK_OK;
}

void ek_trust_close(ek_trust *t)
{
    free(t->key);
    *t = (ek_trust){0};
}

bool ek_trust_has(const ek_trust *t, const char *key, const char *signature, size_t n_signature, const void *message,
                  size_t n)
{
    ek_buf bytes = {0};
    bool good = false;
    const bool fits = ek_base64_decode(&bytes, signature, n_signature) && bytes.len == EK_SIGNATURE;
    for (int i = 0; i < t->n && fits && !good; i++) {
        if (strcmp(t->key[i].id, key) != 0) continue;
        if (ek_signature_check(&good, &t->key[i], (const uint8_t *)bytes.data, message, n)) good = false;
    }
    ek_buf_fini(&bytes);
    return good;
}

ek_err ek_trust_sign(void *key, ek_buf *signature, const void *message, size_t n)
{
    uint8_t bytes[EK_SIGNATURE];
    EK_TRY(ek_sign(key, bytes, message, n));
    ek_base64_encode(signature, bytes, sizeof bytes);
    return EK_OK;
}
