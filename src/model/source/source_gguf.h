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

#endif
