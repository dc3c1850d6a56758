/* A source reads a model from its container: configuration, weights under the model's own names, and
 * tokenizer. Opening a model reads only this.
 *
 * Names are those of transformers' modeling_gemma4.py without the model's prefix: a vector with its
 * whole name ("layers.3.input_layernorm.weight", "layers.3.layer_scalar"), a matrix with its
 * module's ("layers.3.self_attn.q_proj", "embed_tokens", "lm_head"), experts with the projection's
 * ("layers.3.experts.gate_proj", "…up_proj", "…down_proj"), however a file names, fuses or splits
 * them. Shapes are the model's: n outputs by k inputs.
 *
 * A new container is a table of functions (ek_source_ops) and a row in source.c that recognises it.
 * Not thread-safe, except that data given out may be read from everywhere. */
#ifndef EK_MODEL_SOURCE_H
#define EK_MODEL_SOURCE_H

#include "model/config/config.h"
#include "ops/weights/weight_type.h"

typedef struct ek_source ek_source;

typedef enum ek_weight_shape {
    EK_WEIGHT_MATRIX, /* n x k */
    EK_WEIGHT_VECTOR, /* k floats, n is 1 */
    EK_WEIGHT_EXPERT  /* one of n_experts matrices n x k */
} ek_weight_shape;

typedef struct ek_weight_query {
    const char *name;
    ek_weight_shape shape;
    int n, k;
    int expert, n_experts; /* EK_WEIGHT_EXPERT only */
} ek_weight_query;

/* The tokenizer as the container holds it; borrowed from the source. */
typedef struct ek_source_tokenizer {
    const char *name; /* of the file, for messages */
    const char *json; /* tokenizer.json, not terminated: for ek_tokenizer_parse */
    size_t n;
} ek_source_tokenizer;

/* What a container says of its chat template; borrowed from the source. */
typedef struct ek_source_chat {
    const char *dir;  /* a folder, whose files text/template/chat.h reads itself; else NULL and: */
    const char *name; /* of the file, for messages */
    const char *text; /* the template, not terminated; NULL without */
    size_t n;
    bool small; /* the model has per-layer inputs: E2B, E4B */
} ek_source_chat;

typedef struct ek_source_ops {
    const char *kind; /* for messages and inspect: "safetensors" */
    ek_err (*config)(ek_source *s, ek_config *out);
    ek_err (*weight)(ek_source *s, const ek_weight_query *query, ek_weight_data *out);
    ek_err (*has_head)(ek_source *s, bool *out);                        /* NULL: never */
    ek_err (*ids)(ek_source *s, const char *name, int n, int32_t *out); /* NULL: no container of drafters */
    ek_err (*finish)(ek_source *s, const ek_config *config);
    ek_err (*tokenizer)(ek_source *s, ek_source_tokenizer *out);
    ek_err (*chat)(ek_source *s, ek_source_chat *out); /* NULL: a folder */
    void (*rest)(ek_source *s);
    void (*close)(ek_source *s);
} ek_source_ops;

/* The head of a container's own struct. */
struct ek_source {
    const ek_source_ops *ops;
    char *path; /* as it was given */
};

/* Recognises what lies at path; reads and maps nothing yet: a folder of safetensors in the layout of Hugging Face or of
 * mlx-lm; a GGUF file, any part of a split one, or a folder with GGUF files and no safetensors, which must hold one
 * model. ENOTFOUND if there is nothing, EIO for what cannot be read, EUNSUPPORTED by name for a file that is no model.
 */
ek_err ek_source_open(ek_source **out, const char *path);
void ek_source_close(ek_source *s); /* NULL is fine */
/* When the weights are packed: its mapped pages leave the process until they are read again, ek_map_drop_pages. */
void ek_source_drop_pages(ek_source *s);

/* The checked configuration. Call it before the weights. */
ek_err ek_source_config(ek_source *s, ek_config *out);
/* EUNSUPPORTED where that of path is a drafter's and a model is needed. */
ek_err ek_source_check_model(const char *path, const ek_config *config);

/* A weight as it is stored, valid until close. EFORMAT names tensor and file when it is missing or
 * of another shape; EUNSUPPORTED names a format that cannot be read. */
ek_err ek_source_weight(ek_source *s, const ek_weight_query *query, ek_weight_data *out);
/* Whether it holds an lm_head, which may equal embed_tokens. Fails as the first weight does. */
ek_err ek_source_has_head(ek_source *s, bool *out);
/* A vector of n whole numbers, a drafter's masked_embedding.token_ordering; EFORMAT as above, and for one that does not
 * fit int32. */
ek_err ek_source_ids(ek_source *s, const char *name, int n, int32_t *out);
/* After the last weight: EFORMAT for a tensor that was not requested and that belongs to no known
 * part beside the text model. */
ek_err ek_source_finish(ek_source *s, const ek_config *config);

/* ENOTFOUND where the container has none. */
ek_err ek_source_tokenizer_of(ek_source *s, ek_source_tokenizer *out);
ek_err ek_source_chat_of(ek_source *s, ek_source_chat *out);

/* Whether safetensors call a weight by its name alone, without the model's prefix: a drafter's projections and its
 * ordered embeddings. */
bool ek_source_stands_beside(const char *name);

/* The containers; each takes the path over. */
ek_source *ek_source_folder(const char *path); /* source_folder.c */
ek_source *ek_source_gguf(const char *path);   /* source_gguf.c: a file, or a folder with one model */

#endif
