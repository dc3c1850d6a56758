/* A file of replies from bytes. Properties: a line that is taken is written back as a line that is taken, with the same
 * sum and the same bytes from then on; its key is that of what was asked; a file of it and an end gives it back. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "replies/ask.h"
#include "replies/cassette.h"

static const char identity[] = "model 1, ek3";
enum { VOCAB = 1000 };

static void check_line(const char *line, size_t n)
{
    ek_reply_record *r, *again;
    ek_reply_key key;
    ek_buf out = {0}, twice = {0};
    char sum[65], other[65], third[65];
    if (ek_cassette_line_read(&r, line, n, identity, VOCAB, true, sum)) return;
    if (ek_cassette_line(&out, r, identity, NULL, &key, other) || strcmp(sum, other)) __builtin_trap();
    if (memcmp(key.h, ek_reply_record_key(r)->h, sizeof key.h)) __builtin_trap();
    if (ek_cassette_line_read(&again, out.data, out.len - 1, identity, VOCAB, true, third)) __builtin_trap();
    if (strcmp(sum, third) || !ek_reply_record_covers(r, again) || !ek_reply_record_covers(again, r)) __builtin_trap();
    if (ek_cassette_line(&twice, again, identity, NULL, NULL, other)) __builtin_trap();
    if (out.len != twice.len || memcmp(out.data, twice.data, out.len)) __builtin_trap();
    ek_reply_record_release(r);
    ek_reply_record_release(again);
    ek_buf_fini(&out);
    ek_buf_fini(&twice);
}

typedef struct tally {
    size_t taken, refused;
} tally;

static bool wants(void *arg, const char *of)
{
    (void)arg;
    return strcmp(of, identity) == 0;
}

static void take(void *arg, const char *of, ek_reply_record *r)
{
    if (strcmp(of, identity)) __builtin_trap();
    ((tally *)arg)->taken++;
    ek_reply_record_release(r);
}

static void refuse(void *arg, size_t number, const char *reason)
{
    if (number == 0 || !*reason) __builtin_trap();
    ((tally *)arg)->refused++;
}

static void check_file(const uint8_t *data, size_t n)
{
    tally t = {0};
    ek_cassette_counts counts;
    const ek_cassette_read how = {.n_vocab = VOCAB, .wants = wants, .take = take, .refuse = refuse, .arg = &t};
    if (!ek_cassette_read_text(&counts, (const char *)data, n, &how) &&
        (counts.taken != t.taken || counts.refused != t.refused))
        __builtin_trap();
}

/* The sum that the line should have in the place of the one it has, so that the reader is behind it. */
static void mend(ek_buf *line)
{
    static const char before[] = ",\"sum\":\"";
    char *at = line->data ? strstr(line->data, before) : NULL, sum[65];
    if (!at || line->len < (size_t)(at - line->data) + sizeof before - 1 + 64) return;
    ek_sha256_hex(sum, line->data, (size_t)(at - line->data));
    memcpy(at + sizeof before - 1, sum, 64);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    ek_buf line = {0};
    check_line((const char *)data, n);
    ek_buf_add(&line, data, n);
    mend(&line);
    check_line(ek_buf_text(&line), line.len);
    check_file(data, n);
    ek_buf_fini(&line);
    return 0;
}
