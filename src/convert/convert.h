/* Writes a model in another format: a GGUF file, or a folder of safetensors in the layout of Hugging Face or mlx-lm.
 *
 * Memory does not grow with the model: weights go from the source's mapping to the file in pieces of rows, one per
 * thread. What grows is the tokenizer, which is read as a whole. */
#ifndef EK_CONVERT_CONVERT_H
#define EK_CONVERT_CONVERT_H

#include <signal.h>

#include "base/machine/pool.h"
#include "model/config/config.h"

typedef struct ek_convert_opts {
    const char *type; /* f32, f16, bf16: to either; mlxB (B bits): a folder; ggml's, as q4_0: GGUF */
    const char *from; /* a model, as ek_source_open takes it; NULL: random weights */
    const ek_config *invented;
    const char *to;        /* .gguf: a file, else a folder */
    bool force;            /* replaces what is there */
    double max_file_bytes; /* 0: 5 GB in folders, no limit for GGUF */
    uint64_t seed;         /* of random weights */
    ek_pool *pool;
    const volatile sig_atomic_t *cancel; /* NULL, or nonzero once the work shall stop: ECANCELLED */
} ek_convert_opts;

typedef struct ek_convert_report {
    int tensors, files;
    double bytes;
} ek_convert_report;

/* EINVAL for a type that neither the target's name nor random weights can have, and for an empty name; reads nothing.
 */
ek_err ek_convert_check(const ek_convert_opts *o);

/* Nothing is left under the final name, or beside it, unless everything succeeded. EINVAL as above and
 * for what exists; errors of the source; EIO with the file's name. */
ek_err ek_convert_model(const ek_convert_opts *o, ek_convert_report *report);

#endif
