/* What a matrix is for, and what follows from it: the activations that it is multiplied with.
 *
 * The one place where limbs and activation groups are chosen; they are part of the numerics, as
 * are EK_KBLOCK (ops/linear.h), which holds for all matrices, and the tree over its blocks. */
#ifndef EK_MODEL_ROLE_H
#define EK_MODEL_ROLE_H

#include "ops/linear.h"

typedef enum ek_role {
    EK_ROLE_HEAD, /* the embedding, which is also the head */
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
    EK_ROLE_PER_LAYER_PROJECTION,
    EK_ROLE_COUNT
} ek_role;

/* The default arithmetic: one limb for the head, two for all others; groups of 32 for weights in
 * groups of 32, else 64. What each costs of a model's answer: docs/NUMERICS.md 10. The type must be
 * a quantised one. */
ek_act_form ek_role_acts(ek_role role, const ek_weight_type *type);

#endif
