#include "model/role.h"

ek_act_form ek_role_acts(ek_role role, const ek_weight_type *type)
{
    return (ek_act_form){.limbs = role == EK_ROLE_HEAD ? 1 : 2, .group = type->group <= 32 ? 32 : 64};
}
