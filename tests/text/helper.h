/* Helpers for the tests of text: comparisons that print both sides, seeded numbers, small tokenizers. */
#ifndef EK_TESTS_TEXT_HELPER_H
#define EK_TESTS_TEXT_HELPER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "text/json/json.h"
#include "text/tokenizer/tokenizer.h"

/* Compares bytes and prints both on a difference. */
#define check_text(got, n, want) check_bytes((got), (n), (want), strlen(want), __FILE__, __LINE__)
void check_bytes(const char *got, size_t n_got, const char *want, size_t n_want, const char *file, int line);
#define check_buf(b, want) check_text(ek_buf_text(b), (b)->len, want)

json_t *read_json(const char *text); /* fails the test if it is not JSON */

/* A small generator: the same numbers for the same seed everywhere. */
typedef struct dice {
    uint64_t seed, n;
} dice;
uint32_t roll(dice *d, uint32_t sides);

/* A tokenizer.json with every byte piece, the control tokens, the letters of pieces (one scalar
 * each, NUL-terminated strings) and merges "left right"; NULL ends both lists. */
void tokenizer_json(ek_buf *out, const char *const *pieces, const char *const *merges);
/* A tokenizer with a few merges, for replies and prompts. */
ek_tokenizer *small_tokenizer(void);

#endif
