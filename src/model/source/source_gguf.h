/* A model in a GGUF file: declarations for the files of that source. Inside src/model/source/source_gguf*.c only. */
#ifndef EK_MODEL_SOURCE_GGUF_H
#define EK_MODEL_SOURCE_GGUF_H

#include "base/buf.h"
#include "model/source/gguf_names.h"
#include "model/source/source.h"
#include "tensor/gguf.h"

typedef struct ek_gguf_source {
    ek_source source;
    ek_gguf *g;       /* opened by the first query */
    const char *file; /* name of the first file, for messages */
    bool *used;       /* by index of the tensor */
    float *ones;      /* ones, for experts without scales in the file */
    int n_centroids;  /* of a drafter with ordered embeddings, once its configuration was read */
    ek_buf tokenizer; /* as JSON, once it was requested */
} ek_gguf_source;

/* A source of open files, for files in memory. It closes g. */
ek_source *ek_source_gguf_of(ek_gguf *g);

/* Finds a weight's tensor under any of its GGUF names. name: the model's ("layers.3.layer_scalar"). NULL if there is
 * none; full (room bytes) then has the first of the names. */
const ek_gguf_tensor *ek_gguf_weight_find(const ek_gguf *g, const char *name, char *full, size_t room);

/* Stores id in ids if the token's text marks pictures or sounds, because these tokens have no keys of their own. */
void ek_gguf_note_media(ek_media_ids *ids, const char *s, size_t n, int32_t id);

/* Derives the configuration from metadata and shapes of tensors. */
ek_err ek_gguf_config(const ek_gguf_source *s, ek_config *out);

/* Appends the metadata's tokenizer as a tokenizer.json, for ek_tokenizer_parse and the fuzzer. */
ek_err ek_gguf_tokenizer(const ek_gguf *g, ek_buf *out);

/* --- the pieces of a file's tokenizer, their roles, and merges for files that have scores instead --- */

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
