/* GGUF files that are edited by the bytes of a fuzzer: a file's metadata and its table of tensors as rows, which are
 * dropped, renamed, given other types, values and shapes; then written again, so that offsets and lengths follow and
 * most files get past the container. */
#ifndef EK_TESTS_SUPPORT_GGUF_EDIT_H
#define EK_TESTS_SUPPORT_GGUF_EDIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "tensor/gguf.h"

enum { GGUF_MAX_ROWS = 512, GGUF_MAX_EDITS = 24, GGUF_MAX_KEY = 96 };

/* The fuzzer's bytes; zeros behind them. */
typedef struct gguf_input {
    const uint8_t *at, *end;
} gguf_input;

unsigned gguf_take(gguf_input *in);  /* one byte */
unsigned gguf_take2(gguf_input *in); /* two */

typedef struct gguf_row_value {
    char key[GGUF_MAX_KEY];
    uint32_t kind;
    bool is_array;
    uint64_t count;
    const uint8_t *data; /* of the file, or made */
    size_t bytes;
} gguf_row_value;

typedef struct gguf_row_tensor {
    char name[GGUF_MAX_KEY];
    uint32_t type;
    int n_dims;
    int64_t dim[EK_GGUF_MAX_DIMS];
    const uint8_t *data;
    size_t bytes, poke_at;
    uint8_t poke;
} gguf_row_tensor;

typedef struct gguf_tables {
    gguf_row_value value[GGUF_MAX_ROWS];
    gguf_row_tensor tensor[GGUF_MAX_ROWS];
    int n_values, n_tensors, n_made;
    uint8_t *made[GGUF_MAX_EDITS];
} gguf_tables;

/* Names that a tensor gets and keys that a value gets, of the kind of file. */
typedef struct gguf_edit_words {
    const char *name[16], *key[8];
} gguf_edit_words;

/* g stays open while t is used; gguf_tables_fini when done. */
void gguf_tables_read(gguf_tables *t, const ek_gguf *g);
void gguf_tables_edit(gguf_tables *t, gguf_input *in, const gguf_edit_words *words);
/* Appends the file; data beyond 1 MiB is left out, which its parser then says. */
void gguf_tables_write(const gguf_tables *t, ek_buf *out);
void gguf_tables_fini(gguf_tables *t);

#endif
