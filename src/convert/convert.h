/* Writes a model in another format: a GGUF file, or a folder of safetensors in the layout of Hugging Face or mlx-lm.
 * Weights go from the source's mapping to the file in pieces of rows, one per thread, so memory does not grow with
 * them. It grows with the tokenizer, which is read whole. */
#ifndef EK_CONVERT_CONVERT_H
#define EK_CONVERT_CONVERT_H

#include <signal.h>

#include "base/machine/pool.h"
#include "model/config/config.h"

typedef struct ek_convert_opts {
    const char *type; /* f32, f16, bf16: for both targets; mlxB (B bits): a folder; ggml's, such as q4_0: GGUF */
    const char *from; /* a model for ek_source_open; NULL: random weights */
    const ek_config *invented;
    const char *to;        /* .gguf: a file, else a folder */
    bool force;            /* replaces an existing target */
    double max_file_bytes; /* 0: 5 GB in folders, no limit for GGUF */
    uint64_t seed;         /* of random weights */
    ek_pool *pool;
    const volatile sig_atomic_t *cancel; /* NULL, or a flag that becomes nonzero to stop the work: ECANCELLED */
} ek_convert_opts;

typedef struct ek_convert_report {
    int tensors, files;
    double bytes;
} ek_convert_report;

/* EINVAL for a type that does not fit the target's name or random weights, and for an empty name. Reads nothing. */
ek_err ek_convert_check(const ek_convert_opts *o);

/* Converts. After an error nothing is left under the final name or beside it. EINVAL as above and for an existing
 * target; errors of the source; EIO with the file's name. */
ek_err ek_convert_model(const ek_convert_opts *o, ek_convert_report *report);

#endif
