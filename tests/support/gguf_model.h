/* Small Gemma 4 models and drafters as GGUF files, with hashed weights, in the ways that programs write them. */
#ifndef EK_TESTS_SUPPORT_GGUF_MODEL_H
#define EK_TESTS_SUPPORT_GGUF_MODEL_H

#include <stdbool.h>

#include "gguf.h"
#include "model/config/config.h"

enum { GGUF_F32 = 0, GGUF_F16 = 1, GGUF_Q4_0 = 2, GGUF_Q8_0 = 8, GGUF_BF16 = 30, GGUF_NVFP4 = 40 };

/* Whose names a drafter has. */
typedef enum gguf_scheme { GGUF_LLAMA, GGUF_IK, GGUF_ATOMIC } gguf_scheme;

typedef struct gguf_opts {
    uint32_t type;        /* of matrices; of rows that its blocks do not divide: f32 */
    bool scalars;         /* one number where all layers have the same, instead of arrays */
    bool period;          /* the pattern of layers as a period; the configuration must have one */
    float gain;           /* of NVFP4: in a tensor beside each, times 1, 2, … per expert; 0: none */
    bool split_experts;   /* gate and up of their own */
    bool no_expert_scale; /* and with it, no ffn_down_exps.scale */
    bool shared;          /* keys and values that layers which share do not use */
    bool foreign;         /* towers of other senses */
    int head;             /* 1: output.weight like the embedding, 2: another one */
    gguf_scheme scheme;   /* of a drafter */
    bool centroid_of;     /* each token's centroid instead of the tokens of the centroids */
    const int32_t *order; /* the tokens of the centroids */
    const char *skip;     /* a tensor, by its name in the file, that is left out */
    const char *skip_key; /* a key that is left out */
    int parts;            /* more than 1: NAME is the stem of a split model */
    void (*extra)(gguf_file *f);
} gguf_opts;

/* The name of a tensor (Hugging Face's, text-only) in GGUF files. */
void gguf_name(char *out, size_t room, const char *name, gguf_scheme scheme);

/* n values, whole blocks, as bytes of a type: at most 4 each; v becomes what they stand for. Returns the bytes. */
size_t gguf_encode(uint32_t type, float *v, size_t n, uint8_t *out);

/* Writes DIR/NAME; the values are those of write_hf. hf_dir, unless NULL, gets the values that the types can hold, in
 * the Hugging Face layout as F32. */
void write_gguf(const char *dir, const char *name, const ek_config *c, const gguf_opts *o, const char *hf_dir);
/* Appends such a file, of one part, to out. */
void gguf_model(ek_buf *out, const ek_config *c, const gguf_opts *o);

#endif
