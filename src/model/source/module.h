/* Storage of a module's matrix in safetensors; the tensors under its name, and config.json's section about their
 * quantisation, decide the format. */
#ifndef EK_MODEL_MODULE_H
#define EK_MODEL_MODULE_H

#include <stdbool.h>

#include "base/err.h"
#include "ops/weights/weight_type.h"
#include "tensor/checkpoint.h"

/* --- the "quantization" section of a config.json: the format of each module's weights --- */

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

/* --- a module --- */

typedef enum ek_module_part {
    EK_PART_WEIGHT,
    EK_PART_SCALES, /* MLX */
    EK_PART_BIASES,
    EK_PART_PACKED, /* compressed-tensors */
    EK_PART_SCALE,
    EK_PART_ZERO_POINT,
    EK_PART_SHAPE,
    EK_PART_CT_ORDER,
    EK_PART_GLOBAL_SCALE, /* NVFP4 of compressed-tensors */
    EK_PART_SCALE_2,      /* of modelopt */
    EK_PART_SCALE_INV,    /* fp8 in tiles */
    EK_PART_QWEIGHT,      /* GPTQ, AWQ */
    EK_PART_QZEROS,
    EK_PART_ORDER,
    EK_PART_COUNT
} ek_module_part;

/* ".weight_scale" */
const char *ek_part_suffix(int part);

typedef struct ek_module {
    const char *name;                     /* the source's name: "layers.3.mlp.up_proj" */
    const ek_tensor *part[EK_PART_COUNT]; /* NULL: not in the file */
} ek_module;

/* The suffix of a missing tensor without which the others are useless; "": the weight itself; NULL: none is missing. */
const char *ek_module_missing(const ek_module *m);

/* Modules of 4-bit and 8-bit floats (module_minifloat.c); ek_module_read calls these first. */
bool ek_module_is_minifloat(const ek_module *m);
ek_err ek_module_minifloat(const ek_module *m, const ek_quant *quant, int outer, int rows, int k, ek_weight_data *out);

/* Reads a module of rows x k; the caller sets n, k and the row of *out. outer: leading dimension of fused experts; 0:
 * none. EFORMAT and EUNSUPPORTED name tensor and file. */
ek_err ek_module_read(const ek_module *m, const ek_quant *quant, int outer, int rows, int k, ek_weight_data *out);

/* EFORMAT unless t has the type. what: a plural for the message: "shapes". */
ek_err ek_module_type(const ek_tensor *t, ek_dtype want, const char *what);
/* Reads a tensor of floats, whose shape is checked by ek_module_shape. */
ek_err ek_module_floats(ek_weight_data *out, const ek_tensor *t, int outer, int rows, int k);
/* EFORMAT unless t is [outer, rows, k]. outer 0: without that dimension. k 0: a vector of rows. */
ek_err ek_module_shape(const ek_tensor *t, int outer, int rows, int k);

#endif
