/* How a module's matrix is stored in safetensors: the tensors that stand beside each other under its name decide. */
#ifndef EK_MODEL_MODULE_H
#define EK_MODEL_MODULE_H

#include "model/source/quant.h"
#include "ops/weights/weight_type.h"
#include "tensor/checkpoint.h"

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
    const char *name;                     /* as the source calls it: "layers.3.mlp.up_proj" */
    const ek_tensor *part[EK_PART_COUNT]; /* NULL: the file has none */
} ek_module;

/* The suffix of a tensor without which the others mean nothing; "" for the weight itself, NULL if none is missing. */
const char *ek_module_missing(const ek_module *m);

/* Modules of floats of 4 and 8 bits (module_minifloat.c): what ek_module_read asks first. */
bool ek_module_is_minifloat(const ek_module *m);
ek_err ek_module_minifloat(const ek_module *m, const ek_quant *quant, int outer, int rows, int k, ek_weight_data *out);

/* n, k and the row stay the caller's. rows x k; outer: leading dimension of fused experts, 0 without. EFORMAT and
 * EUNSUPPORTED name tensor and file. */
ek_err ek_module_read(const ek_module *m, const ek_quant *quant, int outer, int rows, int k, ek_weight_data *out);

/* EFORMAT unless t has the type; what: "shapes". */
ek_err ek_module_type(const ek_tensor *t, ek_dtype want, const char *what);
/* A tensor of floats, of ek_module_shape. */
ek_err ek_module_floats(ek_weight_data *out, const ek_tensor *t, int outer, int rows, int k);
/* EFORMAT unless t is [outer, rows, k]; outer 0: without that dimension; k 0: a vector of rows. */
ek_err ek_module_shape(const ek_tensor *t, int outer, int rows, int k);

#endif
