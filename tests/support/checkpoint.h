/* Small checkpoints on disk in the Hugging Face layout, with hashed weights. */
#ifndef EK_TESTS_SUPPORT_CHECKPOINT_H
#define EK_TESTS_SUPPORT_CHECKPOINT_H

#include "hashed.h"
#include "safetensors.h"

typedef struct hf_opts {
    const char *prefix;  /* in place of "model." */
    const char *skip;    /* a tensor (by its text-only name) that is left out */
    bool f32;            /* values as F32, otherwise BF16 */
    const char *f32_one; /* this one tensor as F32 */
    int shards;          /* 0 or 1: one file; more: an index */
} hf_opts;

/* Writes config.json and the weights of c into dir. o: NULL for the defaults. extra, unless NULL, adds
 * tensors to the first file. */
void write_hf(const char *dir, const ek_config *c, const hf_opts *o, void (*extra)(st_file *));

/* Appends the text configuration as JSON, without the braces. */
void config_fields(ek_buf *b, const ek_config *c);

#endif
