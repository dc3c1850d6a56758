/* The pieces of a GGUF file's tokenizer, their roles, and merges for files that have scores instead. Inside
 * src/model/source/source_gguf*.c only. */
#ifndef EK_MODEL_SOURCE_GGUF_VOCAB_H
#define EK_MODEL_SOURCE_GGUF_VOCAB_H

#include "model/source/source_gguf.h"

typedef enum ek_piece_role {
    EK_PIECE_PLAIN,   /* text made by merges */
    EK_PIECE_BYTE,    /* <0x41> */
    EK_PIECE_FILLER,  /* fills an id without a token */
    EK_PIECE_ADDED,   /* user-defined: an added token, unless merges make it */
    EK_PIECE_MARK,    /* spelled like a mark of Gemma 4: special, unless merges make it */
    EK_PIECE_CONTROL, /* special */
} ek_piece_role;

typedef struct ek_gguf_piece {
    const char *s; /* without NUL; points into the file or into spaced */
    size_t n;
    float score;
    ek_piece_role role;
} ek_gguf_piece;

/* Zero-initialise. Valid while the file is open. */
typedef struct ek_gguf_vocab {
    ek_gguf_piece *v;
    size_t n;
    ek_buf spaced; /* pieces that a converter wrote with spaces instead of U+2581 */
    bool unmerged; /* tokenizer.ggml.model is llama, with scores and without merges */
} ek_gguf_vocab;

/* A list under a key, of strings or of numbers. EUNSUPPORTED if it is missing, EFORMAT if it is something else. */
ek_err ek_gguf_find_array(const ek_gguf *g, const char *key, bool text, const ek_gguf_value **out);

/* ENOTFOUND: the file has no tokenizer; EUNSUPPORTED: a tokenizer with other rules; EFORMAT: a damaged one. Call
 * ek_gguf_vocab_fini for v in any case. */
ek_err ek_gguf_vocab_read(ek_gguf_vocab *v, const ek_gguf *g);
void ek_gguf_vocab_fini(ek_gguf_vocab *v);

typedef struct ek_gguf_merge {
    float score; /* of the result */
    uint32_t left, right, result;
    uint16_t n_left, n_right; /* characters */
} ek_gguf_merge;

typedef struct ek_gguf_merges {
    ek_gguf_merge *v; /* by rank */
    size_t n, cap;
} ek_gguf_merges;

/* Derives the merges from the scores; *m is zero-initialised. EUNSUPPORTED if the scores are no ranks. */
ek_err ek_gguf_merges_make(ek_gguf_merges *m, const ek_gguf_vocab *v);
void ek_gguf_merges_fini(ek_gguf_merges *m);

#endif
