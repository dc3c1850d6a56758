#include "model/weights/role.h"

#include <string.h>

/* Whether the matrix gets a second limb: it is cheap there, and errors cost much (docs/NUMERICS.md 10). */
static bool weighs(ek_matrix_role role)
{
    switch (role) {
    case EK_ROLE_HEAD:
    case EK_ROLE_K:
    case EK_ROLE_V:
    case EK_ROLE_ROUTER:
    case EK_ROLE_PER_LAYER_MODEL_PROJECTION:
    case EK_ROLE_PER_LAYER_GATE:
    case EK_ROLE_PER_LAYER_PROJECTION: return true;
    default: return false;
    }
}

ek_act_form ek_role_acts(ek_matrix_role role, const ek_weight_type *type, ek_activations activations)
{
    enum { COARSE_BITS = 6 };
    bool two = activations == EK_ACTIVATIONS_16 ||
               (activations == EK_ACTIVATIONS_AUTO && (type->bits > COARSE_BITS || weighs(role)));
    return (ek_act_form){.limbs = two ? 2 : 1, .group = type->group <= 32 ? type->group : 64};
}

static const char *const names[] = {"auto", "8", "16"};

const char *ek_activations_name(ek_activations a)
{
    return names[a];
}

ek_err ek_activations_parse(const char *text, ek_activations *out)
{
    for (int i = 0; i <= EK_ACTIVATIONS_16; i++)
        if (strcmp(text, names[i]) == 0) {
            *out = (ek_activations)i;
            return EK_OK;
        }
    return ek_fail(EK_EINVAL, "activations %.20s; there are auto, 8 and 16", text);
}
