/* The metadata of a written model: GGUF's metadata, config.json, and the tokenizer in either form. */
#ifndef EK_CONVERT_META_H
#define EK_CONVERT_META_H

#include "convert/layout.h"
#include "tensor/gguf.h"

/* The sources of the texts. */
typedef struct ek_meta_opts {
    const ek_config *config;
    const ek_target *target;
    const char *name;      /* general.name */
    const char *tokenizer; /* tokenizer.json; NULL: none */
    size_t tokenizer_bytes;
    const char *chat_template; /* NULL: none */
    const char *variant;       /* "small" or "large" */
    bool nested;               /* config.json of a model with towers */
} ek_meta_opts;

/* Keys of architecture gemma4 as llama.cpp's converter writes them. EUNSUPPORTED for configurations that the keys
 * cannot express. */
ek_err ek_meta_gguf(ek_gguf_meta *m, const ek_meta_opts *o);
/* The keys of the tokenizer: tokens, types, merges, special ids. EFORMAT for a damaged tokenizer.json. */
ek_err ek_meta_gguf_tokenizer(ek_gguf_meta *m, const ek_meta_opts *o);

/* config.json; l has the formats of quantised modules. */
ek_err ek_meta_config(ek_buf *out, const ek_meta_opts *o, const ek_layout *l);
void ek_meta_generation(ek_buf *out, const ek_config *c);        /* generation_config.json */
void ek_meta_tokenizer_config(ek_buf *out, const char *variant); /* tokenizer_config.json */

/* A tokenizer.json of n pieces (at least EK_MADE_MIN): Gemma's special tokens under their ids, byte pieces, printable
 * ASCII, and invented words with the n_merges merges that make them. Linear in n. */
enum { EK_MADE_MIN = 1024, EK_MADE_MERGES = 514906 };
void ek_made_tokenizer(ek_buf *out, int n, int n_merges);

#endif
