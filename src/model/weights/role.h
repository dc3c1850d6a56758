/* Limbs and groups of a matrix's activations, by its role and by --activations.
 *
 * This file alone chooses them. They are part of the numerics, like the blocks of ops/linear/linear.h and the tree over
 * them, which are the same for all matrices. */
#ifndef EK_MODEL_ROLE_H
#define EK_MODEL_ROLE_H

#include "base/err.h"
#include "ops/linear/linear.h"

/* Increased whenever the order or rounding of any addition changes: old and new answers may differ. */
enum { EK_ARITHMETIC_VERSION = 3 };

/* --activations: the bits of activations in quantised products. Part of the numerics id. */
typedef enum ek_activations {
    EK_ACTIVATIONS_AUTO, /* by matrix */
    EK_ACTIVATIONS_8,    /* one limb everywhere */
    EK_ACTIVATIONS_16    /* two limbs everywhere */
} ek_activations;

const char *ek_activations_name(ek_activations a); /* "auto", "8", "16" */
/* EINVAL lists the accepted names. */
ek_err ek_activations_parse(const char *text, ek_activations *out);

typedef enum ek_matrix_role {
    EK_ROLE_HEAD, /* the embedding, which may also be the head */
    EK_ROLE_Q,
    EK_ROLE_K,
    EK_ROLE_V,
    EK_ROLE_O,
    EK_ROLE_GATE,
    EK_ROLE_UP,
    EK_ROLE_DOWN,
    EK_ROLE_ROUTER,
    EK_ROLE_EXPERT_GATE,
    EK_ROLE_EXPERT_UP,
    EK_ROLE_EXPERT_DOWN,
    EK_ROLE_PER_LAYER_MODEL_PROJECTION,
    EK_ROLE_PER_LAYER_GATE,
    EK_ROLE_PER_LAYER_PROJECTION
} ek_matrix_role;

/* EK_ACTIVATIONS_AUTO: weights of 8 bits get two limbs. Weights of up to 6 bits get one limb for q, o, gate, up, down
 * and the experts, and two for the head, k, v, the router and the per-layer matrices, where a second limb costs little
 * and removes much error (docs/NUMERICS.md 10). Groups of activations have 16 or 32 values if the weights' groups have,
 * and 64 otherwise. The type must be quantised. */
ek_act_form ek_role_acts(ek_matrix_role role, const ek_weight_type *type, ek_activations activations);

#endif
