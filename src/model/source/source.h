/* A source reads a model from its container: configuration, weights under the model's own names, and tokenizer. Opening
 * a model needs only this interface.
 *
 * Names are those of transformers' modeling_gemma4.py without the model's prefix: a vector has its whole name
 * ("layers.3.input_layernorm.weight", "layers.3.layer_scalar"), a matrix its module's ("layers.3.self_attn.q_proj",
 * "embed_tokens", "lm_head"), experts their projection's ("layers.3.experts.gate_proj", "…up_proj", "…down_proj"),
 * however a file names, fuses or splits them. Shapes are the model's: n outputs by k inputs.
 *
 * A new container is a table of functions (ek_source_ops) and a row in source.c that recognises it. Not thread-safe,
 * except that all threads may read the returned data. */
#ifndef EK_MODEL_SOURCE_H
#define EK_MODEL_SOURCE_H

#include "model/config/config.h"
#include "ops/weights/weight_type.h"

typedef struct ek_source ek_source;

typedef enum ek_weight_shape {
    EK_WEIGHT_MATRIX, /* n x k */
    EK_WEIGHT_VECTOR, /* k floats; n is 1 */
    EK_WEIGHT_EXPERT  /* one of n_experts matrices n x k */
} ek_weight_shape;

typedef struct ek_weight_query {
    const char *name;
    ek_weight_shape shape;
    int n, k;
    int expert, n_experts; /* EK_WEIGHT_EXPERT only */
} ek_weight_query;

/* The container's tokenizer; borrowed from the source. */
typedef struct ek_source_tokenizer {
    const char *name; /* file name, for messages */
    const char *json; /* tokenizer.json without NUL, for ek_tokenizer_parse */
    size_t n;
} ek_source_tokenizer;

/* The container's chat template; borrowed from the source. */
typedef struct ek_source_chat {
    const char *dir;  /* a folder, whose files text/template/chat.h reads itself; NULL: the fields below */
    const char *name; /* file name, for messages */
    const char *text; /* the template without NUL; NULL: none */
    size_t n;
    bool small; /* the model has per-layer inputs: E2B, E4B */
} ek_source_chat;

typedef struct ek_source_ops {
    const char *kind; /* for messages and inspect: "safetensors" */
    ek_err (*config)(ek_source *s, ek_config *out);
    ek_err (*weight)(ek_source *s, const ek_weight_query *query, ek_weight_data *out);
    ek_err (*has_head)(ek_source *s, bool *out);                        /* NULL: never */
    ek_err (*ids)(ek_source *s, const char *name, int n, int32_t *out); /* NULL: the container holds no drafters */
    ek_err (*finish)(ek_source *s, const ek_config *config);
    ek_err (*tokenizer)(ek_source *s, ek_source_tokenizer *out);
    ek_err (*chat)(ek_source *s, ek_source_chat *out); /* NULL: a folder */
    void (*rest)(ek_source *s);
    void (*close)(ek_source *s);
} ek_source_ops;

/* The head of each container's own struct. */
struct ek_source {
    const ek_source_ops *ops;
    char *path; /* as given */
};

/* Recognises the container at path; reads and maps nothing yet. A container is a folder of safetensors in the layout of
 * Hugging Face or mlx-lm, a GGUF file (any file of a split one), or a folder with GGUF files of one model and no
 * safetensors. ENOTFOUND if nothing is there, EIO if it is unreadable, EUNSUPPORTED by name if it is no model. */
ek_err ek_source_open(ek_source **out, const char *path);
void ek_source_close(ek_source *s); /* NULL is allowed */
/* Call when the weights are packed: mapped pages leave the process until they are read again (ek_map_drop_pages). */
void ek_source_drop_pages(ek_source *s);

/* The checked configuration. Call it before the weights. */
ek_err ek_source_config(ek_source *s, ek_config *out);
/* EUNSUPPORTED if the configuration is a drafter's, for callers that need a model. path: for the message. */
ek_err ek_source_check_model(const char *path, const ek_config *config);

/* A weight as stored, valid until close. EFORMAT names tensor and file of a missing or misshapen weight; EUNSUPPORTED
 * names an unreadable format. */
ek_err ek_source_weight(ek_source *s, const ek_weight_query *query, ek_weight_data *out);
/* Whether there is an lm_head, which may equal embed_tokens. Fails like the first weight. */
ek_err ek_source_has_head(ek_source *s, bool *out);
/* Reads a vector of n whole numbers: a drafter's masked_embedding.token_ordering. EFORMAT as above, and for a number
 * outside int32. */
ek_err ek_source_ids(ek_source *s, const char *name, int n, int32_t *out);
/* Call after the last weight: EFORMAT for a tensor that was not requested and belongs to no known part besides the text
 * model. */
ek_err ek_source_finish(ek_source *s, const ek_config *config);

/* ENOTFOUND if the container has none. */
ek_err ek_source_tokenizer_of(ek_source *s, ek_source_tokenizer *out);
ek_err ek_source_chat_of(ek_source *s, ek_source_chat *out);

/* Whether safetensors name a weight without the model's prefix: a drafter's projections and ordered embeddings. */
bool ek_source_stands_beside(const char *name);

/* Constructors of the containers; each takes the path over. */
ek_source *ek_source_folder(const char *path); /* source_folder.c */
ek_source *ek_source_gguf(const char *path);   /* source_gguf.c: a file, or a folder with one model */

#endif
