/* The BPE tokenizer of a tokenizer.json (Hugging Face `tokenizers` format, the Gemma 4 kind: BPE with byte fallback,
 * space -> U+2581, no pre-splitting). Everything is read from the file and checked; no id is built in. Immutable after
 * open, so threads may share it.
 *
 * Source: huggingface/tokenizers, models/bpe and added_vocabulary. */
#ifndef EK_TEXT_TOKENIZER_H
#define EK_TEXT_TOKENIZER_H

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ek_tokenizer ek_tokenizer;

/* A growing list of token ids. Zero-initialise; ek_ids_fini when done. */
typedef struct ek_ids {
    int32_t *data;
    size_t len, cap;
} ek_ids;

void ek_ids_add(ek_ids *ids, int32_t id);
void ek_ids_fini(ek_ids *ids);

/* Parses the text of a tokenizer.json, n bytes; borrows nothing. EFORMAT for a damaged file, EUNSUPPORTED for another
 * algorithm; both name the fault. Close with ek_tokenizer_close (NULL is allowed). The tokenizer of a model:
 * chat/prompt.h. */
ek_err ek_tokenizer_parse(ek_tokenizer **out, const char *json, size_t n);
void ek_tokenizer_close(ek_tokenizer *t);

int ek_tokenizer_size(const ek_tokenizer *t); /* ids are 0 .. size-1; some may be holes */
/* The id of the added token or piece with exactly this text; -1: none. */
int32_t ek_tokenizer_id(const ek_tokenizer *t, const char *text);
bool ek_tokenizer_is_special(const ek_tokenizer *t, int32_t id); /* false outside 0..size-1 */
/* The bytes of a token: a byte piece's byte, U+2581 as a space, an added token's text. Borrowed, not NUL-terminated; ""
 * with *n = 0 for a hole or an id out of range. */
const char *ek_tokenizer_bytes(const ek_tokenizer *t, int32_t id, size_t *n);

/* Encodes n bytes of text; appends to out. Ill-formed UTF-8 is read as U+FFFD. No <bos> is added. control: ascending
 * byte offsets where the text of a special token means that token; elsewhere (typed by a user) it is ordinary text.
 * With control EK_CONTROL_ALL every occurrence counts, as in Hugging Face's tokenizers. Added tokens that are not
 * special always count. The ids up to an added token depend only on the text up to it. ETOOLONG beyond 1 GiB of text;
 * nothing else fails. Time is O(n log n) in the length. */
#define EK_CONTROL_ALL ((size_t)-1)
ek_err ek_encode(const ek_tokenizer *t, const char *text, size_t n, const size_t *control, size_t n_control,
                 ek_ids *out);
/* The same, but stops soon after max_ids ids: with more ids than that in out, the rest of the text may be missing. For
 * text that has to fit, so that text far too long costs no more than text that fits. */
ek_err ek_encode_max(const ek_tokenizer *t, const char *text, size_t n, const size_t *control, size_t n_control,
                     size_t max_ids, ek_ids *out);

/* Counts the ids of ek_encode, in little memory for any length. */
typedef struct ek_count {
    bool (*stop)(void *arg); /* called after each piece; true stops. NULL: never */
    void *arg;
    size_t piece;      /* bytes read at once; 0: 64 KiB */
    size_t ids, bytes; /* the result: ids, and the bytes of text that they cover */
    /* The number is exact: the whole text was counted, and no word had to be divided. (Dividing a word may add an id.
     * It happens after four consecutive pieces without a space or a line end.) */
    bool exact;
} ek_count;
void ek_encode_count(const ek_tokenizer *t, const char *text, size_t n, const size_t *control, size_t n_control,
                     ek_count *count);

/* Decodes n ids like Hugging Face's batch decoding: pieces are joined, and a run of byte pieces that is not valid UTF-8
 * as a whole becomes one U+FFFD per byte. skip_special leaves special tokens out. Ids out of range and holes give
 * nothing. Appends to out. For streaming, feed ek_tokenizer_bytes to an ek_utf8_stream: well-formed text is the same,
 * and no text has to be taken back later. */
void ek_decode(const ek_tokenizer *t, const int32_t *ids, size_t n, bool skip_special, ek_buf *out);

/* A streaming JSON reader for tokenizer.json, which is too large for a tree (Gemma 4: 262144 pieces and half a million
 * merges). Errors: EPARSE with the byte offset, and those of ek_json_read for parsed values. Inside src/text. */

typedef struct ek_cursor {
    const char *text;
    size_t n, at;
} ek_cursor;

ek_err ek_cursor_fail(const ek_cursor *c, const char *what); /* EPARSE with the byte offset */
int ek_cursor_peek(ek_cursor *c);                            /* the next byte after white space; -1 at the end */
ek_err ek_cursor_expect(ek_cursor *c, char expected);
/* Appends the string's value to out. */
ek_err ek_cursor_string(ek_cursor *c, ek_buf *out);
ek_err ek_cursor_int(ek_cursor *c, int64_t *out);
/* Skips the next value without building it; *from and *n are its extent. */
ek_err ek_cursor_skip(ek_cursor *c, const char **from, size_t *n);
ek_err ek_cursor_tree(ek_cursor *c, json_t **out); /* the next value as a tree */
/* Steps through an object or array; call it after the opening bracket was read. *more is false once `close` was read.
 * *first is true before the first member, and is cleared here. */
ek_err ek_cursor_next(ek_cursor *c, char close, bool *first, bool *more);

#endif
