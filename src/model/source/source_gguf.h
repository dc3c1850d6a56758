/* A model in a GGUF file: what the parts of that source share. Inside src/model/source/source_gguf*.c only. */
#ifndef EK_MODEL_SOURCE_GGUF_H
#define EK_MODEL_SOURCE_GGUF_H

#include "base/buf.h"
#include "model/source/gguf_names.h"
#include "model/source/source.h"
#include "tensor/gguf.h"

typedef struct ek_gguf_source {
    ek_source source;
    ek_gguf *g;       /* opened by the first question */
    const char *file; /* its name for messages: the first part */
    bool *used;       /* by index of the tensor */
    float *ones;      /* stands for experts' scales where a file has none */
    int n_centroids;  /* of a drafter with ordered embeddings, once its configuration was read */
    ek_buf tokenizer; /* as JSON, once it was asked for */
} ek_gguf_source;

/* A source of open files, which it closes: for files in memory. */
ek_source *ek_source_gguf_of(ek_gguf *g);

/* Architectures of Gemma 4 and of its drafters. NULL for others, after EUNSUPPORTED by name. */
const char *ek_gguf_architecture(const ek_gguf_source *s, bool *drafter);

/* The tensor that has one of a weight's names in these files; name is the model's ("layers.3.layer_scalar"). NULL if
 * there is none; full (room bytes) then has the first of its names. */
const ek_gguf_tensor *ek_gguf_weight_find(const ek_gguf *g, const char *name, char *full, size_t room);

/* Token `id` of the vocabulary has this text: notes it if it is one of those that stand for pictures and sounds, which
 * have no keys of their own. */
void ek_gguf_note_media(ek_media_ids *ids, const char *s, size_t n, int32_t id);

/* The configuration from metadata and shapes of tensors. */
ek_err ek_gguf_config(const ek_gguf_source *s, ek_config *out);

/* Appends the tokenizer of the metadata as a tokenizer.json, for ek_tokenizer_parse; also for the fuzzer. */
ek_err ek_gguf_tokenizer(const ek_gguf *g, ek_buf *out);

#endif
