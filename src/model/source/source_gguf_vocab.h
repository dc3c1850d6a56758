/* The pieces of a GGUF file's tokenizer, what each is for, and the merges of files that have scores instead. Inside
 * src/model/source/source_gguf*.c only. */
#ifndef EK_MODEL_SOURCE_GGUF_VOCAB_H
#define EK_MODEL_SOURCE_GGUF_VOCAB_H

#include "model/source/source_gguf.h"

typedef enum ek_piece_role {
    EK_PIECE_PLAIN,   /* text, made by merges */
    EK_PIECE_BYTE,    /* <0x41> */
    EK_PIECE_FILLER,  /* stands for an id without a token */
    EK_PIECE_ADDED,   /* user-defined: an added token unless merges make it */
    EK_PIECE_MARK,    /* spelled like Gemma 4's marks: special, unless merges make it */
    EK_PIECE_CONTROL, /* special */
} ek_piece_role;

typedef struct ek_gguf_piece {
    const char *s; /* not terminated; of the file, or of spaced */
    size_t n;
    float score;
    ek_piece_role role;
} ek_gguf_piece;

/* Zero-initialise; valid as long as the file is open. */
typedef struct ek_gguf_vocab {
    ek_gguf_piece *v;
    size_t n;
    ek_buf spaced; /* pieces that a converter wrote with spaces in the place of U+2581 */
    bool unmerged; /* tokenizer.ggml.model is llama, and there are scores but no merges */
} ek_gguf_vocab;

/* A list under a key, of strings or of numbers. EUNSUPPORTED without it, EFORMAT for anything else. */
ek_err ek_gguf_find_array(const ek_gguf *g, const char *key, bool text, const ek_gguf_value **out);

/* ENOTFOUND: the file has no tokenizer; EUNSUPPORTED: one of other rules; EFORMAT: a damaged one. v needs
 * ek_gguf_vocab_fini in any case. */
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

/* The merges that the scores stand for; zero-initialised before. EUNSUPPORTED if the scores say nothing. */
ek_err ek_gguf_merges_make(ek_gguf_merges *m, const ek_gguf_vocab *v);
void ek_gguf_merges_fini(ek_gguf_merges *m);

#endif
