/* Stored replies: whatever bytes there are, only a record that was made is read, and what is read is given back byte by
 * byte. */
#include <stdlib.h>
#include <string.h>

#include "replies/record.h"

enum { VOCAB = 1000 };

/* Reads, and makes a record of what was read: the same bytes. */
static void check_read(const ek_reply_key *k, const void *bytes, size_t size)
{
    ek_reply_record *r;
    if (ek_reply_record_read(&r, k, EK_REPLY_DISK, VOCAB, bytes, size)) return;
    size_t n_ask, n;
    const char *ask = ek_reply_record_ask(r, &n_ask);
    ek_reply_draft d = {0};
    ek_reply_draft_begin(&d, r, ek_reply_record_tokens(r));
    ek_reply_record *again = ek_reply_record_make(ek_reply_record_key(r), &d, ask, n_ask);
    const void *made = ek_reply_record_bytes(again, &n);
    if (!ek_reply_record_covers(again, r)) __builtin_trap();
    if (n != size || memcmp(made, bytes, size) != 0) __builtin_trap();
    ek_reply_record_release(again);
    ek_reply_record_release(r);
}

/* A good record of these bytes, then with one bit changed, and cut. */
static void check_made(const uint8_t *data, size_t size)
{
    ek_reply_key k = {{1}};
    ek_reply_draft d = {0};
    ek_logprobs p = {.n_top = data[0] % 21};
    for (int i = 0; i < 1 + data[1] % 20; i++) {
        for (int t = 0; t < p.n_top; t++) p.top[t] = (ek_logprob){data[(size_t)(i + t) % size], (float)t};
        ek_reply_draft_add(&d, data[(size_t)i % size], (uint64_t)i * 77, i < data[3] % 20 ? &p : NULL);
    }
    ek_reply_record *r = ek_reply_record_make(&k, &d, (const char *)data, size), *got;
    size_t n;
    const uint8_t *bytes = ek_reply_record_bytes(r, &n);
    uint8_t *copy = malloc(n);
    memcpy(copy, bytes, n);
    if (ek_reply_record_read(&got, &k, EK_REPLY_DISK, VOCAB, copy, n)) __builtin_trap();
    ek_reply_record_release(got);
    if (!ek_reply_record_read(&got, &k, EK_REPLY_DISK, VOCAB, copy, n - 1 - data[2] % n)) __builtin_trap();
    copy[(size_t)(data[2] * 256 + data[3]) % n] ^= (uint8_t)(1 << data[0] % 8);
    if (!ek_reply_record_read(&got, &k, EK_REPLY_DISK, VOCAB, copy, n)) __builtin_trap();
    check_read(NULL, bytes, n);
    free(copy);
    ek_reply_record_release(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    check_read(NULL, data, n);
    if (n >= 4) check_made(data, n);
    return 0;
}
