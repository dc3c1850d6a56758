/* The "quantization" section of a config.json: the format of each module's weights. */
#ifndef EK_MODEL_QUANT_H
#define EK_MODEL_QUANT_H

#include <stdbool.h>

#include "base/err.h"

typedef struct ek_quant_entry {
    char *path;      /* of the module, without the model's prefix: "layers.0.router.proj" */
    int bits, group; /* bits 0: the module is not quantised */
} ek_quant_entry;

/* The method of quantisation. compressed-tensors, modelopt and fp8 need no more than their tensors. */
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
    bool zero_as_is;     /* GPTQ: zero points are stored unchanged (checkpoint_format gptq_v2), not minus one */
    int bits, group;     /* of modules without an entry; 0 if the file gives none */
    ek_quant_entry *own; /* sorted by path */
    int n_own;
} ek_quant;

/* EUNSUPPORTED names an unreadable MLX mode, method or format. */
ek_err ek_quant_parse(ek_quant *q, const char *config_json);
void ek_quant_fini(ek_quant *q);

/* Returns true with the module's entry (path without prefix), or false with the default for all modules. */
bool ek_quant_find(const ek_quant *q, const char *path, int *bits, int *group);

/* name without "model.language_model.", "language_model.model." or "model."; a head's without "language_model.". */
const char *ek_bare_name(const char *name);

#endif
