/* The "quantization" section of a config.json: how the weights of a module are stored. */
#ifndef EK_MODEL_QUANT_H
#define EK_MODEL_QUANT_H

#include <stdbool.h>

#include "base/err.h"

typedef struct ek_quant_entry {
    char *path;      /* of the module, without the model's prefix: "layers.0.router.proj" */
    int bits, group; /* bits 0: the entry says that the module is not quantised */
} ek_quant_entry;

/* Who quantised the file. Of compressed-tensors, modelopt and fp8 the tensors say all that is needed. */
typedef enum ek_quant_method {
    EK_QUANT_MLX,
    EK_QUANT_COMPRESSED,
    EK_QUANT_GPTQ,
    EK_QUANT_AWQ,
    EK_QUANT_FLOATS /* NVIDIA's modelopt; transformers' fp8 and fbgemm_fp8 */
} ek_quant_method;

typedef struct ek_quant {
    bool any; /* the file has the section */
    ek_quant_method method;
    bool zero_as_is;     /* GPTQ: zero points are stored as they are (checkpoint_format gptq_v2), not less one */
    int bits, group;     /* of modules without an entry of their own; 0 when the file gives none */
    ek_quant_entry *own; /* by path */
    int n_own;
} ek_quant;

/* Modes of MLX, methods and formats that cannot be read are EUNSUPPORTED by name. */
ek_err ek_quant_parse(ek_quant *q, const char *config_json);
void ek_quant_fini(ek_quant *q);

/* The entry of a module (path without prefix), or the default of all modules: then false. */
bool ek_quant_find(const ek_quant *q, const char *path, int *bits, int *group);

/* name without "model.language_model.", "language_model.model." or "model.", a head's without "language_model.". */
const char *ek_bare_name(const char *name);

#endif
