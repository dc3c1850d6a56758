/* A journal line from bytes. Property: what is accepted is written as a line that is accepted again, and from then on
 * nothing changes; a replay can rely on counts and lists. */
#include <stdint.h>
#include <string.h>

#include "serve/journal/journal.h"

static void check(const ek_journal_line *l)
{
    const ek_record *r = &l->record;
    if (l->lost > 0) return;
    if (l->n_tokens < 0 || r->n_prompt < 0 || r->sampling.n_bias < 0) __builtin_trap();
    bool tokens = r->mode == EK_RECORD_TOKENS;
    if (r->prompt.len != (tokens ? (size_t)r->n_prompt : 0)) __builtin_trap();
    if (r->reply.len != (tokens ? (size_t)l->n_tokens : 0)) __builtin_trap();
    for (size_t i = 0; i < r->prompt.len; i++)
        if (r->prompt.data[i] < 0) __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    ek_journal_line one, two;
    ek_buf first = {0}, second = {0};
    if (ek_journal_line_read(&one, (const char *)data, n) == EK_OK) {
        check(&one);
        ek_journal_line_write(&first, &one);
        if (memchr(first.data, '\n', first.len) != first.data + first.len - 1) __builtin_trap();
        if (ek_journal_line_read(&two, first.data, first.len - 1) != EK_OK) __builtin_trap();
        check(&two);
        ek_journal_line_write(&second, &two);
        if (first.len != second.len || memcmp(first.data, second.data, first.len) != 0) __builtin_trap();
        ek_journal_line_fini(&two);
    }
    ek_journal_line_fini(&one);
    ek_buf_fini(&first);
    ek_buf_fini(&second);
    return 0;
}
