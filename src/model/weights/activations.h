/* The choice of --activations: how many bits of an activation quantised products read. Part of the numerics id.
 * What it means for a matrix: model/weights/role.h. */
#ifndef EK_MODEL_ACTIVATIONS_H
#define EK_MODEL_ACTIVATIONS_H

#include "base/err.h"

/* Raised whenever the order or the rounding of any addition changes: old and new answers may differ. */
enum { EK_ARITHMETIC_VERSION = 3 };

typedef enum ek_activations {
    EK_ACTIVATIONS_AUTO, /* by matrix */
    EK_ACTIVATIONS_8,    /* one limb everywhere */
    EK_ACTIVATIONS_16    /* two limbs everywhere */
} ek_activations;

const char *ek_activations_name(ek_activations a); /* "auto", "8", "16" */
/* EINVAL lists the accepted names. */
ek_err ek_activations_parse(const char *text, ek_activations *out);

#endif
