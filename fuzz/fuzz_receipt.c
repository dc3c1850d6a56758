/* Receipts: whatever bytes there are, a statement that is read is written again byte by byte, and an envelope that is
 * read has such a one; no byte of a signed payload can be changed without the signature's notice. */
#define _GNU_SOURCE /* memfd_create */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "receipts/canonical.h"
#include "receipts/log.h"

static void check_statement(const char *text, size_t n)
{
    ek_statement s;
    ek_buf again = {0};
    if (!ek_statement_read(&s, text, n)) {
        ek_statement_write(&again, &s);
        if (again.len != n || memcmp(again.data, text, n) != 0) __builtin_trap();
    }
    ek_statement_fini(&s);
    ek_buf_fini(&again);
}

static void check_envelope(const char *text, size_t n)
{
    int count = 1;
    for (int i = 0; i < count && i < 4; i++) {
        ek_receipt r;
        ek_buf shown = {0};
        if (!ek_receipt_read(&r, text, n, i, &count)) {
            check_statement(r.payload.data, r.payload.len);
            if (r.opening.row && (!r.opening.reply || r.n_signatures < 1)) __builtin_trap();
            ek_receipt_opens(&r);
            ek_receipt_show(&shown, &r);
        }
        ek_receipt_fini(&r);
        ek_buf_fini(&shown);
    }
}

/* A receipt of these bytes opens; with one bit of its text changed it is refused, or not signed, or does not open, or
 * says the same. */
static void check_made(const uint8_t *data, size_t n)
{
    static ek_signing_key *key;
    const uint8_t seed[32] = {5};
    if (!ek_keys_built()) return;
    if (!key && ek_signing_key_of(&key, seed)) __builtin_trap();
    int32_t tokens[2] = {data[0], data[1]};
    ek_hash row[2] = {{{data[2]}}, {{data[3]}}};
    const ek_opening o = {.prompt = tokens, .n_prompt = 2, .reply = tokens, .n_reply = 2, .row = row};
    ek_statement s = {.profile = (char *)"p", .program = (char *)"q", .api = (char *)"/a"}, got;
    memset(s.weights, '0', 64), memset(s.tokenizer, '1', 64);
    ek_statement_time(s.time, data[4] * 86400);
    memcpy(&s.sampling.seed, data, 8);
    s.ends.context = 1 + data[5];
    ek_receipt_commit(&s, &o, ek_signing_key_public(key), (const char *)data, n);
    ek_buf text = {0};
    if (ek_receipt_write(&text, &s, &o, key, NULL)) __builtin_trap();
    ek_receipt r;
    ek_signed how;
    if (ek_receipt_read(&r, text.data, text.len, 0, NULL) || ek_receipt_opens(&r)) __builtin_trap();
    if (ek_receipt_signed(&how, &r, ek_signing_key_public(key)) || how != EK_SIGNED_GOOD) __builtin_trap();
    ek_buf payload = r.payload;
    r.payload = (ek_buf){0};
    ek_receipt_fini(&r);
    text.data[(data[6] * 256u + data[7]) % text.len] ^= (char)(1 << data[0] % 8);
    if (!ek_receipt_read(&r, text.data, text.len, 0, NULL) && !ek_receipt_opens(&r) &&
        !ek_receipt_signed(&how, &r, ek_signing_key_public(key)) && how == EK_SIGNED_GOOD) {
        if (r.payload.len != payload.len || memcmp(r.payload.data, payload.data, payload.len)) __builtin_trap();
        if (r.has_opening && r.opening.reply && memcmp(r.opening.reply, tokens, sizeof tokens)) __builtin_trap();
    }
    ek_receipt_fini(&r);
    if (ek_statement_read(&got, payload.data, payload.len)) __builtin_trap();
    ek_statement_fini(&got);
    ek_buf_fini(&payload);
    ek_buf_fini(&text);
}

/* No checkpoint is signed by nobody. */
static void check_checkpoint(const char *text, size_t n)
{
    size_t size;
    ek_hash root;
    bool good;
    const ek_public_key nobody = {.a = {9}};
    ek_checkpoint_read(&size, &root, &good, text, n, &nobody);
    if (good) __builtin_trap();
}

/* A file that is taken for a log is one when it is read again, with the same root. */
static void check_log(const char *text, size_t n)
{
    char path[40];
    size_t size[2];
    ek_hash root[2];
    const int fd = memfd_create("log", MFD_CLOEXEC);
    if (fd < 0) return;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (write(fd, text, n) != (ssize_t)n) __builtin_trap();
    for (int i = 0; i < 2; i++) {
        ek_receipt_log *l;
        if (ek_receipt_log_open(&l, path, "", true)) {
            if (i) __builtin_trap();
            break;
        }
        root[i] = ek_receipt_log_root(l, &size[i]);
        ek_receipt_log_close(l);
        if (i && (size[0] != size[1] || !ek_hash_equal(&root[0], &root[1]))) __builtin_trap();
    }
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    json_t *v;
    ek_buf again = {0};
    check_statement((const char *)data, n);
    check_envelope((const char *)data, n);
    check_checkpoint((const char *)data, n);
    check_log((const char *)data, n);
    if (!ek_canonical_read(&v, (const char *)data, n, 1000)) {
        if (ek_canonical_write(&again, v) || again.len != n || memcmp(again.data, data, n) != 0) __builtin_trap();
        json_decref(v);
    }
    ek_buf_fini(&again);
    if (n >= 8) check_made(data, n);
    return 0;
}
